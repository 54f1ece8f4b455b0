"""Files that appear whole or not at all, and are still there after a power cut."""

import errno
import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT)


class NoRoom(OSError):
    """The disk is full; what was under way has left nothing behind."""


def write_whole(path: Path, chunks: Iterable[bytes | memoryview]) -> str:
    """Write a file whole or not at all; its checksum.

    It is written under another name, synced and renamed. A chunk is asked for when the one before
    it is written, so a file may be larger than memory.
    """
    partial = path.with_name(path.name + ".partial")
    digest = checksum()
    try:
        with partial.open("wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_directory(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise NoRoom(error.errno, f"no room on the disk for {path.name}") from error
        raise
    return digest.hexdigest()


def write_json(path: Path, values: Any) -> str:
    """Plain JSON for people too, whole or not at all; its checksum. NaN is refused: it is none."""
    text = json.dumps(values, indent=2, allow_nan=False) + "\n"
    return write_whole(path, [text.encode()])


def file_digest(path: Path) -> str:
    """The checksum of a file as it is now; what `write_whole` answered, if nothing changed it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, checksum).hexdigest()


def checksum(data: bytes = b"") -> "hashlib.blake2b":
    """The checksum of all files: BLAKE2b, 32 bytes."""
    return hashlib.blake2b(data, digest_size=32)


def sync_directory(directory: Path) -> None:
    """Wait until the names in a folder are on the disk; a rename is not before."""
    _sync(directory)


def sync_tree(folder: Path) -> None:
    """Wait until every file and name below a folder is on the disk, whoever wrote it."""
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def make_parents(target: Path) -> list[Path]:
    """Create the folders above the target; answer those that were missing, innermost first."""
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except BaseException:
        remove_empty(missing)
        raise
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not made after all, or no longer empty
            folder.rmdir()


def reason(error: OSError) -> str:
    """What the system says of a failure, as part of a line."""
    return (error.strerror or str(error)).lower()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
