"""Files that are written atomically, and are still there after a power cut.

A run folder is untrusted, so no symbolic link inside it is followed by a write or a delete: temporary files are new
files under random names, a rename replaces a link and not its target, and folders that are links are refused
(`refuse_links`).
"""

import errno
import hashlib
import io
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from valueshare.errors import InvalidInput

FULL = (errno.ENOSPC, errno.EDQUOT)
_TEMPORARY = re.compile(r"(?P<name>.+)\.[0-9a-f]{16}\.partial")


class DiskFull(OSError):
    """The disk is full; the unfinished file is removed."""


def atomic_write(path: Path, chunks: Iterable[bytes | memoryview], *, synced: bool = True) -> str:
    """Write a file, complete or not at all; return its checksum.

    It is written under another name, synced and renamed. Each chunk is written before the next is produced, so a file
    may be larger than memory.
    """
    digest = checksum()
    try:
        with temporary_file(path, synced=synced) as (_, file):
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFull(error.errno, f"no room on the disk for {path.name}") from error
    return digest.hexdigest()


@contextmanager
def temporary_file(path: Path, *, synced: bool = True) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside `path`, which replaces it when the context ends well."""
    partial = _temporary_name(path)
    try:
        with _create(partial) as file:
            yield partial, file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        partial.replace(path)
        if synced:
            sync(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write all files under other names, then rename them in this order.

    So nothing has changed where one cannot be written, as on a full disk. Each rename is synced before the next.
    """
    partials = {path: _temporary_name(path) for path in contents}
    try:
        for path, content in contents.items():
            with _create(partials[path]) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, partial in partials.items():
            partial.replace(path)
            sync(path.parent)
    except BaseException:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        raise


def remove_temporary_files(folder: Path, names: re.Pattern[str], seconds: float = 0.0) -> None:
    """Delete the temporary files that killed processes left of the files with these names.

    Only the one writer of these files may call it. Others give `seconds`: a file without a write for so long counts as
    left behind.
    """

    def is_left(name: str) -> bool:
        match = _TEMPORARY.fullmatch(name)
        return match is not None and names.fullmatch(match["name"]) is not None

    remove_files(folder, is_left, seconds)


def remove_files(folder: Path, wanted: Callable[[str], bool], seconds: float = 0.0) -> None:
    """Delete the regular files of a folder with wanted names: no folder, no link. What cannot be deleted is skipped."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if wanted(entry.name):
                with suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    is_old = not seconds or time.time() - about.st_mtime >= seconds
                    if stat.S_ISREG(about.st_mode) and is_old:
                        Path(entry.path).unlink()


def refuse_links(folder: Path, *names: str) -> None:
    """Refuse a symbolic link at these paths inside a folder, on the way to them, or below them.

    The folder itself may be reached through links.
    """
    for name in names:
        path = folder
        for part in Path(name).parts:
            path /= part
            refuse_link(path)
        for above, folders, files in os.walk(path):  # which follows no links
            for entry in (*folders, *files):
                refuse_link(Path(above, entry))


def refuse_link(path: Path) -> None:
    """Refuse a path inside a run folder that is a symbolic link."""
    if path.is_symlink():
        raise InvalidInput(f"{path} is a symbolic link: a run folder must hold its own files; replace it by a copy")


def write_json(path: Path, values: Any) -> str:
    """Write indented JSON, atomically; return its checksum. NaN is refused."""
    text = json.dumps(values, indent=2, allow_nan=False) + "\n"
    return atomic_write(path, [text.encode()])


def cache_folder(name: str) -> Path:
    """The folder for files of that kind which can be made again (XDG_CACHE_HOME)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "valueshare" / name


def file_digest(path: Path) -> str:
    """The checksum of a file; equal to that of `atomic_write` if nothing changed it."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, checksum).hexdigest()


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading: a pipe would block, and a device might never end."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def checksum(data: bytes = b"") -> "hashlib.blake2b":
    """The checksum of all files: BLAKE2b, 32 bytes."""
    return hashlib.blake2b(data, digest_size=32)


def sync(path: Path) -> None:
    """Wait until a file is on the disk, or the names in a folder, and so a rename in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Wait until every file and name below a folder is on the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def make_parents(target: Path) -> list[Path]:
    """Create the folders above the target; return those that were missing, innermost first."""
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        for folder in reversed(missing or [target.parent]):  # `parents=True` would recurse once per level
            folder.mkdir(exist_ok=True)
    except BaseException:
        remove_empty(missing)
        raise
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not made after all, or no longer empty
            folder.rmdir()


def reason(error: OSError) -> str:
    """The system's message of a failure, in lower case."""
    return (error.strerror or str(error)).lower()


def _temporary_name(path: Path) -> Path:
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")


def _create(path: Path) -> BinaryIO:
    """A new file; O_EXCL refuses an existing one, such as a link that was put there."""
    new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, new, 0o666), "wb")
