"""Manifests: which files a checkpoint consists of, and whether they are intact."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from valueshare.errors import InvalidInput
from valueshare.files import file_digest
from valueshare.population.checkpoints.files import Folder
from valueshare.schema import Invalid, Manifest, checked, read_checksummed

# 1 had no frames. 2 was of agents whose target network was copied after the update of the same
# step: to resume them now would mix two orders of events.
FORMAT = 3


class Damaged(Exception):
    """A file of a checkpoint is missing, cut short or changed."""


def is_whole(folder: Folder, phase: int) -> bool:
    """Whether the checkpoint of a phase is there and every checksum of it is right."""
    try:
        verify_all(folder, read_manifest(folder.manifest(phase)))
    except Damaged:
        return False
    return True


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        body = read_checksummed(path)
    except (OSError, Invalid) as error:
        raise Damaged(f"{path.name}: {error}") from error
    if type(body.get("format")) is int and body["format"] > FORMAT:
        raise InvalidInput(f"{path.name} was written by a newer version of valueshare: install that version")
    try:
        manifest = checked(body, Manifest)
    except Invalid as error:  # its checksum is right: it was written so
        raise InvalidInput(f"{path.name} is not a checkpoint manifest: {error}") from error
    if path.name != f"checkpoint-{manifest.phase:06d}.json":
        raise InvalidInput(f"{path.name} is the manifest of phase {manifest.phase}: put it back")
    return body


def verify_all(folder: Folder, body: dict[str, Any]) -> None:
    for name, digest in body["records"].items():
        verify(folder.root / "records" / name, digest)
    for name, digest in body["state"].items():
        verify(folder.checkpoints / name, digest)
    for segment in body["segments"]:
        for name, digest in segment_files(segment).items():
            verify(folder.checkpoints / name, digest)


def verify(path: Path, digest: str) -> None:
    try:
        found = file_digest(path)
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from error
    if found != digest:
        raise Damaged(f"{path.name}: checksum")


def segment_files(segment: Mapping[str, Any]) -> dict[str, str]:
    """The files of a segment and their checksums."""
    return {segment["file"]: segment["digest"], **segment.get("frames", {})}
