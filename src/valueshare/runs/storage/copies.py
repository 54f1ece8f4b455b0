"""Local copies of runs at URLs: made for a task, and removed with it.

They are folders in the system's folder for temporary files (TMPDIR). Those that a killed process has left there are
removed when the next copy is made.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from valueshare.errors import OTHER_OUT, InvalidInput
from valueshare.records import CHECKPOINTS
from valueshare.runs.directory import staging_folder, stale_staging_folders
from valueshare.runs.storage.leases import LEASE
from valueshare.runs.storage.locations import Location
from valueshare.runs.storage.remote import FIRST_SENT, RunStorage, is_manifest, is_metadata
from valueshare.runs.storage.stores import Store
from valueshare.schema import CONFIG, Invalid, json_object, read_config, read_object

COPIES = "valueshare-copies"  # in the system's folder for temporary files


@contextmanager
def open_storage(location: Location, *, keep: bool = False) -> Iterator[RunStorage]:
    """The storage of a run: a folder as it is, or of a URL an empty copy, removed when the context ends.

    The folder of a copy does not exist yet.

    Errors name the URL in place of the folder. With `keep`, a copy whose finished phase could not be sent is kept,
    and the error names its folder.
    """
    if isinstance(location, Path):
        yield RunStorage(location, None)
        return
    with temporary_folder() as parent:
        storage = RunStorage(parent / (location.name or "run"), location)
        try:
            yield storage
        except InvalidInput as error:
            error.args = (_with_url(str(error), storage),)
            raise
        except OSError as error:
            message = _with_url(error.strerror or str(error), storage)
            if keep and storage.has_unsent():
                kept = Path(tempfile.mkdtemp(prefix="kept-", dir=_copies())) / storage.folder.name
                storage.folder.rename(kept)
                message += f"; what it lacks is in {kept}: copy these files there before you resume"
            raise OSError(error.errno, message) from error


class ReadingCopies:
    """Folders with the files that reading some runs needs; local runs are read in place."""

    def __init__(self, copies: Sequence[RunStorage]) -> None:
        self.folders, self._copies = [storage.folder for storage in copies], copies
        self._due = 0.0

    def fetch(self, every: float = 0.0) -> None:
        """Download what is new at the URLs, at most once in `every` seconds."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + every
        for storage in self._copies:
            storage.pull(is_metadata)

    def replace_paths(self, text: str) -> str:
        """A text with the URLs in place of the folders of their copies."""
        for storage in self._copies:
            text = _with_url(text, storage)
        return text


@contextmanager
def reading_copies(locations: Sequence[Location]) -> Iterator[ReadingCopies]:
    """Folders to read runs from, local or remote."""
    with ExitStack() as stack:
        reading = ReadingCopies([stack.enter_context(open_storage(location)) for location in locations])
        reading.fetch()
        yield reading


@contextmanager
def synced_folder(location: Location) -> Iterator[Path]:
    """A folder with the metadata of a run; new files are uploaded when the context ends well."""
    with open_storage(location) as storage:
        storage.pull(is_metadata)
        yield storage.folder
        storage.push()


def stored_config(location: Location) -> dict[str, Any] | None:
    """The settings of the results at a location, or None if there are none."""
    if isinstance(location, Path):
        return read_config(location, skip_damaged=True)
    return stored_object(location, CONFIG)


def stored_object(location: Location, name: str) -> dict[str, Any] | None:
    """The JSON object in a file of a run, or None if there is none."""
    try:
        if isinstance(location, Path):
            return read_object(location / name)
        return json_object(Store(location).read(name) or b"")
    except (FileNotFoundError, Invalid):
        return None


def checkpoint_status(location: Location) -> str:
    """Whether a run that ended early has checkpoints, as text; if a store does not respond, it is assumed to."""
    safe = "all checkpoints are intact"
    try:
        if isinstance(location, Path):
            names = [str(path.relative_to(location)) for path in (location / CHECKPOINTS).rglob("*.json")]
        else:
            names = list(Store(location).sizes(CHECKPOINTS, retry=False))
    except (OSError, InvalidInput):  # the error that ended the run is the one to report
        return safe
    return safe if any(map(is_manifest, names)) else "no checkpoint yet"


def refuse_other_files(storage: RunStorage) -> None:
    """Refuse a URL with files that are not a run; download the metadata of a run there.

    Files that a driver sends before the configuration are not a run yet: it may have been killed then.
    """
    names = storage.store.sizes() if storage.is_remote else {}
    if CONFIG in names:
        storage.pull(is_metadata)
    elif any(name not in (LEASE, *FIRST_SENT) and not name.startswith(".") for name in names):
        raise InvalidInput(f"{storage.url} holds something other than a run: {OTHER_OUT}")


def refuse_new_run(storage: RunStorage) -> None:
    """Refuse a URL where another process has put a run since; call with its lease held."""
    if storage.url is not None and stored_config(storage.url) is not None:
        raise InvalidInput(f"{storage.url}: another process created a run there; it was left unchanged")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder of this process; those of processes that were killed, whose lock is free, are removed first."""
    target = _copies() / "copy"
    for path in stale_staging_folders(target):
        shutil.rmtree(path, ignore_errors=True)
    with staging_folder(target) as folder:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _copies() -> Path:
    above = Path(tempfile.gettempdir()) / f"{COPIES}-{os.getuid()}"
    above.mkdir(mode=0o700, exist_ok=True)
    if above.is_symlink() or above.stat().st_uid != os.getuid():
        raise InvalidInput(f"{above} belongs to another user: set TMPDIR to your own folder")
    return above


def _with_url(text: str, storage: RunStorage) -> str:
    return text if storage.url is None else storage.url.redact(text.replace(str(storage.folder), str(storage.url)))
