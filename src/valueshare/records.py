"""The records of a run as they are on disk; reading them needs no PyTorch."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.files import file_digest

RECORDS, CHECKPOINTS = "records", "checkpoints"


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
            named: dict[str, str] = dict(json.loads(path.read_bytes())["records"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # damaged: the one before it serves, as it does for the run itself
        return named
    return {}


def _read(path: Path, digest: str | None) -> pl.DataFrame | None:
    try:
        if digest is not None and file_digest(path) != digest:
            return None
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
