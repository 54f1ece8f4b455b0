"""Locks on files, which the system releases when their process ends, however it ends.

`flock` works between processes of one machine. Between machines it works on NFS (Linux turns it into a lock of the
server, except on mounts with `nolock` or `local_lock`), CephFS, GPFS, and Lustre mounted with `flock`. The lock is a
file that is open for writing, because NFS cannot lock folders. Before a run on a cluster begins, every node tries to
take the driver's lock, to find filesystems without locks between machines.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from valueshare.errors import OTHER_OUT, InvalidInput
from valueshare.files import reason, refuse_link

LOCK = ".lock"
EVALUATIONS_LOCK = ".evaluations.lock"  # of episodes after training, which may be played while the run still trains


class LockHeld(InvalidInput):
    """Another process holds the lock."""


def lock_run(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of a run's folder while it is written to."""
    return locked(folder / LOCK, f"{folder} is being trained by another process: wait for it to finish")


def refuse_if_trained(folder: Path) -> None:
    """Refuse a run that another process trains, as far as this machine can tell."""
    if (folder / LOCK).is_file():
        with suppress(OSError), lock_run(folder):  # the folder may be read-only
            pass


@contextmanager
def locked(path: Path, refusal: str = "", wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be; `LockHeld` after `wait_seconds`, with this message."""
    refuse_link(path)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + wait_seconds
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LockHeld(refusal or f"{path} is in use") from None
                time.sleep(0.2)
            except OSError as error:
                raise InvalidInput(
                    f"{path.parent} is on a filesystem without locks ({reason(error)}): mount it with them, or "
                    f"{OTHER_OUT}"
                ) from error
        yield
    finally:
        os.close(handle)


def is_taken(path: Path) -> bool:
    """Whether another process holds the lock, as far as this machine can tell."""
    try:
        with locked(path):
            return False
    except LockHeld:
        return True
