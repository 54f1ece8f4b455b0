"""Means with intervals: a group over its seeds.

Missing values are left out, and every table counts them: `left_out` beside `agents`. Nothing is truncated to the
shortest curve, and no partial curve is treated as a whole one.
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

    Returns `*by, mean, ci95_low, ci95_high, agents, left_out`, sorted by group: `agents` rows have a finite number,
    `left_out` rows have none. The interval is a percentile bootstrap over rows, seeded: the same table gives the same
    interval, whatever the order of its groups. A group of one has a mean and no interval; a group of none has neither.
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
    lists, counts = groups["values"], groups["agents"].to_numpy()
    numbers = {name: np.full(len(counts), np.nan) for name in ("mean", "ci95_low", "ci95_high")}
    for n in np.unique(counts[counts > 0]):
        alike = np.flatnonzero(counts == n)
        values = np.array([np.sort(lists[int(i)].to_numpy()) for i in alike])  # [G, n]; order must not matter
        numbers["mean"][alike] = values.mean(axis=1)
        if n > 1:
            means = bootstrap_means(values, resamples, seed)
            numbers["ci95_low"][alike], numbers["ci95_high"][alike] = np.quantile(means, (0.025, 0.975), axis=1)
    found = groups.with_columns(pl.Series(name, column).fill_nan(None) for name, column in numbers.items())
    return found.select(*by, *numbers, "agents", "left_out")


def bootstrap_means(values: Floats, resamples: int, seed: int) -> Floats:
    """Means of resampled rows. Shapes: values [G, n] -> [G, resamples].

    A resample is how often each of the n was drawn, so all means are one matrix product. The groups share the draws:
    each interval is what it would be alone, to rounding.
    """
    n = values.shape[1]
    rng = np.random.default_rng((seed, n))
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=resamples)  # [resamples, n]
    return np.asarray(values @ (drawn.T / n))
