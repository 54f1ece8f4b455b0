"""Who may write: a lock on a file that is let go of when its holder ends, however it ends.

`flock` reaches as far as the filesystem lets it. Between processes of one machine that is always
so. Between machines it is so on NFS (Linux turns it into a lock of the server, but for mounts with
`nolock` or `local_lock`), CephFS, GPFS, and Lustre where it is mounted with `flock`; the lock is a
file that is open for writing, because NFS can lock no folder. Before a run on a cluster begins,
every machine tries the driver's lock, and a filesystem where it gets it is said to have none.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from valueshare.errors import InvalidInput
from valueshare.files import refuse_link

LOCK = ".lock"


class Taken(Exception):
    """Another process holds the lock."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run's folder while it is written to; a process that dies lets go of it."""
    try:
        with locked(folder / LOCK):
            yield
    except Taken as error:
        raise InvalidInput(f"{folder} is being trained by another process: let it end") from error


@contextmanager
def locked(path: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file, which is made where it is not there; waits for it if told to."""
    refuse_link(path)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + patience_seconds
        while not _try_lock(handle, path):
            if time.monotonic() >= deadline:
                raise Taken(str(path))
            time.sleep(0.2)
        yield
    finally:
        os.close(handle)


def is_taken(path: Path) -> bool:
    """Whether another process holds the lock, as far as this machine can tell."""
    try:
        with locked(path):
            return False
    except Taken:
        return True


def _try_lock(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(
            f"{path.parent} is on a filesystem without locks ({reason}): mount it with them, or "
            "choose another --out"
        ) from error
    return True
