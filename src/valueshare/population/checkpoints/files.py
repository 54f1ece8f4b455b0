"""The files of one population in a run folder."""

import re
from pathlib import Path
from typing import NamedTuple

# The names of files in checkpoints/NAME, as `Folder` makes them.
OWN_NAMES = re.compile(
    r"checkpoint-\d{6,}\.json|(state|replay)-\d{6,}\.safetensors"
    r"|frames-\d{6,}-\d{4,}\.safetensors",
    re.ASCII,
)


class Folder(NamedTuple):
    """Where one population of a run keeps its files."""

    root: Path
    name: str

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints" / self.name

    def manifest(self, phase: int) -> Path:
        return self.checkpoints / f"checkpoint-{phase:06d}.json"

    def state(self, phase: int) -> Path:
        return self.checkpoints / f"state-{phase:06d}.safetensors"

    def replay(self, phase: int) -> Path:
        return self.checkpoints / f"replay-{phase:06d}.safetensors"

    def frames(self, phase: int, number: int) -> Path:
        return self.checkpoints / f"frames-{phase:06d}-{number:04d}.safetensors"

    def records(self, phase: int) -> Path:
        return self.root / "records" / f"{self.name}-{phase:06d}.parquet"


def phase_of(name: str) -> int | None:
    """The phase of a file in checkpoints/NAME; None for a file that we did not write."""
    if not OWN_NAMES.fullmatch(name):
        return None
    return int(name.split("-")[1].partition(".")[0])
