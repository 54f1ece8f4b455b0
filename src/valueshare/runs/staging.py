"""Hidden folders in which results are written before they take their place.

A process that is killed leaves its own behind. The next command for the same target removes it: who
writes into one holds a lock on it, which ends with the process. Only folders of this machine are
removed, since a lock may not reach another one, and only those with names that are made here.
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

UNNAMED = ".valueshare-"  # a folder that is not locked yet; always empty
_RANDOM = "[a-z0-9_]{8}"  # what `tempfile` adds


@contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """A new folder beside the target to fill for it; the caller moves or removes it."""
    while True:
        unnamed = Path(tempfile.mkdtemp(prefix=UNNAMED, dir=target.parent))
        staging = target.with_name(_prefix(target) + unnamed.name.removeprefix(UNNAMED))
        handle = -1
        try:
            handle = os.open(unnamed, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(OSError):  # NFS locks no folders: there nobody can remove it either
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(staging)  # it has this name only while it is locked
        except BaseException as error:
            if handle >= 0:
                os.close(handle)
            if isinstance(error, FileNotFoundError):  # taken for left by another process
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
    """The folders for this target that killed processes left, each locked while it is looked at."""
    pattern = re.compile(re.escape(_prefix(target)) + _RANDOM)
    for path in _matching(target.parent, pattern):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone meanwhile, or no folder
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path
        except OSError:  # somebody works in it, or there are no locks
            continue
        finally:
            os.close(handle)


def remove_unnamed(above: Path) -> None:
    """Remove folders from which a process was killed before they had a name; they are empty."""
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
