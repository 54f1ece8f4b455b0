"""The files below an address, through fsspec: S3, Google Cloud, Azure, SFTP and many more."""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from ftplib import Error, error_perm
from importlib import import_module
from pathlib import Path
from threading import local
from typing import Any, TypeVar

from valueshare.errors import InvalidInput, first_line
from valueshare.extras import install_command
from valueshare.files import refuse_links, temporary_file
from valueshare.runs.storage.places import Url

PAUSES = (1.0, 5.0, 20.0)  # seconds between attempts at a file
# Folders are part of names there, and making one could make a bucket.
_BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2", "memory")
_FTP_BYTES = 2**18  # read from a file and sent at once
# What another attempt does not mend.
_FINAL = (
    *(PermissionError, FileNotFoundError, NotADirectoryError, NotImplementedError, ImportError),
    error_perm,
)
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")

Answer = TypeVar("Answer")


class Unreachable(OSError):
    """A store did not do what it was asked to, however often."""


class _Missing(Exception):
    """A store has no file of that name."""


class Store:
    """The files below an address, by their names below it."""

    def __init__(self, url: Url) -> None:
        self.url = url
        self._fsspec, self._of_thread = _require_fsspec(), local()
        try:
            _ = self._files
        except ImportError as missing:  # fsspec says which package it wants
            reason = url.scrubbed(first_line(missing)).rstrip(".")
            raise InvalidInput(f"{url.scheme}:// has no driver here: {reason}") from None
        except Exception as error:
            raise InvalidInput(f"{url} is no place for a run: {_reason(url, error)}") from None

    def sizes(self, below: str = "") -> dict[str, int]:
        """The bytes of every file, by name."""
        return {name: int(about.get("size") or 0) for name, about in self._found(below).items()}

    def stamps(self, below: str) -> dict[str, str]:
        """Something that changes when a file does, by name."""
        return {name: str(sorted(about.items())) for name, about in self._found(below).items()}

    def read(self, name: str, *, patient: bool = True) -> bytes | None:
        """A small file; None where there is none."""

        def read() -> bytes | None:
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError as error:
                _check_said(error)
                return None

        return self._tried(f"read {name} of", read, patient=patient)

    def write(self, name: str, data: bytes, *, patient: bool = True) -> None:
        """A small file."""
        self._refuse_links(name)

        def write() -> None:
            self._made(name, self._files.pipe_file, data)

        self._tried(f"write {name} to", write, patient=patient)

    def put(self, path: Path, name: str) -> None:
        """Copy a file from here."""
        self._refuse_links(name)

        def put() -> None:
            self._made(name, self._send, path)

        self._tried(f"write {name} to", put)

    def get(self, name: str, path: Path) -> bool:
        """Copy a file to here, whole or not at all; False where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)

        def get() -> bool:
            try:
                self._files.get_file(self._path(name), str(partial))
            except (FileNotFoundError, error_perm) as error:
                self._check_missing(name, error)
                return False
            return True

        with suppress(_Missing), temporary_file(path, synced=False) as (partial, _):
            if self._tried(f"read {name} of", get):
                return True
            raise _Missing
        return False

    def delete(self, name: str) -> None:
        """What is gone already is well."""
        self._refuse_links(name)

        def delete() -> None:
            try:
                self._files.rm_file(self._path(name))
            except (FileNotFoundError, error_perm) as error:
                self._check_missing(name, error)

        self._tried(f"delete {name} of", delete)

    @property
    def _files(self) -> Any:
        """The protocol's program; each thread has its own, as its connection may be of one."""
        if not hasattr(self._of_thread, "files"):
            options: dict[str, Any] = {"auto_mkdir": True} if self.url.scheme == "local" else {}
            if hasattr(self._of_thread, "failed"):  # fsspec would give the same one again
                options["skip_instance_cache"] = True
            found, root = self._fsspec.core.url_to_fs(self.url.full, **options)
            self._of_thread.files, self._root = found, str(root).rstrip("/")
        return self._of_thread.files

    def _check_connection(self) -> None:
        """FTP servers hang up on who is silent for long; fsspec takes that for a missing file."""
        if self.url.scheme == "ftp":
            try:
                self._files.ftp.voidcmd("NOOP")
            except Exception:
                self._disconnect()

    def _disconnect(self) -> None:
        """What comes next connects anew: fsspec's programs go on with a connection that is lost."""
        self._of_thread.failed = True
        with suppress(AttributeError):  # it was not even made
            del self._of_thread.files

    def _refuse_links(self, name: str) -> None:
        """An address local:// is a folder, which may come from anybody."""
        if self.url.scheme == "local":
            refuse_links(Path(self._root), name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _made(self, name: str, write: Callable[[str, Any], object], data: Any) -> None:
        """Written, with the folders above it where the protocol has any."""
        where = self._path(name)
        try:
            write(where, data)
        except (FileNotFoundError, error_perm):
            if self.url.scheme in _BUCKETS:
                raise
            with suppress(error_perm):  # then it was not that: writing says what it is
                self._files.makedirs(where.rpartition("/")[0], exist_ok=True)
            write(where, data)

    def _send(self, where: str, path: Path) -> None:
        if self.url.scheme != "ftp":
            self._files.put_file(str(path), where)
            return
        with path.open("rb") as file:  # fsspec would open a connection for every 64 kB
            self._files.ftp.storbinary(f"STOR {where}", file, blocksize=_FTP_BYTES)

    def _check_missing(self, name: str, error: Exception) -> None:
        """Raise what a missing file does not explain; FTP has one number for that and for more."""
        if isinstance(error, error_perm):
            self._files.invalidate_cache()
            if self._files.exists(self._path(name)):
                raise error
        else:
            _check_said(error)

    def _found(self, below: str) -> dict[str, dict[str, Any]]:
        def find() -> dict[str, dict[str, Any]]:
            self._files.invalidate_cache()
            root = self._path(below).rstrip("/")
            if _finds_itself(self._files):
                try:
                    return dict(self._files.find(root, detail=True))
                except FileNotFoundError:
                    return {}
            return self._walked(root)

        start = len(self._root) + 1
        return {path[start:]: about for path, about in self._tried("list", find).items()}

    def _walked(self, root: str) -> dict[str, dict[str, Any]]:
        """All files; fsspec's own walk goes on without a folder that it could not list."""
        root = self._files._strip_protocol(root)
        found: dict[str, dict[str, Any]] = {}
        folders = [root]
        while folders:
            folder = folders.pop()
            try:
                listed = self._listed(folder)
            except OSError as error:
                if not _is_missing(error):
                    raise
                _check_said(error)
                if folder == root:
                    return {}
                # It was there a moment ago: whoever looks again sees what became of it.
                raise ConnectionError("a folder went while it was listed") from error
            for about in listed:
                path = about["name"].rstrip("/")
                if about["type"] != "directory":
                    found[about["name"]] = about
                elif path != folder:  # some list the folder itself too
                    folders.append(path)
        return dict(sorted(found.items()))

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self._files.ls(folder, detail=True)
        # fsspec's FTP takes a folder that it could not list for empty, but does not remember it.
        if self.url.scheme == "ftp" and not listed and folder not in self._files.dircache:
            raise ConnectionError("a folder could not be listed")
        return listed

    def _tried(self, what: str, do: Callable[[], Answer], *, patient: bool = True) -> Answer:
        """Try as often as is worth while; every protocol's program fails in its own way."""
        for pause in (*PAUSES, None) if patient else (None,):
            try:
                self._check_connection()
                return do()
            except Exception as error:
                if not _is_final(error):
                    self._disconnect()
                    if pause is not None:
                        time.sleep(pause)
                        continue
                number = getattr(error, "errno", None) or errno.EIO
                reason = _reason(self.url, error)
                # Nothing of the error itself goes on: it may hold what nobody should see.
                raise Unreachable(number, f"cannot {what} {self.url}: {reason}") from None
        raise AssertionError("the last attempt answers or raises")


def _finds_itself(files: Any) -> bool:
    """Whether the protocol's program has a search of its own, rather than fsspec's."""
    searches = [getattr(type(files), name, None) for name in ("find", "_find")]
    return any(
        search is not None and search.__module__ not in ("fsspec.spec", "fsspec.asyn")
        for search in searches
    )


def _is_missing(error: OSError) -> bool:
    return isinstance(error, FileNotFoundError) or error.errno == errno.ENOENT


def _check_said(error: BaseException) -> None:
    """Raise what may pass where a server did not say that a file is missing.

    fsspec's FTP says so whatever the server said; that is then what the error comes from.
    """
    source: BaseException | None = error
    while source is not None and not isinstance(source, Error):
        source = source.__cause__ or source.__context__
    if source is not None and not (
        isinstance(source, error_perm) and str(source).startswith("550")
    ):
        raise ConnectionError(str(source)) from None


def _is_final(error: Exception) -> bool:
    return isinstance(error, _FINAL) or type(error).__name__ in _NO_CREDENTIALS


def _reason(url: Url, error: BaseException) -> str:
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and number:  # those of name servers are below 0
        said = os.strerror(number) if number > 0 else url.scrubbed(str(error.strerror))
        return said.lower()
    return url.scrubbed(first_line(error))


def _require_fsspec() -> Any:
    try:
        import_module("fsspec.core")
        return import_module("fsspec")
    except ImportError as missing:
        raise InvalidInput(
            f"addresses of stores need fsspec: {install_command('remote')}, and the protocol's own "
            "driver, like s3fs; or write a folder"
        ) from missing
