"""Means with intervals: a group over its seeds.

Missing values are left out, and every table counts them: `left_out` beside
`agents`. Nothing is cut to the shortest curve, and no partial curve passes for a whole one.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import finite, require

Floats = NDArray[np.float64]


def mean_intervals(
    table: pl.DataFrame, by: Sequence[str], column: str = "value", *, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """Mean and 95 % interval of a column in each group; a row is one agent (of one step).

    Returns `*by, mean, ci95_low, ci95_high, agents, left_out`, sorted by group: `agents` rows were
    counted; `left_out` had nothing, or no finite number, to count. The interval is a percentile
    bootstrap over rows, seeded: the same table gives the same interval, whatever the order of its
    groups. A group of one has a mean and no interval; a group of none has neither.
    """
    require(table, *by, column)
    groups = (
        finite(table, column)
        .group_by(*by)
        .agg(
            pl.col(column).drop_nulls().alias("values"),
            pl.col(column).count().cast(pl.Int64).alias("agents"),
            pl.col(column).null_count().cast(pl.Int64).alias("left_out"),
        )
        .sort(*by)
    )
    tables = [
        group.with_columns(_intervals(group["values"], count, resamples, seed))
        for (count,), group in groups.group_by("agents")
        if isinstance(count, int)
    ]
    shown = (*by, "mean", "ci95_low", "ci95_high", "agents", "left_out")
    if not tables:
        floats = [pl.lit(None, pl.Float64).alias(n) for n in ("mean", "ci95_low", "ci95_high")]
        return groups.with_columns(floats).select(shown)
    return pl.concat(tables).select(shown).sort(*by)


def bootstrap_means(values: Floats, resamples: int, seed: int) -> Floats:
    """Means of resampled rows. Shapes: values [G, n] -> [G, resamples].

    A resample is how often each of the n was drawn, so all means are one matrix product. The groups
    share the draws: each interval is what it would be alone, to rounding.
    """
    n = values.shape[1]
    rng = np.random.default_rng((seed, n))
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=resamples)  # [resamples, n]
    means: Floats = values @ (drawn.T / n)
    return means


def _intervals(lists: pl.Series, count: int, resamples: int, seed: int) -> list[pl.Series]:
    names = ("mean", "ci95_low", "ci95_high")
    nothing: list[float | None] = [None] * len(lists)
    if count == 0:
        return [pl.Series(name, nothing, pl.Float64) for name in names]
    values = np.array([np.sort(row.to_numpy()) for row in lists])  # [G, n]; order must not matter
    columns: list[Floats | list[float | None]] = [values.mean(axis=1), nothing, nothing]
    if count > 1:
        low, high = np.quantile(bootstrap_means(values, resamples, seed), (0.025, 0.975), axis=1)
        columns = [columns[0], low, high]
    return [pl.Series(n, list(c), pl.Float64) for n, c in zip(names, columns, strict=True)]
