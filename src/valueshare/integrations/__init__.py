"""The layer in other frameworks; a module per library, which is imported with it."""
