"""Where a population is, as a small file of its run: for displays, and for what it really took.

It is no part of a checkpoint: what is lost of it costs a line on a screen.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import asdict

from valueshare.files import remove_leftovers, write_whole
from valueshare.schema import Invalid, checked, read_object
from valueshare.schema import Progress as Progress  # what is in such a file

PROGRESS = "progress"
WRITE_SECONDS = 1.0


def read_progress(folder: Path, part: str) -> Progress:
    """What the population's worker wrote last; nothing where it has written nothing yet."""
    try:
        return checked(read_object(folder / PROGRESS / f"{part}.json"), Progress)
    except (OSError, Invalid):
        return Progress()


def progress_lock(folder: Path, part: str) -> Path:
    """The file that the population's one worker holds."""
    (folder / PROGRESS).mkdir(exist_ok=True)
    return folder / PROGRESS / f"{part}.lock"


class ProgressFile:
    """Written by the one worker that runs the population, about once a second.

    The caller holds the population's lock and has refused links in the folder.
    """

    def __init__(
        self, folder: Path, part: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = folder / PROGRESS / f"{part}.json"
        self._path.parent.mkdir(exist_ok=True)
        remove_leftovers(self._path.parent, re.compile(re.escape(self._path.name)))
        before = read_progress(folder, part)
        self._earlier, self._attempt = before.seconds, before.attempts + 1
        self._clock = clock
        self._began = clock()
        self._due = self._began
        self._phases = before.phases
        self.write(before.step)  # an attempt counts from its beginning

    def is_due(self) -> bool:
        return self._clock() >= self._due

    def write(self, step: int, phases: int | None = None) -> None:
        """Not synced, but whole: a reader finds this one or the one before."""
        if phases is not None:
            self._phases = phases
        now = self._clock()
        self._due = now + WRITE_SECONDS
        seconds = round(self._earlier + now - self._began, 3)
        values = asdict(Progress(step, self._phases, seconds, self._attempt))
        write_whole(self._path, [json.dumps(values).encode()], synced=False)
