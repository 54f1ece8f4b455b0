"""A run at an address: a working copy on the local disk, and what of it the store has.

A phase is finished when its manifest is at the address, which comes after the files that it names.
Whoever runs a population has a copy of it: the driver with the local engine, and each worker of a
cluster its own.
"""

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from valueshare.files import write_whole
from valueshare.runs.progress import PROGRESS, read_progress
from valueshare.runs.storage.places import Url
from valueshare.runs.storage.stores import Store, Unreachable
from valueshare.schema import CONFIG

Wanted = Callable[[str], bool]

FIRST_SENT = ("agents.parquet", "provenance.json")  # of a new run, and then its configuration
PROGRESS_SECONDS = 5.0  # between looks at progress from afar

# A store's names become paths: nothing may lead out of the folder.
_PLAIN = re.compile(r"(?!\.\.?(/|$))[\w.+,=@ -]+(/(?!\.\.?(/|$))[\w.+,=@ -]+)*")
# What reading a run needs, wherever it lies: all but states and replay.
_SMALL = re.compile(
    r"(.*/)?((config|provenance|summary)\.json|agents\.parquet|records/[^/]+\.parquet"
    rf"|checkpoints/[^/]+/checkpoint-\d+\.json|{PROGRESS}/[^/]+\.json)"
)
_CHANGING = re.compile(rf"(.*/)?(provenance\.json|{PROGRESS}/[^/]+\.json)")
_PROGRESS = re.compile(rf"{PROGRESS}/[\w-]+\.json")  # of one population
_PHASE = re.compile(r"-(\d{6})")
_MANIFEST = re.compile(r".*/checkpoint-\d+\.json")
_SCRATCH = (".partial", ".lock", ".unsent")


def is_small(name: str) -> bool:
    return _SMALL.fullmatch(name) is not None


class Copy:
    """A folder, and what the store at an address has of it."""

    def __init__(self, folder: Path, url: Url) -> None:
        self.folder, self.url = folder, url
        self.store = Store(url)
        self._sent: dict[str, tuple[int, int]] = {}  # files as they are at both places
        self._seen: dict[str, str] = {}  # stamps of progress
        self._due = 0.0

    def pull(self, wanted: Wanted) -> None:
        """Fetch the files that are not here, or are others; those that are here are then known."""
        for name, size in self.store.sizes().items():
            if wanted(name) and _PLAIN.fullmatch(name):
                path = self.folder / name
                is_other = _size(path) != size or _CHANGING.fullmatch(name)
                if not is_other or self.store.get(name, path):  # else a later phase replaced it
                    self._sent[name] = _stamp(path)

    def push(self, wanted: Wanted = lambda name: True) -> None:
        """Send what is new here: data first, then manifests, and last what says that it is a run.

        Nothing of a run counts before its configuration is there, nor a phase before its manifest.
        """
        here = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*")]
        new = [name for name in here if wanted(name) and self._is_new(name)]
        for name in sorted(new, key=lambda name: (name == CONFIG, _is_manifest(name), name)):
            stamp = _stamp(self.folder / name)
            self.store.put(self.folder / name, name)
            self._sent[name] = stamp

    def pull_part(self, part: str, phase: int | None = None) -> None:
        """What a population needs to go on; with a phase, what that phase's checkpoint names."""
        own = _of_part(part)
        self.pull(
            lambda name: (
                name in (CONFIG, "agents.parquet")
                or (own(name) and (phase is None or is_small(name) or _phase(name) == phase))
            )
        )

    def pull_weights(self, part: str) -> None:
        """A population's weights, and what tells which are the newest."""
        own = _of_part(part)
        self.pull(lambda name: own(name) and ("/state-" in name or _is_manifest(name)))

    def push_part(self, part: str) -> None:
        """Send a finished phase; then delete what is no longer here and older than it.

        A worker that was given up for lost and still runs deletes nothing that a later phase needs:
        what its own phase can do without, later ones can too.
        """
        own, mark = _of_part(part), self.folder / PROGRESS / f"{part}.unsent"
        mark.parent.mkdir(exist_ok=True)
        mark.touch()  # another process may have to tell
        self.push(own)
        mark.unlink()
        phases = {name: _phase(name) for name in self._sent if own(name)}
        newest = max(phases.values(), default=0)
        for name, phase in phases.items():
            if 0 <= phase < newest and not (self.folder / name).exists():
                with suppress(Unreachable):  # it is in nobody's way
                    self.store.delete(name)
                del self._sent[name]
        self._due = 0.0  # the display shall know

    def push_progress(self, part: str) -> None:
        """Now and then, and never in the way: it is for displays."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + PROGRESS_SECONDS
        with suppress(OSError):
            file = f"{PROGRESS}/{part}.json"
            self.store.write(file, (self.folder / file).read_bytes(), patient=False)

    def pull_news(self, *, at_once: bool = False) -> None:
        """Progress of all populations, and the records of the phases that have ended since."""
        now = time.monotonic()
        if now < self._due and not at_once:
            return
        self._due = now + PROGRESS_SECONDS
        with suppress(Unreachable):  # the next look may do
            for name, stamp in self.store.stamps(PROGRESS).items():
                if self._seen.get(name) == stamp or not _PROGRESS.fullmatch(name):
                    continue
                part = Path(name).stem
                before = read_progress(self.folder, part).phases
                text = self.store.read(name) or b""
                if (phases := _phases(text)) is None:
                    continue  # it is being written
                for phase in range(before, phases):
                    self._get(f"records/{part}-{phase:06d}.parquet")
                    self._get(f"checkpoints/{part}/checkpoint-{phase:06d}.json")  # if still there
                _write(self.folder / name, text)
                self._seen[name] = stamp

    def has_unsent(self) -> bool:
        """Whether a finished phase is here and not at the address."""
        return any((self.folder / PROGRESS).glob("*.unsent"))

    def _get(self, name: str) -> None:
        if not (self.folder / name).exists():
            self.store.get(name, self.folder / name)

    def _is_new(self, name: str) -> bool:
        path = self.folder / name
        return (
            path.is_file() and not name.endswith(_SCRATCH) and self._sent.get(name) != _stamp(path)
        )


def _phases(text: bytes) -> int | None:
    """How many are finished, by what a worker has written of itself."""
    try:
        return int(json.loads(text)["phases"])
    except (ValueError, KeyError, TypeError):
        return None


def _of_part(part: str) -> Wanted:
    pattern = re.compile(
        rf"records/{re.escape(part)}-\d{{6}}\.parquet|{PROGRESS}/{re.escape(part)}\.json"
        rf"|checkpoints/{re.escape(part)}/[^/]+\.(json|safetensors)"
    )
    return lambda name: pattern.fullmatch(name) is not None


def _phase(name: str) -> int:
    """Of which phase a file of a checkpoint is; -1 for records and progress, which stay."""
    found = _PHASE.search(name.rpartition("/")[2])
    return int(found[1]) if found and name.startswith("checkpoints/") else -1


def _is_manifest(name: str) -> bool:
    return _MANIFEST.fullmatch(name) is not None


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _stamp(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [data], synced=False)
