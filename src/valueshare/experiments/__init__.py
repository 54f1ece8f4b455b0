"""The studies as data, and running the tabular ones."""
