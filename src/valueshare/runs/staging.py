"""Hidden folders in which results are written before they are moved to their target.

A killed process leaves its folder behind, and the next command for the same target removes it: a process that writes
into one holds its lock, which ends with the process. Only folders of this machine are removed, as locks may not work
between machines, and only those with such names.
"""

import fcntl
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from valueshare.files import checksum

UNNAMED = ".valueshare-"  # prefix of a folder that is not locked yet; always empty
_RANDOM = "[a-z0-9_]{8}"  # the suffix that `tempfile` adds


@contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """A new folder beside the target; the caller fills it, then moves or removes it."""
    while True:
        unnamed = Path(tempfile.mkdtemp(prefix=UNNAMED, dir=target.parent))
        staging = target.with_name(_prefix(target) + unnamed.name.removeprefix(UNNAMED))
        handle = -1
        try:
            handle = os.open(unnamed, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(OSError):  # NFS cannot lock folders, so it is never removed there
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(staging)  # it has this name only while it is locked
        except BaseException as error:
            if handle >= 0:
                os.close(handle)
            if isinstance(error, FileNotFoundError):  # another process removed it as left behind
                continue
            with suppress(OSError):
                unnamed.rmdir()
            raise
        break
    try:
        yield staging
    finally:
        os.close(handle)


def left_folders(target: Path) -> Iterator[Path]:
    """The folders for this target that killed processes left, each locked while it is yielded."""
    pattern = re.compile(re.escape(_prefix(target)) + _RANDOM)
    for path in _matching(target.parent, pattern):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone meanwhile, or no folder
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path
        except OSError:  # in use, or there are no locks
            continue
        finally:
            os.close(handle)


def remove_unnamed(above: Path) -> None:
    """Remove the empty folders of processes that were killed before they renamed them."""
    for path in _matching(above, re.compile(re.escape(UNNAMED) + _RANDOM)):
        with suppress(OSError):
            path.rmdir()


def _matching(above: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return [above / name for name in os.listdir(above) if pattern.fullmatch(name)]  # noqa: PTH208
    except OSError:
        return []


def _prefix(target: Path) -> str:
    machine = checksum(platform.node().encode()).hexdigest()[:6]
    return f".{target.name}-{machine}-"
