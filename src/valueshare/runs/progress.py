"""The progress of a population as a small file of its run, for displays and the time it took.

It is not in checkpoints, and may be lost without harm.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from valueshare.files import atomic_write, remove_temporary_files
from valueshare.records import PROGRESS, read_progress
from valueshare.schema import Progress

WRITE_SECONDS = 1.0


def progress_lock(folder: Path, population: str) -> Path:
    """The file that the population's one worker locks."""
    (folder / PROGRESS).mkdir(exist_ok=True)
    return folder / PROGRESS / f"{population}.lock"


def reset_progress(folder: Path, population: str, step: int, phases: int) -> None:
    """Write that `phases` phases are finished, until this step; the time and attempts stay."""
    before = read_progress(folder, population)
    evaluations = tuple(entry for entry in before.evaluations if entry[0] <= step)
    (folder / PROGRESS).mkdir(exist_ok=True)
    progress = Progress(step, phases, before.seconds, before.attempts, evaluations)
    _write(folder / PROGRESS / f"{population}.json", progress)


def remove_partial_progress(folder: Path, population: str) -> None:
    """Delete the partial progress file of a killed process; the caller holds the population's lock."""
    remove_temporary_files(folder / PROGRESS, re.compile(re.escape(f"{population}.json")))


def _write(path: Path, progress: Progress) -> None:
    """Write the file atomically, but not synced: readers find this version or the one before."""
    atomic_write(path, [msgspec.json.encode(progress)], synced=False)


class ProgressFile:
    """Writes the progress file about once a second; the caller holds the population's lock and has refused links."""

    def __init__(self, folder: Path, population: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = folder / PROGRESS / f"{population}.json"
        self._path.parent.mkdir(exist_ok=True)
        remove_partial_progress(folder, population)
        before = read_progress(folder, population)
        self._earlier, self._attempt = before.seconds, before.attempts + 1
        self._clock = clock
        self._began = clock()
        self._due = self._began
        self._phases, self._evaluations = before.phases, before.evaluations
        self._step = 0
        self.write(before.step)  # an attempt counts from its start

    def is_due(self) -> bool:
        return self._clock() >= self._due

    def write(self, step: int, phases: int | None = None, *, evaluated: bool = False) -> None:
        """Write the step; `evaluated`: an evaluation there has just ended, and replaces that of an earlier attempt."""
        if phases is not None:  # the next phase may have begun before the checkpoint of this one was written
            self._phases, step = phases, max(step, self._step)
        self._step = step
        now = self._clock()
        self._due = now + WRITE_SECONDS
        seconds = round(self._earlier + now - self._began, 3)
        if evaluated:
            earlier = (entry for entry in self._evaluations if entry[0] < step)
            self._evaluations = (*earlier, (step, seconds))
        _write(self._path, Progress(step, self._phases, seconds, self._attempt, self._evaluations))
