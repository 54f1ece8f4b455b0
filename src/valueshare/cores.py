"""The number of available CPU cores."""

import os


def available_cores() -> int:
    """The cores that this process may use; a scheduler may give it fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
