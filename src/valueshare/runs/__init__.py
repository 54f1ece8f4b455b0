"""Folders that hold results: what is in them, where it came from, and how they come to be."""
