"""A run at a URL: a working copy on the local disk, kept in sync with the store.

A phase is finished when its manifest is at the URL, which is sent after the files it names. The process that runs a
population has a copy of it: the driver with the local launcher, and each worker of a cluster its own. The copy of a run
in a folder is that folder: nothing is sent or fetched.
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from valueshare.errors import InvalidInput
from valueshare.files import atomic_write
from valueshare.records import (
    AGENTS,
    CHECKPOINTS,
    MANIFEST,
    PROGRESS,
    RECORDS,
    CheckpointPaths,
    phase_of,
    read_progress,
)
from valueshare.runs.storage.locations import Location, Url
from valueshare.runs.storage.stores import PARTIAL, Store, Unreachable
from valueshare.schema import CONFIG, Invalid, Progress, json_object, validate_as

Wanted = Callable[[str], bool]

PROVENANCE = "provenance.json"
FIRST_SENT = (AGENTS, PROVENANCE)  # a new run sends these before its configuration
PLAN_FILES = (CONFIG, AGENTS)
PROGRESS_SECONDS = 5.0  # between reads of remote progress

# A store's names become paths: nothing may lead out of the folder.
_PLAIN = re.compile(r"(?!\.\.?(/|$))[\w.+,=@ -]+(/(?!\.\.?(/|$))[\w.+,=@ -]+)*")
# The files that reading a run needs, at any depth: all but states and replay.
_METADATA = re.compile(
    rf"(.*/)?((config|provenance|summary)\.json|{re.escape(AGENTS)}|{RECORDS}/[^/]+\.parquet"
    rf"|{CHECKPOINTS}/[^/]+/{MANIFEST}|{PROGRESS}/[^/]+\.json)"
)
_CHANGING = re.compile(rf"(.*/)?(provenance\.json|{PROGRESS}/[^/]+\.json)")
_PROGRESS = re.compile(rf"{PROGRESS}/[\w-]+\.json")  # the progress of one population
_MANIFEST = re.compile(rf".*/{MANIFEST}")
_SCRATCH = (PARTIAL, ".lock", ".unsent")


def is_metadata(name: str) -> bool:
    return _METADATA.fullmatch(name) is not None


def is_manifest(name: str) -> bool:
    return _MANIFEST.fullmatch(name) is not None


class RunStorage:
    """A folder, and the files of it that the store at a URL has; without a URL, the folder alone."""

    def __init__(self, folder: Path, url: Url | None) -> None:
        self.folder, self.url = folder, url
        self._sent: dict[str, tuple[int, int]] = {}  # files as they are at both places
        self._pulled: dict[str, tuple[int, str]] = {}  # versions of files at the URL when they were downloaded
        self._due = 0.0

    @cached_property
    def store(self) -> Store:
        """The files at the URL, if there is one."""
        assert self.url is not None
        return Store(self.url)

    @property
    def is_remote(self) -> bool:
        return self.url is not None

    @property
    def location(self) -> Location:
        """Where the run is."""
        return self.folder if self.url is None else self.url

    def pull(self, wanted: Wanted) -> None:
        """Download the wanted files that are missing or different here."""
        if self.url is None:
            return
        versions = self.store.versions()
        if versions:  # the folder of a URL with no files at all does not exist
            self.folder.mkdir(parents=True, exist_ok=True)
        for name, version in versions.items():
            if not wanted(name) or not _PLAIN.fullmatch(name):
                continue
            path = self.folder / name
            # The version of a file that was pushed is not known: it is downloaded once.
            pulled = self._pulled.get(name, None if name in self._sent else version)
            is_here = path.is_file() and path.stat().st_size == version[0] and version == pulled
            may_change_unseen = _CHANGING.fullmatch(name) is not None  # and keep its size
            # A file that is gone by now was replaced by a later phase.
            if (is_here and not may_change_unseen) or self.store.get(name, path):
                self._sent[name], self._pulled[name] = _local_version(path), version

    def push(self, wanted: Wanted = lambda name: True) -> None:
        """Upload new files: data first, then manifests, and the configuration last.

        A run does not exist before its configuration is there, nor a phase before its manifest.
        """
        if self.url is None:
            return
        names = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*")]
        new = [name for name in names if wanted(name) and self._is_new(name)]
        for name in sorted(new, key=lambda name: (name == CONFIG, is_manifest(name), name)):
            version = _local_version(self.folder / name)
            self.store.put(self.folder / name, name)
            self._sent[name] = version

    def pull_population(self, population: str, phase: int | None = None) -> None:
        """Download what a population needs to resume; with a phase, only that checkpoint."""
        belongs = _of_population(population)

        def wanted(name: str) -> bool:
            return name in PLAN_FILES or (
                belongs(name) and (phase is None or is_metadata(name) or _phase(name) == phase)
            )

        self.pull(wanted)
        if self.is_remote:
            self.store.delete_partial_files(f"{CHECKPOINTS}/{population}")

    def pull_weights(self, population: str) -> None:
        """Download a population's weights, and the manifests that name them."""
        if self.url is None:
            return
        belongs, paths = _of_population(population), CheckpointPaths(self.folder, population)
        self.pull(lambda name: belongs(name) and ("/state-" in name or is_manifest(name)))
        phases = [phase_of(path.name) or 0 for path in paths.manifests()]
        if phases and not any(paths.state(phase).is_file() for phase in phases):
            raise InvalidInput(f"{population} at {self.url} has changed while it was read: run the command again")

    def push_population(self, population: str) -> None:
        """Upload a finished phase; then delete older files that are no longer here.

        A worker that was given up for lost and still runs deletes nothing that a later phase needs: files that its own
        phase does not need, later ones do not need either.
        """
        if self.url is None:
            return
        belongs, mark = _of_population(population), self.folder / PROGRESS / f"{population}.unsent"
        mark.parent.mkdir(exist_ok=True)
        mark.touch()  # the parent process may have to report it
        self.push(belongs)
        mark.unlink()
        phases = {name: _phase(name) for name in self._sent if belongs(name)}
        newest = max(phases.values(), default=0)
        for name, phase in phases.items():
            if 0 <= phase < newest and not (self.folder / name).exists():
                with suppress(Unreachable):  # a leftover does no harm
                    self.store.delete(name)
                del self._sent[name]
        self._due = 0.0  # send progress at once

    def push_progress(self, population: str) -> None:
        """Upload progress every few seconds; failures are ignored, as it is for displays."""
        now = time.monotonic()
        if self.url is None or now < self._due:
            return
        self._due = now + PROGRESS_SECONDS
        with suppress(OSError):
            file = f"{PROGRESS}/{population}.json"
            self.store.write(file, (self.folder / file).read_bytes(), retry=False)

    def pull_progress(self, *, at_once: bool = False) -> None:
        """Download progress of all populations, and the records of phases that ended since."""
        now = time.monotonic()
        if self.url is None or (now < self._due and not at_once):
            return
        self._due = now + PROGRESS_SECONDS
        with suppress(Unreachable):  # the next attempt may succeed
            for name, version in self.store.versions(PROGRESS).items():
                if self._pulled.get(name) == version or not _PROGRESS.fullmatch(name):
                    continue
                population = Path(name).stem
                before = read_progress(self.folder, population).phases
                text = self.store.read(name) or b""
                try:
                    phases = validate_as(json_object(text), Progress).phases
                except Invalid:
                    continue  # it is being written
                # In place of those from before an extension; records are there before the progress that counts them.
                if not all(self._get_phase(population, phase) for phase in range(before, phases)):
                    continue
                (self.folder / PROGRESS).mkdir(parents=True, exist_ok=True)
                atomic_write(self.folder / name, [text], synced=False)
                self._pulled[name] = version

    def _get_phase(self, population: str, phase: int) -> bool:
        """Download the records of a phase, and its manifest if it is still there; False without records."""
        paths = CheckpointPaths(self.folder, population)
        if not self._get(paths.records(phase)):
            return False
        self._get(paths.manifest(phase))
        return True

    def _get(self, path: Path) -> bool:
        return self.store.get(str(path.relative_to(self.folder)), path)

    def has_unsent(self) -> bool:
        """Whether a finished phase is here and not at the URL yet."""
        return any((self.folder / PROGRESS).glob("*.unsent"))

    def _is_new(self, name: str) -> bool:
        path = self.folder / name
        return path.is_file() and not name.endswith(_SCRATCH) and self._sent.get(name) != _local_version(path)


def _of_population(population: str) -> Wanted:
    name, records = re.escape(population), CheckpointPaths(Path(), population).records_pattern
    pattern = re.compile(rf"{RECORDS}/{records}|{PROGRESS}/{name}\.json|{CHECKPOINTS}/{name}/[^/]+\.(json|safetensors)")
    return lambda name: pattern.fullmatch(name) is not None


def _phase(name: str) -> int:
    """The phase of a checkpoint's file; -1 for records and progress, which stay."""
    phase = phase_of(Path(name).name) if name.startswith(f"{CHECKPOINTS}/") else None
    return -1 if phase is None else phase


def _local_version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns
