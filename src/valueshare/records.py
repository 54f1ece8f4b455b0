"""The files of a run folder: their names, and reading the records in them; PyTorch is not needed for it."""

import io
import logging
import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from valueshare import schema
from valueshare.errors import InvalidInput
from valueshare.files import atomic_write, file_digest, reason
from valueshare.result_files import TRUSTED_LIMIT, SizeLimit, Unreadable, read_parquet
from valueshare.text import resume_command

RECORDS, CHECKPOINTS, PROGRESS, TENSORBOARD = "records", "checkpoints", "progress", "tensorboard"
AGENTS = "agents.parquet"
EVALUATIONS = "evaluations.parquet"  # episodes that were played after training
NAMES = (RECORDS, CHECKPOINTS, PROGRESS, TENSORBOARD, AGENTS, EVALUATIONS)
MANIFEST = r"checkpoint-\d{6,}\.json"  # a regular expression
# The names of files in checkpoints/NAME, as `CheckpointPaths` makes them.
CHECKPOINT_FILE = re.compile(
    rf"{MANIFEST}|(state|replay)-\d{{6,}}\.safetensors|frames-\d{{6,}}-\d{{4,}}\.safetensors", re.ASCII
)
_log = logging.getLogger(__name__)


class CheckpointPaths(NamedTuple):
    """Paths of the files of one population of a run."""

    root: Path
    name: str

    @property
    def checkpoints(self) -> Path:
        return self.root / CHECKPOINTS / self.name

    def manifest(self, phase: int) -> Path:
        return self.checkpoints / f"checkpoint-{phase:06d}.json"

    def manifests(self) -> list[Path]:
        """The manifests that are there, newest first."""
        manifests = self.checkpoints.glob("checkpoint-*.json")
        return sorted(manifests, key=lambda path: phase_of(path.name) or 0, reverse=True)

    def state(self, phase: int) -> Path:
        return self.checkpoints / f"state-{phase:06d}.safetensors"

    def replay(self, phase: int) -> Path:
        return self.checkpoints / f"replay-{phase:06d}.safetensors"

    def frames(self, phase: int, number: int) -> Path:
        return self.checkpoints / f"frames-{phase:06d}-{number:04d}.safetensors"

    def records(self, phase: int) -> Path:
        return self.root / RECORDS / f"{self.name}-{phase:06d}.parquet"

    def none_is_intact(self, why: str) -> InvalidInput:
        """The refusal of a population whose every checkpoint is damaged; `why` is of the newest."""
        again = "start the run again in a new folder"
        return InvalidInput(f"no checkpoint in {self.checkpoints} is intact ({why}): {again}")

    @property
    def records_pattern(self) -> str:
        """A regular expression for the names of `records`."""
        return rf"{re.escape(self.name)}-\d{{6,}}\.parquet"


def phase_of(name: str) -> int | None:
    """The phase of a file in checkpoints/NAME; None for a file that we did not write."""
    return int(name.split("-")[1].partition(".")[0]) if CHECKPOINT_FILE.fullmatch(name) else None


def read_tables(
    folder: Path, *, skip_damaged: bool = False, limit: SizeLimit | None = None, seconds: bool = False
) -> list[pl.DataFrame]:
    """The records of every finished phase of every population, a table each.

    A phase is finished when a manifest names its files. The records of one that was cut off before that are not read:
    it will be run again. With `skip_damaged`, nor are damaged ones that a resumption makes again. A copy of a run
    without its checkpoints has no manifests; there every file counts. What is read takes from the `limit`. With
    `seconds`, they have a column of that name: the seconds of training of the population until the evaluation, as far
    as its progress file has them.
    """
    tables = []
    times = cache(partial(_evaluation_times, folder))
    limit = SizeLimit(TRUSTED_LIMIT) if limit is None else limit
    for path, digest in _files(folder, warn=not skip_damaged):
        table = _read(path, digest, limit)
        if table is not None:
            known = times(path.stem.rpartition("-")[0]) if seconds else {}  # of POPULATION-PHASE.parquet
            if known and table.schema.get("step") == pl.Int64:
                of_step = pl.col("step").replace_strict(known, default=None, return_dtype=pl.Float64)
                table = table.with_columns(seconds=of_step)
            tables.append(table)
        elif not _is_made_again(folder, path):
            has_checkpoints = any((folder / CHECKPOINTS).glob("*/checkpoint-*.json"))
            playable = "; its agents can still be played" if has_checkpoints else ""
            raise InvalidInput(
                f"{path} is damaged, and no checkpoint is from before it: start the run again in a new folder{playable}"
            )
        elif not skip_damaged:
            raise InvalidInput(f"{path} is damaged: {resume_command(folder)} makes it again")
    return tables


def read_progress(folder: Path, population: str) -> schema.Progress:
    """The last progress that the population's worker wrote; all zero without one."""
    try:
        return schema.validate_as(schema.read_object(folder / PROGRESS / f"{population}.json"), schema.Progress)
    except (OSError, schema.Invalid):
        return schema.Progress()


def write_table(path: Path, table: pl.DataFrame) -> str:
    """Write a table as Parquet, atomically; its checksum. A full disk is an `OSError`."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return atomic_write(path, [buffer.getbuffer()])


def _files(folder: Path, *, warn: bool) -> Iterator[tuple[Path, str | None]]:
    """The files that count, each with its checksum where one is known."""
    if not (folder / CHECKPOINTS).is_dir():
        yield from ((path, None) for path in sorted((folder / RECORDS).glob("*.parquet")))
        return
    for population in sorted((folder / CHECKPOINTS).iterdir()):
        for name, digest in _named_by_newest_manifest(CheckpointPaths(folder, population.name), warn=warn).items():
            yield folder / RECORDS / name, digest


def _named_by_newest_manifest(paths: CheckpointPaths, *, warn: bool) -> dict[str, str]:
    """Every manifest names the records of all phases up to its own, so the newest is enough.

    Where it is damaged, the one before it serves, as it does for the run itself. Without any that can be read, nothing
    tells which records are intact: that is refused, as by `resume`, unless it is left to the caller by `warn = False`.
    """
    manifests, damages = paths.manifests(), []
    for path in manifests:
        try:
            manifest = schema.validate_as(schema.read_checksummed(path), schema.ManifestRecords)
            if manifest.phase != phase_of(path.name):
                raise schema.Invalid(f"it is of phase {manifest.phase}")
            if any(not name.startswith(f"{paths.name}-") for name in manifest.records):
                raise schema.Invalid("it is of another population")
        except (OSError, schema.Invalid) as error:
            damages.append((path, reason(error) if isinstance(error, OSError) else str(error)))
        else:
            if warn:
                for damaged in damages:
                    _log.warning("%s is damaged (%s): the phases before it are read", *damaged)
            return manifest.records
    if damages and paths.manifests()[:1] != manifests[:1]:  # training has replaced them since
        return _named_by_newest_manifest(paths, warn=warn)
    if damages and warn:
        newest, why = damages[0]
        records = f"; a copy of {paths.root} without {CHECKPOINTS} can still be reported"
        raise InvalidInput(f"{paths.none_is_intact(f'{newest.name}: {why}')}{records}")
    return {}


def _is_made_again(folder: Path, path: Path) -> bool:
    """Whether a resumption runs the phase of a damaged file again: there is a checkpoint from before it."""
    population, _, phase = path.stem.rpartition("-")
    earlier = (phase_of(manifest.name) for manifest in CheckpointPaths(folder, population).manifests())
    return phase.isdecimal() and any(found is not None and found < int(phase) for found in earlier)


def _read(path: Path, digest: str | None, limit: SizeLimit) -> pl.DataFrame | None:
    try:
        if digest is not None and file_digest(path) != digest:
            return None
        return read_parquet(path, limit)
    except (OSError, pl.exceptions.PolarsError, Unreadable):
        return None


def _evaluation_times(folder: Path, population: str) -> dict[int, float]:
    """The seconds until each evaluation of a population, by step; step 0 is at 0 s. Empty where none is known."""
    known = dict(read_progress(folder, population).evaluations)
    return {0: 0.0, **known} if known else {}
