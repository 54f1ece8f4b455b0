"""Statistics of groups of runs with 95 % intervals: tidy tables in, tidy tables out."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis.resampling import ends, intervals, resampled
from valueshare.analysis.statistics import Statistic, point_estimates
from valueshare.analysis.tidy import (
    Cells,
    Estimate,
    Who,
    cells,
    chosen,
    compared,
    finite,
    listed,
    require,
    who_is,
)
from valueshare.errors import InvalidInput

Floats = NDArray[np.float64]
RESAMPLES = 50_000
ENDS = {"ci95_low": pl.Float64, "ci95_high": pl.Float64}


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

    A row of the table is one run (of one step, if `step` is in `by`); the strata are its
    environments. Answers `*by, value, ci95_low, ci95_high, games, runs, left_out`. `statistic` is
    "iqm" or "optimality_gap" over all runs, "mean" or "median" of the environments' means, or a
    function [resamples, runs] -> [resamples]. Groups are algorithm and k, unless `by` says
    otherwise. The same table and seed give the same interval. A group with one run an environment
    has a value and no interval.
    """
    found = cells(table, compared(table, by), column)
    value, low, high = _estimated(found, statistic, resamples, seed)
    return _answer(found, value, low, high)


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
    groups = (*compared(table, by), "step")
    return bootstrap_interval(
        table, "iqm", by=groups, column=column, resamples=resamples, seed=seed
    )


def difference_interval(
    table: pl.DataFrame,
    x: Who,
    y: Who,
    statistic: Statistic = "iqm",
    *,
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """By how much a statistic of x exceeds that of y, on the environments that both have.

    Answers one row: `x, y, difference, ci95_low, ci95_high, value_x, value_y, games, runs_x,
    runs_y`. Both are resampled, independently of each other.
    """
    pair, notes = paired(table, x, y, column)
    points, drawn = [], []
    for stream, part in enumerate(pair, start=1):
        values, sizes = arrays(part)
        points.append(float(point_estimates(values[None], sizes, statistic)[0]))
        drawn.append(
            resampled(
                values[None], sizes, statistic, resamples=resamples, seed=seed, stream=stream
            )[0]
        )
    low, high = ends(drawn[0] - drawn[1]) if varied(*pair) else (None, None)
    row = {
        "x": who_is(x),
        "y": who_is(y),
        "difference": points[0] - points[1],
        "ci95_low": low,
        "ci95_high": high,
        "value_x": points[0],
        "value_y": points[1],
        "games": int(pair[0]["games"][0]),
        "runs_x": int(pair[0]["runs"][0]),
        "runs_y": int(pair[1]["runs"][0]),
    }
    return Estimate(pl.DataFrame([row], schema_overrides=ENDS), notes)


def varied(*parts: pl.DataFrame) -> bool:
    """Whether any environment has more than one run, so that resamples differ."""
    return any(max(part["sizes"][0]) > 1 for part in parts)


def paired(
    table: pl.DataFrame, x: Who, y: Who, column: str
) -> tuple[tuple[pl.DataFrame, pl.DataFrame], tuple[str, ...]]:
    """The cells of x and of y on the environments that have values of both, and notes."""
    require(table, "env", "seed", column)
    names = who_is(x), who_is(y)
    if names[0] == names[1]:
        raise InvalidInput(f"{names[0]} is compared with itself: name two different ones")
    rows = [finite(chosen(table, who), column) for who in (x, y)]
    envs = [set(own.filter(pl.col(column).is_not_null())["env"]) for own in rows]
    shared = envs[0] & envs[1]
    if not shared:
        raise InvalidInput(
            f"{names[0]} and {names[1]} have no environment in common: compare others"
        )
    notes = [
        f"left out, because {name} alone has them: {listed(sorted(own - shared))}"
        for name, own in zip(names, envs, strict=True)
        if own - shared
    ]
    both = [
        own.with_columns(pl.lit(name).alias("algorithm"))
        for name, own in zip(names, rows, strict=True)
    ]
    found = cells(pl.concat(both).filter(pl.col("env").is_in(shared)), ("algorithm",), column)
    parts = [found.table.filter(pl.col("algorithm") == name) for name in names]
    return (parts[0], parts[1]), (*notes, *found.notes)


def arrays(cell: pl.DataFrame) -> tuple[Floats, NDArray[np.int64]]:
    """Values and sizes of a table of one cell. Shapes: [n], [S]."""
    return cell["values"][0].to_numpy(), cell["sizes"][0].to_numpy()


def _estimated(
    found: Cells, statistic: Statistic, resamples: int, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Value and ends of every cell; those with the same sizes are resampled together."""
    lists, sizes = found.table["values"].to_list(), found.table["sizes"].to_list()
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, shape in enumerate(sizes):
        alike.setdefault(tuple(shape), []).append(index)
    value, low, high = (np.full(len(lists), np.nan) for _ in range(3))
    for shape, where in alike.items():
        values, strata = np.array([lists[index] for index in where]), np.array(shape)
        value[where] = point_estimates(values, strata, statistic)
        if max(shape) > 1:
            low[where], high[where] = intervals(
                values, strata, statistic, resamples=resamples, seed=seed
            )
    return value, low, high


def _answer(found: Cells, value: Floats, low: Floats, high: Floats) -> Estimate:
    numbers = {"value": value, "ci95_low": low, "ci95_high": high}
    table = found.table.with_columns(
        pl.Series(name, column).fill_nan(None) for name, column in numbers.items()
    )
    shown = (*found.by, *numbers, "games", "runs", "left_out")
    return Estimate(table.select(shown), found.notes)
