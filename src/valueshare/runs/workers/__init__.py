"""Populations side by side: in processes of this machine, or as tasks of a Ray cluster."""
