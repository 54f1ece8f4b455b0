"""Two algorithms side by side, on their common environments; and performance profiles."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis.resampling import bounds, game_means, intervals, pair_means
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import (
    CI95,
    Estimate,
    Selection,
    finite,
    group_columns,
    group_values,
    require,
    select,
    selection_name,
)
from valueshare.errors import InvalidInput
from valueshare.text import shorten_list

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]


class PairSide(NamedTuple):
    """The runs of one algorithm, environment after environment. Shapes: [n], [S]."""

    values: Floats
    sizes: Sizes

    def by_env(self) -> list[Floats]:
        """The runs of each environment."""
        return np.split(self.values, np.cumsum(self.sizes)[:-1])


class Pair(NamedTuple):
    """The runs of x and of y on the environments that have values of both."""

    names: tuple[str, str]
    envs: list[str]  # [S]
    x: PairSide
    y: PairSide
    notes: tuple[str, ...]

    @property
    def varied(self) -> bool:
        """Whether resamples of both sides vary; otherwise an interval would be too narrow."""
        return bool(min(self.x.sizes.max(), self.y.sizes.max()) > 1)

    def estimate(self, numbers: dict[str, object]) -> Estimate:
        """One row: `x, y`, the numbers, `games, runs_x, runs_y`."""
        row = {"x": self.names[0], "y": self.names[1], **numbers, "games": len(self.envs)}
        row |= {"runs_x": len(self.x.values), "runs_y": len(self.y.values)}
        ends = dict.fromkeys(CI95, pl.Float64)
        return Estimate(pl.DataFrame([row], schema_overrides=ends), self.notes)


def paired(table: pl.DataFrame, x: Selection, y: Selection, column: str) -> Pair:
    """The runs of two algorithms; a row of the table is one run."""
    names, rows = _sides(table, x, y, column)
    envs = [set(side.drop_nulls(column)["env"]) for side in rows]
    shared = envs[0] & envs[1]
    if not shared:
        raise InvalidInput(f"{names[0]} and {names[1]} have no environment in common: compare others")
    notes = [
        f"left out, because {name} alone has them: {shorten_list(sorted(side_envs - shared))}"
        for name, side_envs in zip(names, envs, strict=True)
        if side_envs - shared
    ]
    both = [side.with_columns(pl.lit(name).alias("algorithm")) for name, side in zip(names, rows, strict=True)]
    groups = group_values(pl.concat(both).filter(pl.col("env").is_in(shared)), ("algorithm",), column)
    parts = [groups.table.filter(pl.col("algorithm") == name) for name in names]
    sides = [PairSide(*arrays(part)) for part in parts]
    return Pair(names, sorted(shared), sides[0], sides[1], (*notes, *groups.notes))


def shared_evaluations(table: pl.DataFrame, x: Selection, y: Selection, column: str = "score") -> Estimate:
    """The rows of x and y at the evaluations that both have, environment by environment.

    One may be far ahead of the other while they train, or evaluated more often: their curves are compared where both
    have a value of any run. Environments that share no evaluation are left out, and notes name what is removed.
    """
    names, rows = _sides(table, x, y, column)
    points = [side.drop_nulls(column).select("env", "step").unique() for side in rows]
    shared = points[0].join(points[1], on=["env", "step"])
    every = pl.concat(points).unique().group_by("env").agg(pl.len().alias("all"))
    kept = shared.group_by("env").agg(pl.len().alias("kept"))
    in_both = every.filter(*(pl.col("env").is_in(side_points["env"].implode()) for side_points in points))
    cut = in_both.join(kept, on="env", how="left").with_columns(pl.col("kept").fill_null(0))
    cut = cut.filter(pl.col("kept") < pl.col("all")).sort("env")
    notes = []
    if not cut.is_empty():
        counts = [f"{env} {few:,} of {most:,}" for env, most, few in cut.iter_rows()]
        notes.append(
            f"{names[0]} and {names[1]} are compared at the evaluations that both have: {shorten_list(counts)}"
        )
    kept = pl.concat(rows).join(shared, on=["env", "step"], how="semi", maintain_order="left")
    return Estimate(kept, tuple(notes))


def arrays(cell: pl.DataFrame) -> tuple[Floats, Sizes]:
    """Values and sizes of a table of one cell. Shapes: [n], [S]."""
    return cell["values"][0].to_numpy(), cell["sizes"][0].to_numpy()


def _sides(table: pl.DataFrame, x: Selection, y: Selection, column: str) -> tuple[tuple[str, str], list[pl.DataFrame]]:
    require(table, "env", "seed", column)
    names = selection_name(x), selection_name(y)
    if names[0] == names[1]:
        raise InvalidInput(f"{names[0]} is compared with itself: name two different ones")
    return names, [finite(select(table, selection), column) for selection in (x, y)]


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
