"""The records of a tabular study: a folder, or a folder for each of its shards, of

    config.json              the studies, and which shard it is
    records/runs.parquet     its rows of the whole study's, in their order
    provenance.json          command, version, commit, machine, libraries, and the seconds of the sweeps

Step sizes are chosen, and norms recorded, when all shards are there. No checksum covers records: a number that fits is
taken as it is.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.analysis.tidy import listed
from valueshare.errors import InvalidInput
from valueshare.experiments.studies import KIND, studies_of
from valueshare.experiments.tabular import TabularResult, concluded
from valueshare.files import write_json
from valueshare.records import write_table
from valueshare.result_files import SizeLimit, Unreadable, read_parquet
from valueshare.runs.launcher_options import Shard, parse_shard
from valueshare.runs.provenance import provenance
from valueshare.schema import Invalid, read_config, read_object

RUNS, ORIGIN = "records/runs.parquet", "provenance.json"


class StoredStudy(NamedTuple):
    """A tabular study on disk, or a shard of it."""

    folder: Path
    shard: Shard | None
    config: dict[str, Any]


def write_records(runs: pl.DataFrame, folder: Path, seconds: float, *, command: str) -> None:
    """Fill the results folder of a study or shard."""
    (folder / RUNS).parent.mkdir()
    # In double precision: a run on its way to 1e100 would be infinite in single.
    write_table(folder / RUNS, runs)
    write_json(folder / ORIGIN, provenance(command) | {"seconds": seconds})


def find_tabular(paths: Sequence[Path]) -> list[StoredStudy]:
    """The tabular study, or all shards of one, in these folders; none where they are something else."""
    found = [each for path in paths for each in _stored_in(path)]
    others = [path for path in paths if not _stored_in(path)]
    whole = [each for each in found if each.shard is None]
    if whole and len(paths) > 1:
        raise InvalidInput(f"{whole[0].folder} is a tabular study: report it alone")
    if found and others:
        raise InvalidInput(
            f"{found[0].folder} is a shard of a tabular study and {others[0]} is not: report the shards alone"
        )
    return sorted(found, key=lambda each: each.shard.number if each.shard else 0)


def _stored_in(path: Path) -> list[StoredStudy]:
    configs = {
        folder: read_config(folder, skip_damaged=True) or {} for folder in (path, *sorted(path.glob("shard-*-of-*")))
    }
    return [
        StoredStudy(folder, parse_shard(config["shard"]) if "shard" in config else None, config)
        for folder, config in configs.items()
        if config.get("kind") == KIND and (folder == path or "shard" in config)
    ]


def stored_result(parts: Sequence[StoredStudy], limit: SizeLimit | None = None) -> tuple[TabularResult, dict[str, Any]]:
    """The results of a study and their origin, from its records; shards are the study bit for bit.

    Records that are damaged, and shards that are not all of one study, are refused.
    """
    first, limit = parts[0], SizeLimit() if limit is None else limit
    way = "run its study again with --overwrite"
    if first.shard is not None:
        _check_shards(parts, first.shard)
        way = "run this shard again, --overwrite"
    tables, origins = [], []
    for each in parts:
        with _damage_named(each.folder, way):
            tables.append(read_parquet(each.folder / RUNS, limit))
            origins.append(read_object(each.folder / ORIGIN))
    with _damage_named(first.folder, way):
        seconds = sum(float(origin["seconds"]) for origin in origins)
        if not 0 < seconds < math.inf:
            raise Invalid(f"its sweeps took {seconds:g} seconds")
        command = str(origins[0]["command"]).removesuffix(f" --shard {first.shard}")
        try:
            studies = studies_of(first.config)
        except InvalidInput as error:  # which does not name the folder
            raise Invalid(str(error)) from error
        return concluded(studies, pl.concat(tables), seconds), origins[0] | {"command": command}


def _check_shards(parts: Sequence[StoredStudy], first: Shard) -> None:
    """Refuse shards of different studies, one that is there twice, and missing ones."""
    for each in parts[1:]:
        if each.config["studies"] != parts[0].config["studies"] or each.shard is None or each.shard.of != first.of:
            raise InvalidInput(
                f"{each.folder} is not a shard of the same study as {parts[0].folder}: report the shards of one"
            )
    numbers = [each.shard.number for each in parts if each.shard]
    twice = [each.folder for each, number in zip(parts, numbers, strict=True) if numbers.count(number) > 1]
    if twice:
        raise InvalidInput(f"{twice[0]} and {twice[1]} are the same shard: give one of the two")
    missing = [f"{i}/{first.of}" for i in range(1, first.of + 1) if i not in numbers]
    if missing:
        names = f"{listed(missing, 3)} of {parts[0].folder.parent}"
        raise InvalidInput(f"shard {names} is missing: step sizes are chosen when all are there")


@contextmanager
def _damage_named(folder: Path, way: str) -> Iterator[None]:
    """Turn errors of reading, and of numbers that cannot be, into refusals of a folder."""
    try:
        yield
    except (OSError, AttributeError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        if isinstance(error, InvalidInput) and not isinstance(error, Unreadable):
            raise  # too large
        why = " ".join(str(error).split())
        raise InvalidInput(f"{folder} is damaged ({why}): {way}") from error
