"""The records of a run as they are on disk; reading them needs no PyTorch."""

import io
import logging
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import polars as pl

from valueshare import schema
from valueshare.errors import InvalidInput
from valueshare.files import atomic_write, file_digest
from valueshare.result_files import TRUSTED_LIMIT, SizeLimit, Unreadable, read_parquet
from valueshare.text import resume_command

RECORDS, CHECKPOINTS, PROGRESS, TENSORBOARD = "records", "checkpoints", "progress", "tensorboard"
EVALUATIONS = "evaluations.parquet"  # episodes that were played after training
_log = logging.getLogger(__name__)


def read_tables(
    folder: Path, *, skip_damaged: bool = False, limit: SizeLimit | None = None, seconds: bool = False
) -> list[pl.DataFrame]:
    """The records of every finished phase of every population, a table each.

    A phase is finished when a manifest names its files. The records of one that was cut off before that are not read:
    it will be run again. A copy of a run without its checkpoints has no manifests; there every file counts. What is
    read takes from the `limit`. With `seconds`, they have a column of that name: the seconds of training of the
    population until the evaluation, as far as its progress file has them.
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
        elif not skip_damaged:
            raise InvalidInput(
                f"{path} is damaged: {resume_command(folder)} makes it again where a checkpoint before it is intact; "
                "otherwise start the run again in a new folder"
            )
    return tables


def read_progress(folder: Path, population: str) -> schema.Progress:
    """The last progress that the population's worker wrote; all zero where there is none."""
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
        for name, digest in _named_by_newest_manifest(population, warn=warn).items():
            yield folder / RECORDS / name, digest


def _named_by_newest_manifest(population: Path, *, warn: bool) -> dict[str, str]:
    """Every manifest names the records of all phases up to its own, so the newest is enough.

    Where it is damaged, the one before it serves, as it does for the run itself.
    """
    paths = population.glob("checkpoint-*.json")
    for path in sorted(paths, key=lambda path: (len(path.name), path.name), reverse=True):  # by phase: 6 digits or more
        try:
            manifest = schema.validate_as(schema.read_checksummed(path), schema.ManifestRecords)
            if path.name != f"checkpoint-{manifest.phase:06d}.json":
                raise schema.Invalid(f"it is of phase {manifest.phase}")
            if any(not name.startswith(f"{population.name}-") for name in manifest.records):
                raise schema.Invalid("it is of another population")
        except (OSError, schema.Invalid) as error:
            if warn:
                _log.warning("%s is damaged (%s): the phases before it are read", path, error)
        else:
            return manifest.records
    return {}


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
