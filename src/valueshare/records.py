"""The records of a run as they are on disk; reading them needs no PyTorch."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from valueshare import schema
from valueshare.errors import InvalidInput
from valueshare.files import file_digest, write_whole

RECORDS, CHECKPOINTS, TENSORBOARD = "records", "checkpoints", "tensorboard"
FORMAT = 1  # of the run folder; a newer one is refused


def check_format(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a run folder that a newer version wrote; `config` is what its config.json says."""
    found = config.get("format")
    if type(found) is not int:
        raise InvalidInput(
            f"{folder / 'config.json'} is damaged: its format is {found!r}, not {FORMAT}; put it "
            "back as it was"
        )
    if found > FORMAT:
        raise InvalidInput(
            f"{folder} was written by a newer valueshare ({config.get('valueshare')}), format "
            f"{found}; this one reads up to {FORMAT}: upgrade valueshare"
        )


def run_config(folder: Path) -> dict[str, Any] | None:
    """The settings of a run folder, None where none are; damaged and newer ones are refused."""
    values = schema.run_config(folder)
    if values is not None and "format" in values:  # folders that others made in this form have none
        check_format(folder, values)
    return values


def read_tables(folder: Path, *, skip_damaged: bool = False) -> list[pl.DataFrame]:
    """The records of every finished phase of every population, a table each.

    A phase is finished when a manifest names its files. The records of one that was cut off before
    that are not read: it will be run again. A copy of a run without its checkpoints has no
    manifests; there every file counts.
    """
    tables = []
    for path, digest in _files(folder):
        table = _read(path, digest)
        if table is not None:
            tables.append(table)
        elif not skip_damaged:
            raise InvalidInput(
                f"{path} is damaged: valueshare resume {folder} makes it again where a checkpoint "
                "before it is whole; otherwise start the run again in a new folder"
            )
    return tables


def write_table(path: Path, table: pl.DataFrame) -> str:
    """A table as Parquet, whole or not at all; its checksum. A full disk is an `OSError`."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return write_whole(path, [buffer.getbuffer()])


def _files(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """The files that count, each with its checksum where one is known."""
    if not (folder / CHECKPOINTS).is_dir():
        yield from ((path, None) for path in sorted((folder / RECORDS).glob("*.parquet")))
        return
    for population in sorted((folder / CHECKPOINTS).iterdir()):
        for name, digest in _named_by_newest_manifest(population).items():
            yield folder / RECORDS / name, digest


def _named_by_newest_manifest(population: Path) -> dict[str, str]:
    """Every manifest names the records of all phases up to its own, so the newest is enough."""
    for path in sorted(population.glob("checkpoint-*.json"), reverse=True):
        try:
            return schema.checked(schema.read_object(path), schema.ManifestRecords).records
        except (OSError, schema.Invalid):
            continue  # damaged: the one before it serves, as it does for the run itself
    return {}


def _read(path: Path, digest: str | None) -> pl.DataFrame | None:
    try:
        if digest is not None and file_digest(path) != digest:
            return None
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
