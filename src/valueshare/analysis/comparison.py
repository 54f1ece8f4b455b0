"""Comparisons: probability of improvement, differences by game, and performance profiles."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from valueshare.analysis.pairs import arrays, paired
from valueshare.analysis.resampling import bounds, game_means, intervals, pair_means
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import CI95, Estimate, Selection, group_columns, group_values
from valueshare.errors import InvalidInput


def probability_of_improvement(
    table: pl.DataFrame, x: Selection, y: Selection, *, column: str = "score", resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Probability that a run of x beats one of y on the same environment, averaged over environments.

    P(X > Y) + P(X = Y) / 2 over all pairs of runs of an environment. Returns one row: `x, y, value, ci95_low,
    ci95_high, games, runs_x, runs_y`; x and y are resampled independently, and where either has a single run per
    environment there is no interval.
    """
    pair = paired(table, x, y, column)
    wins = [
        (a[:, None] > b) + 0.5 * (a[:, None] == b)  # [runs of x, runs of y]
        for a, b in zip(pair.x.by_env(), pair.y.by_env(), strict=True)
    ]
    weights = [won / (won.size * len(wins)) for won in wins]
    drawn = pair_means(weights, (pair.x.sizes, pair.y.sizes), resamples=resamples, seed=seed)
    low, high = bounds(drawn) if pair.varied else (None, None)
    value = float(np.mean([won.mean() for won in wins]))
    return pair.estimate({"value": value, "ci95_low": low, "ci95_high": high})


def game_differences(
    table: pl.DataFrame, x: Selection, y: Selection, *, column: str = "score", resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """The difference of the means, x - y, on every environment that both have.

    Returns a row per environment, greatest difference first: `env, difference, ci95_low, ci95_high, percent, mean_x,
    mean_y, runs_x, runs_y`, with percent = 100 difference / |mean_y|, null where mean_y is 0. Each interval is for its
    own environment: of 57, about three miss the true value. Where either has a single run there is none.
    """
    pair = paired(table, x, y, column)
    drawn = game_means(*pair.x, resamples=resamples, seed=seed, stream=1)
    drawn -= game_means(*pair.y, resamples=resamples, seed=seed, stream=2)
    low, high = bounds(drawn)
    single = np.minimum(pair.x.sizes, pair.y.sizes) == 1  # a side that does not vary: no interval
    mean_x, mean_y = (np.array([runs.mean() for runs in side.by_env()]) for side in (pair.x, pair.y))
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(mean_y == 0, np.nan, 100 * (mean_x - mean_y) / np.abs(mean_y))
    result = pl.DataFrame(
        {
            "env": pair.envs,
            "difference": mean_x - mean_y,
            "ci95_low": np.where(single, np.nan, low),
            "ci95_high": np.where(single, np.nan, high),
            "percent": percent,
            "mean_x": mean_x,
            "mean_y": mean_y,
            "runs_x": pair.x.sizes,
            "runs_y": pair.y.sizes,
        }
    ).with_columns(pl.col(*CI95, "percent").fill_nan(None))
    return Estimate(result.sort("difference", "env", descending=[True, False]), pair.notes)


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

    Returns `*by, threshold, value, ci95_low, ci95_high, games, runs, left_out`. The interval of a threshold is for that
    threshold alone, not a band for the whole profile.
    """
    taus = np.asarray(thresholds, np.float64)
    if taus.ndim != 1 or not taus.size or not np.isfinite(taus).all():
        raise InvalidInput("thresholds: give at least one finite number")
    by = group_columns(table, by)
    groups = group_values(table, by, column)
    tables = []
    for cell in groups.table.iter_slices(1):
        values, sizes = arrays(cell)
        above = (values > taus[:, None]).astype(np.float64)  # [T, n]
        low, high = np.full((2, len(taus)), np.nan)
        if sizes.max() > 1:
            low, high = intervals(above, sizes, "run_mean", resamples=resamples, seed=seed)
        numbers = {"threshold": taus, "value": above.mean(axis=1), "ci95_low": low, "ci95_high": high}
        counts = cell.select(*by, "games", "runs", "left_out")
        tables.append(counts.join(pl.DataFrame(numbers), how="cross"))
    shown = (*by, "threshold", "value", *CI95, "games", "runs", "left_out")
    result = pl.concat(tables).select(shown)
    return Estimate(result.with_columns(pl.col(CI95).fill_nan(None)), groups.notes)
