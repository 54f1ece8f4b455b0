"""The files of a tabular study, and the shards that it may be made in.

A shard's folder holds

    config.json              the studies, and which shard it is
    records/runs.parquet     its rows of the whole study's, in their order
    summary.json             timesteps and seconds
    provenance.json          command, version, commit, machine, libraries

Step sizes are chosen, and norms recorded, when all shards are there. No checksum covers records: a number that fits is
taken as it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.experiments.studies import KIND, TabularStudy, studies_of
from valueshare.experiments.tabular import TabularResult, concluded
from valueshare.files import write_json
from valueshare.records import write_table
from valueshare.result_files import SizeLimit, Unreadable, read_parquet
from valueshare.runs.launcher_options import Shard, parse_shard
from valueshare.runs.provenance import provenance
from valueshare.schema import Invalid, read_config, read_object

SUMMARY, NORMS, RUNS = "summary.json", "records/norms.parquet", "records/runs.parquet"
_NORMS = ("norm_q", "norm_u", "norm_z")


class StoredShard(NamedTuple):
    """A shard on disk."""

    folder: Path
    shard: Shard
    config: dict[str, Any]


def stored_result(folder: Path, limit: SizeLimit) -> TabularResult:
    """The results of a folder, from its records; refused where they are damaged."""
    numbers = ("step_reward", "k", "step", *_NORMS, *(f"{name}_error" for name in _NORMS))
    with _damage_named(folder, "run its study again with --overwrite"):
        runs, seconds = _read_runs(folder, limit)
        norms = read_parquet(folder / NORMS, limit).with_columns(pl.col(numbers).cast(pl.Float64))
        if norms.is_empty() or norms.select("k", "step").null_count().sum_horizontal().item():
            raise Invalid("norms are missing")
        return concluded(_studies(read_config(folder) or {}), runs, seconds, norms)


def _studies(config: dict[str, Any]) -> tuple[TabularStudy, ...]:
    try:
        return studies_of(config)
    except InvalidInput as error:  # which does not name the folder
        raise Invalid(str(error)) from error


def _read_runs(folder: Path, limit: SizeLimit) -> tuple[pl.DataFrame, float]:
    """The runs of a study or shard, and the seconds that they took."""
    seconds = float(read_object(folder / SUMMARY)["seconds"])
    return read_parquet(folder / RUNS, limit), seconds


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


def write_shard(runs: pl.DataFrame, folder: Path, timesteps: int, seconds: float, *, command: str) -> None:
    """Fill the results folder of a shard."""
    (folder / RUNS).parent.mkdir()
    write_table(folder / RUNS, runs)
    write_json(folder / "provenance.json", provenance(command))
    write_json(folder / SUMMARY, {"timesteps": timesteps, "seconds": round(seconds, 3)})


def find_shards(paths: Iterable[Path]) -> list[StoredShard]:
    """The shards of a tabular study in these folders; none where they are something else."""
    by_path = {path: _shards_in(path) for path in paths}
    found = [each for own in by_path.values() for each in own]
    others = [path for path, own in by_path.items() if not own]
    if found and others:
        raise InvalidInput(
            f"{found[0].folder} is a shard of a tabular study and {others[0]} is not: report the shards alone"
        )
    return sorted(found, key=lambda each: each.shard.number)


def _shards_in(path: Path) -> list[StoredShard]:
    return [
        StoredShard(folder, parse_shard(config["shard"]), config)
        for folder in (path, *sorted(path.glob("shard-*-of-*")))
        for config in [read_config(folder, skip_damaged=True) or {}]
        if config.get("kind") == KIND and "shard" in config
    ]


def merged(shards: Sequence[StoredShard], limit: SizeLimit | None = None) -> TabularResult:
    """The study that the shards are, bit for bit as without shards."""
    first = shards[0]
    for each in shards[1:]:
        if each.config["studies"] != first.config["studies"] or each.shard.of != first.shard.of:
            raise InvalidInput(
                f"{each.folder} is no shard of the same study as {first.folder}: report the shards of one"
            )
    numbers = [each.shard.number for each in shards]
    twice = [each.folder for each in shards if numbers.count(each.shard.number) > 1]
    if twice:
        raise InvalidInput(f"{twice[0]} and {twice[1]} are the same shard: give one of the two")
    missing = [f"{i}/{first.shard.of}" for i in range(1, first.shard.of + 1) if i not in numbers]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        names = f"{', '.join(missing[:3])}{more} of {first.folder.parent}"
        raise InvalidInput(f"shard {names} is missing: step sizes are chosen when all are there")
    limit = SizeLimit() if limit is None else limit
    parts = []
    for each in shards:
        with _damage_named(each.folder, "run this shard again, --overwrite"):
            parts.append(_read_runs(each.folder, limit))
    with _damage_named(first.folder.parent, "run its shards again, --overwrite"):
        runs, seconds = zip(*parts, strict=True)
        return concluded(_studies(first.config), pl.concat(runs), sum(seconds))
