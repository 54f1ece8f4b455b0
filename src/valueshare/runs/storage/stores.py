"""The files below a URL, through fsspec: S3, Google Cloud, Azure, SFTP and many more.

`tests/runs/storage/test_contract.py` is what a URL must do to hold a run.
"""

import errno
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from valueshare.errors import InvalidInput, first_line
from valueshare.extras import importing
from valueshare.files import refuse_links, temporary_file
from valueshare.runs.storage.locations import BUCKETS, Url

PAUSES = (1.0, 5.0, 20.0)  # seconds between attempts at a file
# Folders are only prefixes of names there, and making one could make a bucket.
_WITHOUT_FOLDERS = (*BUCKETS, "adl", "memory")
_RENAMES = ("local", "sftp", "ssh")  # where a file can replace another in one step; buckets do so when they store one
PARTIAL = ".partial"  # ends the name of a file that is being uploaded there
# Errors that another attempt does not fix.
_FINAL = (PermissionError, FileNotFoundError, NotADirectoryError, NotImplementedError, ImportError)
# Drivers' names for the time of the last access, which reading a file changes.
_ACCESSED = re.compile("a?time|.*access.*", re.IGNORECASE)
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")

Result = TypeVar("Result")


class Unreachable(OSError):
    """A store failed, in every attempt."""


class _Missing(Unreachable):
    """A store has no file of that name."""


class Store:
    """The files below a URL, by their names below it."""

    def __init__(self, url: Url) -> None:
        self.url = url
        with importing("fsspec", "remote", ", and the protocol's own driver, like s3fs; or write a folder"):
            self._core = import_module("fsspec.core")
        # Connections may not be shared by threads: fsspec keeps one for each.
        self._options = {"auto_mkdir": True} if url.scheme == "local" else {}
        try:
            filesystem, root = self._core.url_to_fs(url.full, **self._options)
        except ImportError as missing:  # fsspec says which package is missing
            reason = url.redact(first_line(missing)).rstrip(".")
            raise InvalidInput(f"{url.scheme}:// has no driver here: {reason}") from None
        except Exception as error:
            raise InvalidInput(f"{url} is not a location of a run: {_reason(url, error)}") from None
        self._driver, self._root = type(filesystem), str(root).rstrip("/")

    def sizes(self, below: str = "", *, retry: bool = True) -> dict[str, int]:
        """The bytes of every file, by name."""
        return {name: size for name, (size, _) in self.versions(below, retry=retry).items()}

    def versions(self, below: str = "", *, retry: bool = True) -> dict[str, tuple[int, str]]:
        """The bytes of every file, and a text that changes when its content does, by name."""
        versions = {}
        for name, about in self._find_files(below, retry=retry).items():
            version = [item for item in sorted(about.items()) if not _ACCESSED.fullmatch(item[0])]
            versions[name] = int(about.get("size") or 0), str(version)
        return versions

    def read(self, name: str, *, retry: bool = True) -> bytes | None:
        """A small file; None where there is none."""
        try:
            return self._try(f"read {name} of", lambda: bytes(self._files.cat_file(self._path(name))), retry=retry)
        except _Missing:
            return None

    def write(self, name: str, data: bytes, *, retry: bool = True) -> None:
        """Write a small file."""
        self._write(name, lambda path: self._files.pipe_file(path, data), retry=retry)

    def put(self, path: Path, name: str) -> None:
        """Upload a file."""
        self._write(name, lambda target: self._files.put_file(str(path), target))

    def get(self, name: str, path: Path) -> bool:
        """Download a file, atomically; False where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(_Missing), temporary_file(path, synced=False) as (partial, _):
            self._try(f"read {name} of", lambda: self._files.get_file(self._path(name), str(partial)))
            return True
        return False

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is not an error."""
        self._refuse_links(name)
        with suppress(_Missing):
            self._try(f"delete {name} of", lambda: self._files.rm_file(self._path(name)))

    def delete_partial_files(self, below: str = "") -> None:
        """Delete what is left of uploads that were killed; a failure is ignored, as they do no harm."""
        if self.renames:
            with suppress(Unreachable):
                for name in self.sizes(below):
                    if name.endswith(PARTIAL):
                        self.delete(name)

    @property
    def renames(self) -> bool:
        """Whether files are uploaded under a temporary name first."""
        return self.url.scheme in _RENAMES

    @property
    def _files(self) -> Any:
        """The fsspec filesystem of this thread."""
        return self._core.url_to_fs(self.url.full, **self._options)[0]

    def _refuse_links(self, name: str) -> None:
        """A URL local:// is a folder, which may be untrusted."""
        if self.url.scheme == "local":
            refuse_links(Path(self._root), name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write(self, name: str, write: Callable[[str], object], *, retry: bool = True) -> None:
        """Write, in folders that are made if need be; where the protocol can rename, readers never see half a file."""
        self._refuse_links(name)
        token = secrets.token_hex(4)  # one for all attempts: the next one writes to the same file

        def attempt() -> None:
            path = self._path(name)
            folder, _, last = path.rpartition("/")
            written = f"{folder}/.{last}.{token}{PARTIAL}" if self.renames else path
            try:
                write(written)
            except FileNotFoundError:
                if self.url.scheme in _WITHOUT_FOLDERS:
                    raise
                self._files.makedirs(folder, exist_ok=True)
                write(written)
            if self.renames:
                self._files.mv(written, path)

        self._try(f"write {name} to", attempt, retry=retry)

    def _find_files(self, below: str, *, retry: bool) -> dict[str, dict[str, Any]]:
        def find() -> dict[str, dict[str, Any]]:
            self._files.invalidate_cache()
            root = self._path(below).rstrip("/")
            try:
                if self._implements_find():
                    return dict(self._files.find(root, detail=True))
                return self._walk(self._files._strip_protocol(root))
            except FileNotFoundError as error:
                if not self._files.exists(root):
                    return {}
                # It was there a moment ago: the next attempt sees what became of it.
                raise ConnectionError("a folder was deleted while it was listed") from error

        start = len(self._root) + 1
        return {path[start:]: about for path, about in sorted(self._try("list", find, retry=retry).items())}

    def _walk(self, folder: str) -> dict[str, dict[str, Any]]:
        """All files below a folder; fsspec's own walk silently skips a folder that it could not list."""
        files: dict[str, dict[str, Any]] = {}
        for about in self._files.ls(folder, detail=True):
            path = about["name"].rstrip("/")
            if about["type"] != "directory":
                files[about["name"]] = about
            elif path != folder:  # some list the folder itself too
                files |= self._walk(path)
        return files

    def _implements_find(self) -> bool:
        """Whether the protocol's driver implements `find` itself, rather than inheriting fsspec's."""
        inherited = ("fsspec.spec", "fsspec.asyn")
        searches = [getattr(self._driver, name, None) for name in ("find", "_find")]
        return any(search is not None and search.__module__ not in inherited for search in searches)

    def _try(self, action: str, call: Callable[[], Result], *, retry: bool = True) -> Result:
        """Call until it succeeds or another attempt is useless; drivers raise anything."""
        for pause in (*PAUSES, None) if retry else (None,):
            try:
                return call()
            except Exception as error:
                is_final = isinstance(error, _FINAL) or type(error).__name__ in _NO_CREDENTIALS
                if not is_final:
                    self._driver.clear_instance_cache()  # connect anew: fsspec keeps using a connection that is lost
                    if pause is not None:
                        time.sleep(pause)
                        continue
                number = getattr(error, "errno", None) or errno.EIO
                reason = _reason(self.url, error)
                kind = _Missing if isinstance(error, FileNotFoundError) else Unreachable
                # Without the error itself, which may hold a secret.
                raise kind(number, f"cannot {action} {self.url}: {reason}") from None
        raise AssertionError("the last attempt returns or raises")


def _reason(url: Url, error: BaseException) -> str:
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and number:  # name servers have numbers below 0
        text = os.strerror(number) if number > 0 else url.redact(str(error.strerror))
        return text.lower()
    return url.redact(first_line(error))
