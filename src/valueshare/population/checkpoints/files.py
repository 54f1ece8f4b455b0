"""The files of one population in a run folder: their names, manifests and checksums."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from valueshare.errors import InvalidInput
from valueshare.files import file_digest
from valueshare.schema import FORMAT, Invalid, Manifest, read_checksummed, validate_as

# The names of files in checkpoints/NAME, as `CheckpointPaths` makes them.
OWN_NAMES = re.compile(
    r"checkpoint-\d{6,}\.json|(state|replay)-\d{6,}\.safetensors|frames-\d{6,}-\d{4,}\.safetensors", re.ASCII
)


class Damaged(Exception):
    """A file of a checkpoint is missing, cut short or changed."""


class CheckpointPaths(NamedTuple):
    """Paths of the files of one population of a run."""

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


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        body = read_checksummed(path)
    except (OSError, Invalid) as error:
        raise Damaged(f"{path.name}: {error}") from error
    version = body.get("format")
    if type(version) is int and version != FORMAT:
        other = "a newer" if version > FORMAT else "an earlier"
        raise InvalidInput(f"{path.name} was written by {other} version of valueshare: read it with that version")
    try:
        manifest = validate_as(body, Manifest)
    except Invalid as error:  # its checksum is right: it was written so
        raise InvalidInput(f"{path.name} is not a checkpoint manifest: {error}") from error
    if path.name != f"checkpoint-{manifest.phase:06d}.json":
        raise InvalidInput(f"{path.name} is the manifest of phase {manifest.phase}: put it back")
    return body


def needed_files(body: dict[str, Any]) -> dict[str, str]:
    """The files in checkpoints/NAME that a manifest needs, with their checksums."""
    files = dict(body["state"])
    for segment in body["segments"]:
        files |= {segment["file"]: segment["digest"], **segment.get("frames", {})}
    return files


def is_whole(paths: CheckpointPaths, phase: int) -> bool:
    """Whether the checkpoint of a phase is there and every checksum of it is right."""
    try:
        verify_all(paths, read_manifest(paths.manifest(phase)))
    except Damaged:
        return False
    return True


def verify_all(paths: CheckpointPaths, body: dict[str, Any]) -> None:
    for name, digest in body["records"].items():
        verify(paths.root / "records" / name, digest)
    for name, digest in needed_files(body).items():
        verify(paths.checkpoints / name, digest)


def verify(path: Path, digest: str) -> None:
    try:
        actual = file_digest(path)
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from error
    if actual != digest:
        raise Damaged(f"{path.name}: its checksum does not match")
