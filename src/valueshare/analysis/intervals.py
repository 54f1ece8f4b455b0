"""Statistics of groups of runs with 95 % intervals: tidy tables in, tidy tables out."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from valueshare.analysis.comparison import paired
from valueshare.analysis.resampling import bounds, intervals, resampled
from valueshare.analysis.statistics import RESAMPLES, Statistic, point_estimates
from valueshare.analysis.tidy import CI95, Estimate, Selection, by_group, finite, group_columns, group_values, require

INTERVAL = ("value", *CI95)


def bootstrap_interval(
    table: pl.DataFrame,
    statistic: Statistic = "iqm",
    *,
    by: Sequence[str] | None = None,
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """A statistic of each group of runs, with its 95 % stratified bootstrap interval.

    A row of the table is one run (of one step, if `step` is in `by`); the strata are its environments. Returns `*by,
    value, ci95_low, ci95_high, games, runs, left_out`. `statistic` is "iqm", "optimality_gap" or "run_mean" over all
    runs, "mean" or "median" of the environments' means, or a function [resamples, runs] -> [resamples]. Groups are
    algorithm and k, unless `by` says otherwise. The same table and seed give the same interval. A group with one run
    per environment has a value and no interval.
    """
    by = group_columns(table, by)
    groups = group_values(table, by, column)
    result = _with_intervals(groups.table, statistic, "value", resamples, seed)
    return Estimate(result.select(*by, *INTERVAL, "games", "runs", "left_out"), groups.notes)


def mean_intervals(
    table: pl.DataFrame, by: Sequence[str], column: str = "value", *, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """Mean and 95 % interval of a column in each group; a row is one agent (of one step).

    Returns `*by, mean, ci95_low, ci95_high, agents, left_out`, sorted by group: `agents` rows have a finite number,
    `left_out` rows have none. The interval is a percentile bootstrap over rows; it does not depend on their order. A
    group of one has a mean and no interval; a group of none has neither.
    """
    require(table, *by, column)
    groups = (
        finite(table, column)
        .group_by(*by)
        .agg(
            pl.col(column).drop_nulls().sort().alias("values"),
            pl.col(column).count().cast(pl.Int64).alias("agents"),
            pl.col(column).null_count().cast(pl.Int64).alias("left_out"),
        )
        .with_columns(sizes=pl.concat_list("agents"))
        .sort(*by)
    )
    result = _with_intervals(groups, "run_mean", "mean", resamples, seed)
    return result.select(*by, "mean", *INTERVAL[1:], "agents", "left_out")


def _with_intervals(cells: pl.DataFrame, statistic: Statistic, name: str, resamples: int, seed: int) -> pl.DataFrame:
    """A table of `values` and `sizes` with a statistic of each row and its interval; nulls where there is none."""
    lists = cells["values"].to_list()
    alike: dict[tuple[int, ...], list[int]] = {}  # cells with the same sizes are resampled together
    for index, sizes in enumerate(cells["sizes"].to_list()):
        alike.setdefault(tuple(sizes), []).append(index)
    numbers = {column: np.full(len(lists), np.nan) for column in (name, *INTERVAL[1:])}
    for sizes, where in alike.items():
        values, strata = np.array([lists[index] for index in where]), np.array(sizes)
        if max(sizes) > 0:
            numbers[name][where] = point_estimates(values, strata, statistic)
        if max(sizes) > 1:
            low, high = intervals(values, strata, statistic, resamples=resamples, seed=seed)
            numbers["ci95_low"][where], numbers["ci95_high"][where] = low, high
    return cells.with_columns(pl.Series(column, estimates).fill_nan(None) for column, estimates in numbers.items())


def iqm_curves(
    table: pl.DataFrame,
    *,
    by: Sequence[str] | None = None,
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The IQM and its 95 % interval at every evaluation: `*by, step, value, ci95_low, ...`.

    A point is over the runs that have a value there; `runs` and `left_out` say how many those are.
    """
    groups = (*group_columns(table, by), "step")
    return bootstrap_interval(table, "iqm", by=groups, column=column, resamples=resamples, seed=seed)


def over_all_games(curves: pl.DataFrame) -> Estimate:
    """The points of each curve that are over as many environments as any of its points.

    A point over fewer is another quantity: where only the easy games have results, a curve would rise for that reason
    alone. Takes the table of `iqm_curves`; notes name the points that are removed.
    """
    by = list(group_columns(curves))
    most = curves.with_columns(most=pl.col("games").max().over(by) if by else pl.col("games").max())
    fewer = most.filter(pl.col("games") < pl.col("most"))
    notes = tuple(
        f"{who}: {part.height:,} points are over fewer than its {part['most'][0]:,} environments and not shown, "
        f"the first at step {part['step'][0]:,}"
        for who, part in by_group(fewer.sort("step"), by)
    )
    return Estimate(most.filter(pl.col("games") == pl.col("most")).drop("most"), notes)


def difference_interval(
    table: pl.DataFrame,
    x: Selection,
    y: Selection,
    statistic: Statistic = "iqm",
    *,
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The difference of a statistic, x - y, on the environments that both have.

    Returns one row: `x, y, difference, ci95_low, ci95_high, value_x, value_y, games, runs_x, runs_y`. Both are
    resampled, independently of each other; where either has a single run per environment there is no interval.
    """
    pair = paired(table, x, y, column)
    points, drawn = [], []
    for stream, side in enumerate((pair.x, pair.y), start=1):
        values = side.values[None]
        points.append(float(point_estimates(values, side.sizes, statistic)[0]))
        drawn.append(resampled(values, side.sizes, statistic, resamples=resamples, seed=seed, stream=stream)[0])
    low, high = bounds(drawn[0] - drawn[1]) if pair.varied else (None, None)
    numbers = {"difference": points[0] - points[1], "ci95_low": low, "ci95_high": high}
    return pair.estimate({**numbers, "value_x": points[0], "value_y": points[1]})
