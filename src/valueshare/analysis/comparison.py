"""Comparing algorithms: who is better how often, by how much on each game, and how much sooner."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis.intervals import ENDS, RESAMPLES, arrays, paired, varied
from valueshare.analysis.resampling import ends, game_means, intervals, pair_means
from valueshare.analysis.tidy import Estimate, Who, cells, chosen, compared, require, who_is
from valueshare.errors import InvalidInput

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]


class Reached(NamedTuple):
    """When one curve reaches another's maximum."""

    step: int | None  # the first evaluation at which it does; None if it never does
    best: float  # the other curve's maximum ...
    best_step: int  # ... and where that is, first
    last_step: int  # of the other curve
    fraction: float | None  # step / last_step


def probability_of_improvement(
    table: pl.DataFrame,
    x: Who,
    y: Who,
    *,
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """How likely a run of x beats one of y on the same environment, averaged over environments.

    P(X > Y) + P(X = Y) / 2 over all pairs of runs of an environment. Answers one row: `x, y, value,
    ci95_low, ci95_high, games, runs_x, runs_y`; x and y are resampled independently.
    """
    (one, other), notes = paired(table, x, y, column)
    (xs, sizes_x), (ys, sizes_y) = arrays(one), arrays(other)
    wins = [
        (a[:, None] > b) + 0.5 * (a[:, None] == b)  # [runs of x, runs of y]
        for a, b in zip(_split(xs, sizes_x), _split(ys, sizes_y), strict=True)
    ]
    weights = np.concatenate([won.ravel() / (won.size * len(wins)) for won in wins])
    drawn = pair_means(weights, (sizes_x, sizes_y), resamples=resamples, seed=seed)
    low, high = ends(drawn) if varied(one, other) else (None, None)
    row = {
        "x": who_is(x),
        "y": who_is(y),
        "value": float(np.mean([won.mean() for won in wins])),
        "ci95_low": low,
        "ci95_high": high,
        "games": len(wins),
        "runs_x": len(xs),
        "runs_y": len(ys),
    }
    return Estimate(pl.DataFrame([row], schema_overrides=ENDS), notes)


def game_differences(
    table: pl.DataFrame,
    x: Who,
    y: Who,
    *,
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """By how much the mean of x exceeds that of y on every environment that both have.

    Answers a row an environment, greatest difference first: `env, difference, ci95_low, ci95_high,
    percent, mean_x, mean_y, runs_x, runs_y`, with percent = 100 difference / |mean_y|, null where
    mean_y is 0. Each interval is for its own environment: of 57, about three miss.
    """
    (one, other), notes = paired(table, x, y, column)
    (xs, sizes_x), (ys, sizes_y) = arrays(one), arrays(other)
    split_x, split_y = _split(xs, sizes_x), _split(ys, sizes_y)
    drawn = game_means(xs, sizes_x, resamples=resamples, seed=seed, stream=1)
    drawn -= game_means(ys, sizes_y, resamples=resamples, seed=seed, stream=2)
    low, high = ends(drawn)
    still = (sizes_x == 1) & (sizes_y == 1)  # nothing varies: no interval
    mean_x, mean_y = (np.array([part.mean() for part in split]) for split in (split_x, split_y))
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(mean_y == 0, np.nan, 100 * (mean_x - mean_y) / np.abs(mean_y))
    answer = pl.DataFrame(
        {
            "env": _envs(table, x, y, column),
            "difference": mean_x - mean_y,
            "ci95_low": np.where(still, np.nan, low),
            "ci95_high": np.where(still, np.nan, high),
            "percent": percent,
            "mean_x": mean_x,
            "mean_y": mean_y,
            "runs_x": sizes_x,
            "runs_y": sizes_y,
        }
    ).with_columns(pl.col("ci95_low", "ci95_high", "percent").fill_nan(None))
    return Estimate(answer.sort("difference", "env", descending=[True, False]), notes)


def performance_profile(
    table: pl.DataFrame,
    thresholds: Sequence[float],
    *,
    by: Sequence[str] | None = None,
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The share of runs that score above each threshold, with 95 % intervals.

    Answers `*by, threshold, value, ci95_low, ci95_high, games, runs, left_out`. The interval of a
    threshold is for that threshold alone, not a band for the whole profile.
    """
    taus = np.asarray(thresholds, np.float64)
    if taus.ndim != 1 or not taus.size or not np.isfinite(taus).all():
        raise InvalidInput("thresholds: give at least one finite number")
    found = cells(table, compared(table, by), column)
    parts = []
    for index in range(found.table.height):
        cell = found.table[index]
        values, sizes = arrays(cell)
        above = (values > taus[:, None]).astype(np.float64)  # [T, n]
        low, high = np.full((2, len(taus)), np.nan)
        if varied(cell):
            low, high = intervals(above, sizes, "run_mean", resamples=resamples, seed=seed)
        numbers = {"threshold": taus, "value": above.mean(axis=1)}
        numbers |= {"ci95_low": low, "ci95_high": high}
        own = cell.select(*found.by, "games", "runs", "left_out")
        parts.append(pl.DataFrame(numbers).join(own, how="cross"))
    shown = (*found.by, "threshold", "value", "ci95_low", "ci95_high", "games", "runs", "left_out")
    answer = pl.concat(parts).select(shown)
    return Estimate(
        answer.with_columns(pl.col("ci95_low", "ci95_high").fill_nan(None)), found.notes
    )


def sample_efficiency(
    curves: pl.DataFrame, x: Who, reference: Who, *, column: str = "value"
) -> Reached:
    """The first evaluation at which the curve of x is at least the reference's maximum.

    `curves` has a row a curve and step, as `iqm_curves` answers it.
    """
    require(curves, "step", column)
    own, other = (_curve(curves, who, column) for who in (x, reference))
    best = other[column].max()
    best_step = other.filter(pl.col(column) == best)["step"].min()
    reached = own.filter(pl.col(column) >= best)["step"].min()
    last = other["step"].max()
    assert isinstance(best, float)
    assert isinstance(best_step, int)
    assert isinstance(last, int)
    step = reached if isinstance(reached, int) else None
    return Reached(step, best, best_step, last, step / last if step is not None and last else None)


def _curve(curves: pl.DataFrame, who: Who, column: str) -> pl.DataFrame:
    own = chosen(curves, who).with_columns(pl.col(column).cast(pl.Float64))
    own = own.filter(pl.col(column).is_finite())
    if own.is_empty():
        raise InvalidInput(f"{who_is(who)} has no finite {column}: choose another curve")
    if own["step"].is_duplicated().any():
        raise InvalidInput(f"{who_is(who)} is several curves: name its k too")
    return own


def _envs(table: pl.DataFrame, x: Who, y: Who, column: str) -> list[str]:
    """The environments that both have, in the order of their cells."""
    envs = [
        set(chosen(table, who).filter(pl.col(column).cast(pl.Float64).is_finite())["env"])
        for who in (x, y)
    ]
    return sorted(envs[0] & envs[1])


def _split(rows: Floats, sizes: Sizes) -> list[Floats]:
    """The rows of each environment."""
    return np.split(rows, np.cumsum(sizes)[:-1])
