"""The series that figures draw from a tidy table: means over seeds, smoothing.

The tidy table has a row per agent and evaluation: `env, algorithm, k, seed, step, score` and other metrics. Missing
values are left out of means, and every mean has its number of seeds.
"""

import polars as pl

from valueshare.analysis.scores import game_name, has_human_score
from valueshare.analysis.tidy import VARIANT, finite, require
from valueshare.errors import InvalidInput
from valueshare.text import pluralize


def tidy(table: pl.DataFrame, column: str) -> pl.DataFrame:
    """The rows whose `column` is a finite number; k is 0 for algorithms without k."""
    require(table, "env", "algorithm", "seed", "step", column)
    rows = finite(with_k(table), column).drop_nulls(column)
    if rows.is_empty():
        raise InvalidInput(f"no row has a value of {column!r}: there is nothing to draw")
    return rows


def with_k(table: pl.DataFrame) -> pl.DataFrame:
    """The table with a k for every row: 0, where an algorithm has none."""
    k = pl.col("k").cast(pl.Float64).fill_null(0.0) if "k" in table.columns else pl.lit(0.0)
    return table.with_columns(k.alias("k"))


def seed_means(table: pl.DataFrame, column: str) -> pl.DataFrame:
    """Mean of a column over seeds at each step: `env, algorithm, k, step, mean, seeds`."""
    return (
        tidy(table, column)
        .group_by("env", *VARIANT, "step")
        .agg(pl.col(column).mean().alias("mean"), pl.col("seed").n_unique().alias("seeds"))
        .sort("env", *VARIANT, "step")
    )


def smoothed(values: pl.Series, window: int) -> pl.Series:
    """Centred moving average; at the ends, of the values that the window still holds.

    With window 3: [1, 2, 6, 4] -> [1.5, 3, 4, 5].
    """
    if window < 1 or window % 2 == 0:
        raise InvalidInput(f"`smoothing = {window}`: write an odd number >= 1")
    return values.rolling_mean(window, min_samples=1, center=True)


def short_seeds(means: pl.DataFrame) -> str:
    """A sentence on curves that rest on fewer seeds at some points than at others, or nothing."""
    counts = means.group_by("env", *VARIANT).agg(
        pl.col("seeds").min().alias("fewest"), pl.col("seeds").max().alias("most")
    )
    ragged = counts.filter(pl.col("fewest") < pl.col("most")).height
    if not ragged:
        return ""
    return f"{ragged} of {counts.height} curves rest on fewer seeds at some points than at others."


def seed_count(rows: pl.DataFrame) -> str:
    """5 seeds, or 3 to 5 seeds where algorithms or environments differ."""
    counts = rows.group_by("env", *VARIANT).agg(pl.col("seed").n_unique())["seed"]
    fewest, most = min(counts), max(counts)
    return pluralize(most, "seed") if fewest == most else f"{fewest} to {most} seeds"


def game(env: str) -> str:
    """An environment's name as one reads it: ALE/Pong-v5 is Pong."""
    return game_name(env) if has_human_score(env) else env
