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
from valueshare.runs.directory import remove_temp_folders, staging_folder, stale_staging_folders
from valueshare.runs.storage.leases import LEASE
from valueshare.runs.storage.locations import Location
from valueshare.runs.storage.remote import FIRST_SENT, Copy, is_manifest, is_metadata
from valueshare.runs.storage.stores import Store
from valueshare.schema import CONFIG, Invalid, json_object, read_config

COPIES = "valueshare-copies"  # in the system's folder for temporary files


@contextmanager
def working_copy(location: Location, *, keep: bool = False) -> Iterator[Copy]:
    """A folder as it is; of a URL an empty copy, removed when the context ends. Its folder does not exist yet.

    Errors name the URL in place of the folder. With `keep`, a copy whose finished phase could not be sent is kept,
    and the error names its folder.
    """
    if isinstance(location, Path):
        yield Copy(location, None)
        return
    with temporary_folder() as parent:
        copy = Copy(parent / (location.name or "run"), location)
        try:
            yield copy
        except InvalidInput as error:
            error.args = (_with_url(str(error), copy),)
            raise
        except OSError as error:
            message = _with_url(error.strerror or str(error), copy)
            if keep and copy.has_unsent():
                kept = Path(tempfile.mkdtemp(prefix="kept-", dir=_copies())) / copy.folder.name
                copy.folder.rename(kept)
                message += f"; what it lacks is in {kept}: copy these files there before you resume"
            raise OSError(error.errno, message) from error


class ReadingCopies:
    """Folders with the files that reading some runs needs; local runs are read in place."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self.folders, self._copies = [copy.folder for copy in copies], copies
        self._due = 0.0

    def fetch(self, every: float = 0.0) -> None:
        """Download what is new at the URLs, at most once in `every` seconds."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + every
        for copy in self._copies:
            copy.pull(is_metadata)

    def replace_paths(self, text: str) -> str:
        """A text with the URLs in place of the folders of their copies."""
        for copy in self._copies:
            text = _with_url(text, copy)
        return text


@contextmanager
def reading_copies(locations: Sequence[Location]) -> Iterator[ReadingCopies]:
    """Folders to read runs from, local or remote."""
    with ExitStack() as stack:
        reading = ReadingCopies([stack.enter_context(working_copy(location)) for location in locations])
        reading.fetch()
        yield reading


@contextmanager
def synced_folder(location: Location) -> Iterator[Path]:
    """A folder with the metadata of a run; new files are uploaded when the context ends well."""
    with working_copy(location) as copy:
        copy.pull(is_metadata)
        yield copy.folder
        copy.push()


def stored_config(location: Location) -> dict[str, Any] | None:
    """The settings of the results at a location, or None if there are none."""
    if isinstance(location, Path):
        return read_config(location, skip_damaged=True)
    try:
        return json_object(Store(location).read(CONFIG) or b"")
    except Invalid:
        return None


def finished_phases(location: Location) -> str:
    """Words on the finished phases of a run that ended early; where a store does not respond, there are some."""
    safe = "all finished phases are safe"
    try:
        if isinstance(location, Path):
            names = [str(path.relative_to(location)) for path in (location / CHECKPOINTS).rglob("*.json")]
        else:
            names = list(Store(location).sizes(CHECKPOINTS, retry=False))
    except (OSError, InvalidInput):  # the error that ended the run is the one to report
        return safe
    return safe if any(map(is_manifest, names)) else "no phase is finished yet"


def refuse_other_files(copy: Copy) -> None:
    """Refuse a URL with files that are not a run; download the metadata of a run there.

    Files that a driver sends before the configuration are not a run yet: it may have been killed then.
    """
    names = copy.store.sizes() if copy.is_remote else {}
    if CONFIG in names:
        copy.pull(is_metadata)
    elif any(name not in (LEASE, *FIRST_SENT) and not name.startswith(".") for name in names):
        raise InvalidInput(f"{copy.url} holds something other than a run: {OTHER_OUT}")


def refuse_new_run(copy: Copy) -> None:
    """Refuse a URL where another process has put a run since; call with its lease held."""
    if copy.url is not None and stored_config(copy.url) is not None:
        raise InvalidInput(f"{copy.url} was filled by another run meanwhile: it stays")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder of this process; those of processes that were killed, whose lock is free, are removed first."""
    target = _copies() / "copy"
    remove_temp_folders(target.parent)
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
        raise InvalidInput(f"{above} belongs to another user: set TMPDIR to a folder of your own")
    return above


def _with_url(text: str, copy: Copy) -> str:
    return text if copy.url is None else copy.url.redact(text.replace(str(copy.folder), str(copy.url)))
