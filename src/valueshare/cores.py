"""How many cores there are to work with."""

import os


def available_cores() -> int:
    """The cores this process may use, which a scheduler can make fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
