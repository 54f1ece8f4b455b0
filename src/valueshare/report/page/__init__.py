"""The report as one HTML page: its elements, sections, live view and server."""
