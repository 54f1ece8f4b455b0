"""The records of a tabular study: a folder, or a folder for each of its shards, of

    config.json              the studies, and which shard it is
    records/runs.parquet     its rows of the whole study's, in their order
    provenance.json          command, version, commit, machine, libraries, and the seconds of the sweeps

Step sizes are chosen, and norms recorded, when all shards are there. No checksum covers records: a number that fits is
taken as it is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare._version import __version__
from valueshare.errors import InvalidInput, one_line, without_marks
from valueshare.experiments.tabular import TabularResult, summarize
from valueshare.experiments.tabular_designs import KIND, TabularConfig, TabularStudy
from valueshare.files import write_json
from valueshare.records import write_table
from valueshare.result_files import SizeLimit, Unreadable, read_parquet
from valueshare.runs.launcher_options import Shard, parse_shard
from valueshare.runs.provenance import provenance
from valueshare.schema import Invalid, read_config, read_object, stored_version, validate_as
from valueshare.tabular.rules import check_rows
from valueshare.text import shorten_list

RUNS, ORIGIN = "records/runs.parquet", "provenance.json"
MAX_UPDATES = 10**10  # for the norms of untrusted records: minutes. The largest study of this package has 10^9


class StoredStudy(NamedTuple):
    """A tabular study on disk, or a shard of it."""

    folder: Path
    shard: Shard | None
    studies: tuple[TabularStudy, ...]


def write_records(runs: pl.DataFrame, folder: Path, seconds: float, *, command: str) -> None:
    """Fill the results folder of a study or shard."""
    (folder / RUNS).parent.mkdir()
    # In double precision: a run on its way to 1e100 would be infinite in single.
    write_table(folder / RUNS, runs)
    write_json(folder / ORIGIN, provenance(command) | {"seconds": seconds})


def find_tabular(paths: Sequence[Path]) -> list[StoredStudy]:
    """The tabular study, or all shards of one, in these folders; none where they are something else."""
    by_path = {path: _stored_in(path) for path in paths}
    studies = [each for found in by_path.values() for each in found]
    others = [path for path, found in by_path.items() if not found]
    unsharded = [each for each in studies if each.shard is None]
    if unsharded and len(paths) > 1:
        raise InvalidInput(f"{unsharded[0].folder} is a tabular study: report it alone")
    if studies and others:
        raise InvalidInput(
            f"{studies[0].folder} is a shard of a tabular study and {others[0]} is not: report the shards alone"
        )
    return sorted(studies, key=lambda each: each.shard.number if each.shard else 0)


def _stored_in(path: Path) -> list[StoredStudy]:
    studies = []
    for folder in (path, *sorted(path.glob("shard-*-of-*"))):
        values = read_config(folder, skip_damaged=True) or {}
        if values.get("kind") == KIND and (folder == path or "shard" in values):
            _refuse_other_version(folder, values)
            with _damage_named(folder, "shard" in values):
                config = validate_as(values, TabularConfig)
            studies.append(StoredStudy(folder, parse_shard(config.shard) if config.shard else None, config.studies))
    return studies


def _refuse_other_version(folder: Path, values: Mapping[str, Any]) -> None:
    """Refuse studies that have settings with names that this version does not know."""
    studies = values.get("studies")
    settings = [study for study in studies if isinstance(study, dict)] if isinstance(studies, list) else []
    unknown = sorted(set().union(*settings) - {field.name for field in fields(TabularStudy)})
    if not unknown:
        return
    name, version = unknown[0][:60], stored_version(values)
    if version in (None, __version__):
        raise InvalidInput(f"{folder} is damaged (unknown setting {name}): run its study again with `overwrite = True`")
    raise InvalidInput(
        f"{folder} was written by another version (valueshare {version}), with the setting {name}: read it with that "
        "one, or run its study again with `overwrite = True`"
    )


def stored_result(
    parts: Sequence[StoredStudy], limit: SizeLimit | None = None, *, trusted: bool = False
) -> tuple[TabularResult, dict[str, Any]]:
    """The results of a study and their origin, from its records; shards are the study bit for bit.

    Records that are damaged, and shards that are not all of one study, are refused. Unless they are `trusted`, so are
    studies that need a module imported or a long computation.
    """
    first, limit = parts[0], SizeLimit() if limit is None else limit
    if first.shard is not None:
        _check_shards(parts, first.shard)
    if not trusted:
        _refuse_code_and_long_sweeps(first)
    check_rows(sum(each.rows for each in first.studies), f"read {first.folder} on a machine with more memory")
    tables, origins = [], []
    for each in parts:
        with _damage_named(each.folder, each.shard is not None):
            tables.append(read_parquet(each.folder / RUNS, limit))
            origins.append(read_object(each.folder / ORIGIN))
    with _damage_named(first.folder, first.shard is not None):
        seconds = sum(float(origin["seconds"]) for origin in origins)
        if not 0 < seconds < math.inf:
            raise Invalid(f"its sweeps took {seconds:g} seconds")
        command = str(origins[0]["command"]).removesuffix(f" --shard {first.shard}")
        return summarize(first.studies, pl.concat(tables), seconds), origins[0] | {"command": command}


def _check_shards(parts: Sequence[StoredStudy], first: Shard) -> None:
    """Refuse shards of different studies, one that is there twice, and missing ones."""
    for each in parts[1:]:
        if each.studies != parts[0].studies or each.shard is None or each.shard.of != first.of:
            raise InvalidInput(
                f"{each.folder} is not a shard of the same study as {parts[0].folder}: report the shards of one"
            )
    numbers = [each.shard.number for each in parts if each.shard]
    twice = [each.folder for each, number in zip(parts, numbers, strict=True) if numbers.count(number) > 1]
    if twice:
        raise InvalidInput(f"{twice[0]} and {twice[1]} are the same shard: give one of the two")
    missing = [f"{i}/{first.of}" for i in range(1, first.of + 1) if i not in numbers]
    if missing:
        names = f"{shorten_list(missing, 3)} of {parts[0].folder.parent}"
        raise InvalidInput(f"shard {names} is missing: step sizes are chosen when all are there")


def _refuse_code_and_long_sweeps(study: StoredStudy) -> None:
    """Refuse an environment of a module, and norms that take hours: a results folder may come from others."""
    again = "the `valueshare tabular` command that made it does, given again without `shard`"
    for each in study.studies:
        module, colon, _ = each.env.partition(":")
        if colon:
            raise InvalidInput(
                f"{study.folder}: {each.env!r} needs the module {module!r}, which a report does not import; {again}"
            )
    updates = sum(len(each.k) * each.seeds * each.steps * each.action_copies for each in study.studies)
    if updates > MAX_UPDATES:
        raise InvalidInput(
            f"{study.folder}: its norms take more than {MAX_UPDATES:.0e} timesteps (times action copies), which "
            f"a report does not compute; {again}"
        )


@contextmanager
def _damage_named(folder: Path, shard: bool) -> Iterator[None]:
    """Turn errors of reading, and of numbers that cannot be, into refusals of a folder, which may be a shard's."""
    try:
        yield
    except (
        OSError,
        ArithmeticError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        pl.exceptions.PolarsError,
    ) as error:
        if isinstance(error, InvalidInput) and not isinstance(error, Unreadable):
            raise  # too large
        why = one_line(without_marks(error))
        way = "run this shard again with `overwrite = True`" if shard else "run its study again with `overwrite = True`"
        raise InvalidInput(f"{folder} is damaged ({why}): {way}") from error
