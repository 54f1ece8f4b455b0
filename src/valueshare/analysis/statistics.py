"""Statistics of arrays of scores, as numbers without intervals."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from valueshare.errors import InvalidInput

Floats = NDArray[np.float64]
Statistic = str | Callable[[Floats], Floats]
RESAMPLES = 50_000  # of a bootstrap
NAMES = ("iqm", "mean", "median", "optimality_gap", "run_mean")
GAP_BELOW = 1.0  # the optimality gap's threshold: human level, for human-normalized scores


def iqm(values: ArrayLike) -> float:
    """The interquartile mean: the mean of the middle half of all values, whatever their shape.

    Of n values in order, floor(n/4) are dropped at either end and the others averaged.
    """
    flat = np.sort(_finite(values))
    cut = flat.size // 4
    return float(flat[cut : flat.size - cut].mean())


def optimality_gap(values: ArrayLike, threshold: float = GAP_BELOW) -> float:
    """Mean shortfall of values below the threshold; values above it count as 0."""
    return float(np.maximum(threshold - _finite(values), 0.0).mean())


def point_estimates(values: Floats, sizes: NDArray[np.int64], statistic: Statistic) -> Floats:
    """A statistic of each row, whose runs are in the order of games, `sizes` of each.

    "mean" and "median" are of the games' means, so that each game counts once; "iqm", "optimality_gap" and "run_mean"
    are over runs. Shapes: values [C, n], sizes [S] -> [C].
    """
    if callable(statistic):
        return np.asarray(statistic(values), np.float64)
    check_statistic(statistic)
    if statistic in ("mean", "median"):
        firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        means = np.add.reduceat(values, firsts, axis=1) / sizes  # [C, S]
        return np.asarray(means.mean(axis=1) if statistic == "mean" else np.median(means, axis=1))
    if statistic == "run_mean":
        return np.asarray(values.mean(axis=1))
    estimate = iqm if statistic == "iqm" else optimality_gap
    return np.array([estimate(row) for row in values])


def check_statistic(name: str) -> None:
    """Refuse a name that is not one of `NAMES`."""
    if name not in NAMES:
        raise InvalidInput(
            f"unknown statistic {name!r}: write {', '.join(NAMES[:-1])} or {NAMES[-1]}, or "
            "give a function of an array [resamples, runs]"
        )


def _finite(values: ArrayLike) -> Floats:
    flat = np.asarray(values, dtype=np.float64).ravel()
    if flat.size == 0:
        raise InvalidInput("there are no values: give at least one")
    if not np.isfinite(flat).all():
        raise InvalidInput("a value is not a finite number: leave such runs out, and say so")
    return flat
