"""The manifests of a population's checkpoints, and the checksums of the files that they name."""

from pathlib import Path

import polars as pl

from valueshare.errors import InvalidInput, one_line
from valueshare.files import file_digest, reason
from valueshare.records import RECORDS, CheckpointPaths, phase_of
from valueshare.result_files import TRUSTED_LIMIT, SizeLimit, Unreadable, read_parquet
from valueshare.schema import FORMAT, WRONG_CHECKSUM, Invalid, Manifest, read_checksummed, validate_as


class Damaged(Exception):
    """A file of a checkpoint is missing, cut short or changed."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file}: {why}")
        self.file, self.why = file, why

    def seen_from(self, manifest: Path) -> str:
        """Why, for a message that names the manifest already."""
        return self.why if self.file == manifest.name else str(self)


def read_manifest(path: Path) -> Manifest:
    try:
        body = read_checksummed(path)
    except OSError as error:
        raise Damaged(path.name, reason(error)) from error
    except Invalid as error:
        raise Damaged(path.name, str(error)) from error
    version = body.get("format")
    if type(version) is int and version != FORMAT:
        other = "a newer" if version > FORMAT else "an earlier"
        raise InvalidInput(f"{path.name} was written by {other} version of valueshare: read it with that version")
    try:
        manifest = validate_as(body, Manifest)
    except Invalid as error:  # its checksum is right: it was written so
        raise InvalidInput(f"{path.name} is not a checkpoint manifest: {error}") from error
    if manifest.phase != phase_of(path.name):
        raise InvalidInput(f"{path.name} is the manifest of phase {manifest.phase}: restore its own file")
    return manifest


def needed_files(manifest: Manifest) -> dict[str, str]:
    """The files in checkpoints/NAME that a manifest needs, with their checksums."""
    files = dict(manifest.state)
    for segment in manifest.segments:
        files |= {segment.file: segment.digest, **segment.frames}
    return files


def is_intact(paths: CheckpointPaths, phase: int) -> bool:
    """Whether the checkpoint of a phase is there and every checksum in it is right."""
    try:
        verify_all(paths, read_manifest(paths.manifest(phase)))
    except Damaged:
        return False
    return True


def verify_all(paths: CheckpointPaths, manifest: Manifest) -> None:
    for name, digest in manifest.records.items():
        verify(paths.root / RECORDS / name, digest)
    for name, digest in needed_files(manifest).items():
        verify(paths.checkpoints / name, digest)


def read_records(paths: CheckpointPaths, manifest: Manifest) -> list[pl.DataFrame]:
    """The records that a manifest names, a table per phase.

    A right checksum says nothing about what a file of an untrusted run folder holds.
    """
    limit = SizeLimit(TRUSTED_LIMIT)
    tables = []
    for name in manifest.records:
        try:
            tables.append(read_parquet(paths.root / RECORDS / name, limit))
        except (OSError, pl.exceptions.PolarsError, Unreadable) as error:
            raise Damaged(name, one_line(error)) from error
    return tables


def verify(path: Path, digest: str) -> None:
    try:
        actual = file_digest(path)
    except OSError as error:
        raise Damaged(path.name, reason(error)) from error
    if actual != digest:
        raise Damaged(path.name, WRONG_CHECKSUM)
