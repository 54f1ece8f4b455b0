"""The engines: populations in this process, in others beside it, or as tasks of a Ray cluster."""
