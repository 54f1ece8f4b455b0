"""The tidy table that all statistics start from, and notes on missing values.

A row is one run at one evaluation: `env, algorithm, k, seed, step, score` and other metrics. Ragged tables are normal:
seeds that are missing, curves that are shorter, evaluations without a finished episode. All values are used, and
missing ones are noted.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from valueshare.algorithm_info import k_text
from valueshare.errors import InvalidInput
from valueshare.population.settings import PER_AGENT
from valueshare.text import shorten_list

CI95 = ("ci95_low", "ci95_high")  # the columns of a 95 % interval
MIN_SEEDS = 3  # of either side of a comparison, or of either half of the seeds: fewer have no interval in reports
VARIANT = ("algorithm", "k")  # the columns that are compared, unless the caller names others
AGENT_SETTINGS = PER_AGENT
NAMES, NUMBERS = ("env", "algorithm"), ("k", "seed", "step", "score")  # columns by their types
# The columns that identify a run, where a table has them.
RUN_COLUMNS = ("env", *VARIANT, *AGENT_SETTINGS, "optimizer", "seed")
ONE_SEED = ": one seed, no interval"  # after the name of a group
Selection = str | Mapping[str, object]  # an algorithm's name, or columns with their values


class Estimate(NamedTuple):
    """A table of numbers, and notes on values that are left out."""

    table: pl.DataFrame
    notes: tuple[str, ...]


def require(table: pl.DataFrame, *columns: str) -> None:
    """Refuse a table that lacks one of these columns, or has it in a type that it cannot have."""
    for name in columns:
        if name not in table.columns:
            raise InvalidInput(f"there is no column {name!r}: choose one of {', '.join(table.columns)}")
        kind = table.schema[name]
        if name in NUMBERS and not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
            raise InvalidInput(f"the column {name!r} is of type {kind}: convert it to numbers, like pl.Float64")
        if name in NAMES and not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
            raise InvalidInput(f"the column {name!r} is of type {kind}: convert it to pl.String")


def finite(table: pl.DataFrame, column: str) -> pl.DataFrame:
    """The table with null where the column is not a finite number."""
    value = pl.col(column).cast(pl.Float64)
    return table.with_columns(pl.when(value.is_finite()).then(value).alias(column))


def group_columns(table: pl.DataFrame, by: Sequence[str] | None = None) -> tuple[str, ...]:
    """The columns to group by: the caller's, or the columns of `VARIANT` that the table has."""
    return tuple(by) if by is not None else tuple(name for name in VARIANT if name in table.columns)


def select(table: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The rows of one algorithm: by its name, or by columns and their values."""
    wanted = {"algorithm": selection} if isinstance(selection, str) else dict(selection)
    require(table, *wanted)
    try:
        rows = table.filter(*(pl.col(name) == value for name, value in wanted.items()))
    except pl.exceptions.PolarsError:  # a name where a number is wanted, say
        rows = table.clear()
    if rows.is_empty():
        known = table.select(group_columns(table)).unique().sort(group_columns(table)).to_dicts()
        choices = "; ".join(group_label(row) for row in known)
        raise InvalidInput(f"there are no runs of {group_label(wanted)}: choose one of {choices}")
    return rows


def group_label(row: Mapping[str, object]) -> str:
    """A group in a few words: ib-dqn k=4."""
    parts = [str(row["algorithm"])] if "algorithm" in row else []
    for name, value in row.items():
        if name != "algorithm":
            number = k_text if name == "k" else "{:g}".format
            parts.append(f"{name}={number(value) if isinstance(value, float) else value}")
    return " ".join(parts) or "all runs"


def selection_name(selection: Selection) -> str:
    """The name of one side of a comparison."""
    return selection if isinstance(selection, str) else group_label(selection)


def group_values(table: pl.DataFrame, by: Sequence[str], column: str) -> Estimate:
    """The finite values of each group, each run once, and notes on what is missing.

    Returns `*by, values, sizes, games, runs, left_out`, sorted by `by`: `values` are in the order of games, `sizes` the
    runs of each game.
    `left_out` counts runs without a value. The expected number is that of the fullest group: for each environment, the
    most runs that any group has, at any step.
    """
    by = tuple(by)
    require(table, *by, "env", "seed", column)
    if table.is_empty():
        raise InvalidInput("the table has no rows: there is nothing to summarise")
    _refuse_duplicate_runs(table, by)
    table = finite(table, column)
    games = (
        table.drop_nulls(column)
        .sort("env", "seed")
        .group_by(*dict.fromkeys((*by, "env")))
        .agg(pl.col(column).alias("values"))
        .with_columns(sizes=pl.col("values").list.len().cast(pl.Int64))
        .sort(*by, "env")
    )
    if games.is_empty():
        raise InvalidInput(f"no run has a value of {column!r}: there is nothing to summarise")
    group_keys = [name for name in by if name not in ("step", "env")]
    seeds = table.group_by(*group_keys, "env").agg(pl.col("seed").n_unique().cast(pl.Int64).alias("there"))
    expected = seeds.group_by("env").agg(pl.col("there").max().alias("expected"))
    all_runs = pl.lit(int(expected["expected"].sum()))
    if "env" in by:
        all_runs = pl.col("env").replace_strict(dict(expected.iter_rows()), return_dtype=pl.Int64)
    groups = (
        # A constant among the keys: there may be no others.
        games.group_by(pl.lit(0).alias("all"), *by, maintain_order=True)
        .agg(
            pl.col("values").explode(),
            pl.col("sizes"),
            pl.len().cast(pl.Int64).alias("games"),
            pl.col("sizes").sum().alias("runs"),
        )
        .drop("all")
        .with_columns(left_out=all_runs - pl.col("runs"))
    )
    return Estimate(groups, (*_missing(seeds, group_keys, expected), *_unscored(table, by, column, groups)))


def _refuse_duplicate_runs(table: pl.DataFrame, by: tuple[str, ...]) -> None:
    """Refuse a table with duplicate rows for one run, and name the columns in which they differ."""
    keys = list(dict.fromkeys((*by, "env", "seed")))
    again = table.filter(pl.struct(keys).is_duplicated())
    if again.is_empty():
        return
    others = [name for name in (*RUN_COLUMNS, "step", "source") if name in table.columns and name not in keys]
    varied = again.group_by(keys).agg(pl.col(others).n_unique())
    distinguishing = [name for name in others if (varied[name] > 1).any()]
    first = group_label(again.select(keys).row(0, named=True))
    if "step" in distinguishing:
        way = "take one value per run first (run_auc, final_scores), or add 'step' to `by`"
    elif distinguishing:
        way = f"add {distinguishing[0]!r} to `by`, or choose one value of it"
    else:
        way = "give each run once"
    raise InvalidInput(f"duplicate rows for one run ({first}): {way}")


def _missing(seeds: pl.DataFrame, group_keys: list[str], expected: pl.DataFrame) -> list[str]:
    """Notes on runs that a group lacks, at any step; a table of one group lacks none."""
    if not group_keys:
        return []
    short = (
        seeds.select(group_keys)
        .unique()
        .join(expected, how="cross")
        .join(seeds, on=[*group_keys, "env"], how="left", nulls_equal=True)
        .with_columns(lacks=pl.col("expected") - pl.col("there").fill_null(0))
        .filter(pl.col("lacks") > 0)
        .sort("env")
    )
    total = expected["expected"].sum()
    return [
        f"{who} lacks {rows['lacks'].sum():,} of {total:,} runs: "
        + shorten_list([f"{env} {lacks}" for env, lacks in rows.select("env", "lacks").iter_rows()])
        for who, rows in by_group(short, group_keys)
    ]


def _unscored(table: pl.DataFrame, by: tuple[str, ...], column: str, groups: pl.DataFrame) -> list[str]:
    """Notes on rows without a value, points over fewer runs, and groups that no resample can vary."""
    group_keys = [name for name in by if name != "step"]
    empty = table.filter(pl.col(column).is_null())
    notes = [
        f"{who}: {rows.height:,} rows without a finite {column} are left out"
        for who, rows in by_group(empty, group_keys)
    ]
    for who, rows in by_group(groups, group_keys):
        runs = rows["runs"].to_list()
        fewer = [count for count in runs if count < max(runs)]
        if fewer:
            notes.append(
                f"{who}: {len(fewer):,} of {rows.height:,} points are over fewer than its "
                f"{max(runs):,} runs, one of them over {min(fewer):,}"
            )
        if "step" in by:
            alike = groups.filter(pl.col("env") == rows["env"][0]) if "env" in by else groups
            points = alike["step"].n_unique()
            if rows.height < points:
                last = max(rows["step"].to_list())
                notes.append(f"{who} has {rows.height:,} of {points:,} points, up to step {last:,}")
        if max(map(max, rows["sizes"].to_list())) == 1:
            notes.append(f"{who}{ONE_SEED}")
    if group_keys:
        for who, _ in by_group(table.join(groups, on=group_keys, how="anti", nulls_equal=True), group_keys):
            notes.append(f"{who} has no value of {column} and is not in the table")
    return notes


def by_group(rows: pl.DataFrame, by: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
    """The groups of a table in order, each with its name; the order of rows within a group stays."""
    if rows.is_empty():
        return []
    if not by:
        return [("all runs", rows)]
    tables = rows.sort(by, maintain_order=True).partition_by(by, maintain_order=True)
    return [(group_label(group.select(by).row(0, named=True)), group) for group in tables]
