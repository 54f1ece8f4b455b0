"""The launchers: populations in this process, in worker processes, or as tasks of a Ray cluster."""
