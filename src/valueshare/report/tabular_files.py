"""The files of a tabular study: its summary and norms, and the shards that it may be made in.

A shard's folder holds

    config.json              the studies, and which shard it is
    records/runs.parquet     its rows of the whole study's, in their order
    summary.json             timesteps and seconds
    provenance.json          command, version, commit, machine, libraries

Step sizes are chosen, and norms recorded, when all shards are there. No checksum covers a summary: a number that fits
is taken as it is.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import polars as pl
from msgspec import Meta, Struct

from valueshare.errors import InvalidInput
from valueshare.experiments.studies import KIND, studies_of
from valueshare.experiments.tabular import TabularResult, concluded
from valueshare.files import write_json
from valueshare.records import write_table
from valueshare.result_files import SizeLimit, Unreadable, read_parquet
from valueshare.runs.launcher_options import Shard, parse_shard
from valueshare.runs.provenance import provenance
from valueshare.schema import Count, Invalid, Positive, checked, read_config, read_object

SUMMARY, NORMS, RUNS = "summary.json", "records/norms.parquet", "records/runs.parquet"
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
_NORMS = ("norm_q", "norm_u", "norm_z")


class Row(Struct, frozen=True):
    """One k of one case at one regime."""

    step_reward: Number | None
    regime: Count
    k: Number
    increase_percent: Number | None
    ci95_low: Number | None
    ci95_high: Number | None
    actions: Positive | None = None  # where the cases differ in their number


class StoredSummary(Struct, frozen=True):
    """The part of summary.json that is drawn."""

    figure: Annotated[list[Row], Meta(min_length=1)]
    figure_held_out: Annotated[list[Row], Meta(min_length=1)]
    notes: list[str] = []


class Summary(NamedTuple):
    """The numbers of a study's main figure."""

    same_seeds: pl.DataFrame
    other_seeds: pl.DataFrame
    measure: str
    notes: tuple[str, ...]


class StoredShard(NamedTuple):
    """A shard on disk."""

    folder: Path
    shard: Shard
    config: dict[str, Any]


def read_summary(folder: Path) -> Summary:
    """The summary of a study; refused where it is damaged."""
    try:
        values = read_object(folder / SUMMARY)
        stored = checked(values, StoredSummary)
        both = stored.figure, stored.figure_held_out
        same, other = (_keys(rows) for rows in both)
        if same != other:
            raise Invalid("its two figures are not of the same k")
        means = [name for name in values["figure"][0] if name.startswith("mean_")]
        if not means:
            raise Invalid("it does not say what was measured")
    except (OSError, Invalid) as error:
        raise _damaged(folder, error) from error
    types = {name: pl.Int64 if name in ("regime", "actions") else pl.Float64 for name in Row.__struct_fields__}
    same_seeds, other_seeds = (pl.DataFrame(msgspec.to_builtins(rows), schema_overrides=types) for rows in both)
    if same_seeds["actions"].null_count():
        same_seeds, other_seeds = same_seeds.drop("actions"), other_seeds.drop("actions")
    return Summary(same_seeds, other_seeds, means[0].removeprefix("mean_"), tuple(stored.notes))


def _keys(rows: Sequence[Row]) -> set[tuple[float | None, int | None, int, float]]:
    """The keys of a figure's rows, each there once; all cases have the same regimes, or its panels would not match."""
    keys = {(row.step_reward, row.actions, row.regime, row.k) for row in rows}
    if len(keys) < len(rows):
        raise Invalid("it has a row twice")
    if len({row.actions is None for row in rows}) > 1:
        raise Invalid("only some of its rows have a number of actions")
    regimes: dict[tuple[float | None, int | None], set[int]] = {}
    for step_reward, actions, regime, _ in keys:
        regimes.setdefault((step_reward, actions), set()).add(regime)
    if len({frozenset(own) for own in regimes.values()}) > 1:
        raise Invalid("its cases have different regimes")
    return keys


def read_norms(folder: Path, limit: SizeLimit) -> pl.DataFrame:
    """The norms along learning; refused where they are damaged."""
    numbers = ("step_reward", "k", "step", *_NORMS, *(f"{name}_error" for name in _NORMS))
    try:
        norms = read_parquet(folder / NORMS, limit).select(pl.col(numbers).cast(pl.Float64))
        if norms.is_empty() or norms.select("k", "step").null_count().sum_horizontal().item():
            raise Invalid("rows are missing")
    except (OSError, Invalid, Unreadable, pl.exceptions.PolarsError) as error:
        raise _damaged(folder, error) from error
    return norms


def _damaged(folder: Path, error: Exception) -> InvalidInput:
    why = " ".join(str(error).split())
    return InvalidInput(f"{folder} is damaged ({why}): run its study again with --overwrite")


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
    runs, seconds = zip(*(_read_shard(each.folder, limit) for each in shards), strict=True)
    return concluded(studies_of(first.config), pl.concat(runs), sum(seconds))


def _read_shard(folder: Path, limit: SizeLimit) -> tuple[pl.DataFrame, float]:
    try:
        seconds = float(read_object(folder / SUMMARY)["seconds"])
        return read_parquet(folder / RUNS, limit), seconds
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        if isinstance(error, InvalidInput) and not isinstance(error, Unreadable):
            raise  # too large
        raise InvalidInput(f"{folder} is damaged: run this shard again, --overwrite") from error
