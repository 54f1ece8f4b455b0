"""Stratified bootstrap over runs, on plain arrays: many cells at once, never a sort a resample.

A cell holds the runs of one interval: those of one algorithm at one evaluation, say. Its values
are in the order of games, `sizes` are the runs of each game, and a resample draws as many runs
of each game, with replacement. A resample is then how often each run was drawn. All cells of the
same sizes share these counts, and each cell is sorted once: the trimmed mean of a resample is a
weighted sum along that order.

A draw is a function of (seed, stream, resample, position). So intervals depend neither on threads
nor on how the work is cut, and two streams are independent.

Legend: C cells, S games, R resamples, L resamples of a block, n runs of a cell.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from valueshare.analysis.statistics import GAP_BELOW, Statistic, known, trimmed
from valueshare.errors import InvalidInput
from valueshare.tabular.randomness import ODD, U64, below, bits, mix

Floats = NDArray[np.float64]
Counts = NDArray[np.int16]
Sizes = NDArray[np.int64]

BLOCK = 512  # L: the counts of a block stay in a core's cache
ROOM = 200_000_000  # bytes for the statistics of resamples, at a time
HIGH_HALF = U64(32)


def intervals(
    values: Floats, sizes: Sizes, statistic: Statistic, *, resamples: int, seed: int
) -> tuple[Floats, Floats]:
    """The ends of the 95 % percentile intervals. Shapes: values [C, n], sizes [S] -> [C], [C]."""
    at_once = max(1, ROOM // (8 * resamples))
    low, high = np.empty(len(values)), np.empty(len(values))
    for start in range(0, len(values), at_once):
        some = slice(start, start + at_once)
        drawn = resampled(values[some], sizes, statistic, resamples=resamples, seed=seed)
        low[some], high[some] = ends(drawn)
    return low, high


def ends(drawn: Floats) -> tuple[Floats, Floats]:
    """The 2.5 % and 97.5 % quantiles of the last axis; `drawn` is put out of order."""
    low, high = np.quantile(drawn, (0.025, 0.975), axis=-1, overwrite_input=True)
    return low, high


def resampled(
    values: Floats, sizes: Sizes, statistic: Statistic, *, resamples: int, seed: int, stream: int = 0
) -> Floats:
    """A statistic of every resample of every cell. Shapes: values [C, n], sizes [S] -> [C, R].

    `statistic` is one of `statistics.NAMES`, or a function [L, n] -> [L] of the caller's own.
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    n = values.shape[1]
    key, firsts = _start(sizes, resamples, seed, stream)
    out = np.empty((len(values), resamples))
    if callable(statistic):
        for start, counts in count_blocks(sizes, resamples=resamples, seed=seed, stream=stream):
            _apply(statistic, values, counts, out[:, start : start + BLOCK])
        return out
    known(statistic)
    if statistic == "iqm":
        order = np.argsort(values, axis=1, kind="stable")
        ranked = np.take_along_axis(values, order, axis=1)
        cut = trimmed(n)
        _trimmed_means(key, firsts, ranked, order, cut, n - cut, out)
    elif statistic == "median":  # of the games' means
        _medians(key, firsts, values, out)
    elif statistic == "mean":  # of the games' means
        _weighted_sums(key, firsts, values / np.repeat(len(sizes) * sizes, sizes), out)
    elif statistic == "run_mean":
        _weighted_sums(key, firsts, values / n, out)
    else:
        _weighted_sums(key, firsts, np.maximum(GAP_BELOW - values, 0.0) / n, out)
    return out


def game_means(values: Floats, sizes: Sizes, *, resamples: int, seed: int, stream: int) -> Floats:
    """Every game's mean in every resample. Shapes: values [n], sizes [S] -> [S, R]."""
    key, firsts = _start(sizes, resamples, seed, stream)
    out = np.empty((len(sizes), resamples))
    _means_of_games(key, firsts, values / np.repeat(sizes, sizes), out)
    return out


def pair_means(weights: Floats, sizes: tuple[Sizes, Sizes], *, resamples: int, seed: int) -> Floats:
    """The weighted number of pairs of runs of two sides, in every resample of both.

    The weights stand game after game, in each game the other side's runs of every run. Both sides
    are resampled, independently: streams 1 and 2. Shapes: weights [pairs], sizes [S] each -> [R].
    """
    key_x, firsts_x = _start(sizes[0], resamples, seed, 1)
    key_y, firsts_y = _start(sizes[1], resamples, seed, 2)
    out = np.empty(resamples)
    _weighted_pairs(key_x, key_y, firsts_x, firsts_y, weights, out)
    return out


def count_blocks(sizes: Sizes, *, resamples: int, seed: int, stream: int = 0) -> Iterator[tuple[int, Counts]]:
    """How often each run is drawn, block after block: (first resample, counts [n, L])."""
    key, firsts = _start(sizes, resamples, seed, stream)
    for start in range(0, resamples, BLOCK):
        yield start, _draw(key, firsts, start, min(BLOCK, resamples - start))


def stream_key(seed: int, stream: int) -> int:
    """The place of a stream on the generator's cycle."""
    # Arrays of one: they wrap around silently, as numbers do not.
    first, second = (np.array([number], np.int64).astype(U64) for number in (seed, stream))
    return int(mix.py_func(mix.py_func(first + ODD) ^ (second * ODD))[0])


def _start(sizes: Sizes, resamples: int, seed: int, stream: int) -> tuple[Any, Sizes]:
    """The key of the draws, and where each game's runs begin, [S + 1]."""
    if resamples < 1:
        raise InvalidInput(f"resamples = {resamples}: write a number >= 1")
    if sizes.sum() > np.iinfo(np.int16).max:
        raise InvalidInput(f"{sizes.sum()} runs in one group: at most 32,767 can be resampled")
    return U64(stream_key(seed, stream)), np.concatenate([[0], np.cumsum(sizes)])


def _apply(statistic: Callable[[Floats], Floats], values: Floats, counts: Counts, out: Floats) -> None:
    n, lanes = counts.shape
    # Every resample has n runs, so the repeated positions fill a rectangle.
    drawn = np.repeat(np.tile(np.arange(n), lanes), counts.T.ravel()).reshape(lanes, n)
    for cell, row in enumerate(values):
        found = np.asarray(statistic(row[drawn]), np.float64)
        if found.shape != (lanes,):
            raise InvalidInput(
                f"the statistic returned shape {found.shape} for values of shape {(lanes, n)}: it "
                "must reduce the last axis"
            )
        out[cell] = found


# Below, compiled. A thread takes a block of resamples, draws its counts, and goes through all cells
# with them: the loops over a block's resamples are vectors, and no thread waits for another. The
# cache knows this file alone: after an edit of tabular/randomness.py, touch this one.


def _draw_counts(key: Any, firsts: Sizes, start: int, lanes: int) -> Counts:
    n = firsts[-1]
    counts = np.zeros((n, lanes), np.int16)
    for game in range(len(firsts) - 1):
        first, size = firsts[game], firsts[game + 1] - firsts[game]
        for lane in range(lanes):
            place = (start + lane) * n + first
            for draw in range(size):
                run = first + below(bits(key, place + draw) >> HIGH_HALF, size)
                counts[run, lane] += 1
    return counts


_draw = njit(cache=True)(_draw_counts)


def _trim_and_average(key: Any, firsts: Sizes, ranked: Floats, order: Sizes, low: int, high: int, out: Floats) -> None:
    """Means of the draws number low to high - 1 of each resample, in ascending order."""
    cells, n = ranked.shape
    resamples = out.shape[1]
    bottom, top = np.int16(low), np.int16(high)
    for block in prange((resamples + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        lanes = min(BLOCK, resamples - start)
        counts = _draw(key, firsts, start, lanes)
        seen, kept = np.empty(lanes, np.int16), np.empty(lanes, np.int16)
        total = np.empty(lanes)
        for cell in range(cells):
            seen[:] = 0  # draws so far, from the smallest value up
            total[:] = 0.0
            for rank in range(n):
                value, row = ranked[cell, rank], counts[order[cell, rank]]
                # Two loops: 16-bit integers make wide vectors, as long as no float is among them.
                for lane in range(lanes):
                    before = seen[lane]
                    after = np.int16(before + row[lane])
                    seen[lane] = after
                    # Of the draws before..after, how many lie within bottom..top.
                    kept[lane] = np.int16(min(max(after, bottom), top) - min(max(before, bottom), top))
                for lane in range(lanes):
                    total[lane] += np.float64(kept[lane]) * value
            for lane in range(lanes):
                out[cell, start + lane] = total[lane] / (high - low)


def _weigh_and_add(key: Any, firsts: Sizes, weighted: Floats, out: Floats) -> None:
    cells, n = weighted.shape
    resamples = out.shape[1]
    for block in prange((resamples + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        lanes = min(BLOCK, resamples - start)
        counts = _draw(key, firsts, start, lanes)
        total = np.empty(lanes)
        for cell in range(cells):
            total[:] = 0.0
            for run in range(n):
                value, row = weighted[cell, run], counts[run]
                for lane in range(lanes):
                    total[lane] += row[lane] * value
            out[cell, start : start + lanes] = total


def _median_of_means(key: Any, firsts: Sizes, values: Floats, out: Floats) -> None:
    games, resamples = len(firsts) - 1, out.shape[1]
    for block in prange((resamples + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        lanes = min(BLOCK, resamples - start)
        counts = _draw(key, firsts, start, lanes)
        means = np.empty((lanes, games))
        for cell in range(len(values)):
            for game in range(games):
                size = firsts[game + 1] - firsts[game]
                for lane in range(lanes):
                    total = 0.0
                    for run in range(firsts[game], firsts[game + 1]):
                        total += counts[run, lane] * values[cell, run]
                    means[lane, game] = total / size
            for lane in range(lanes):
                ordered = np.sort(means[lane])
                middle = ordered[(games - 1) // 2] + ordered[games // 2]
                out[cell, start + lane] = middle / 2


def _weigh_games(key: Any, firsts: Sizes, weighted: Floats, out: Floats) -> None:
    games, resamples = out.shape
    for block in prange((resamples + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        lanes = min(BLOCK, resamples - start)
        counts = _draw(key, firsts, start, lanes)
        total = np.empty(lanes)
        for game in range(games):
            total[:] = 0.0
            for run in range(firsts[game], firsts[game + 1]):
                value, row = weighted[run], counts[run]
                for lane in range(lanes):
                    total[lane] += row[lane] * value
            out[game, start : start + lanes] = total


def _weigh_pairs(key_x: Any, key_y: Any, firsts_x: Sizes, firsts_y: Sizes, weights: Floats, out: Floats) -> None:
    resamples = len(out)
    for block in prange((resamples + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        lanes = min(BLOCK, resamples - start)
        of_x = _draw(key_x, firsts_x, start, lanes)
        of_y = _draw(key_y, firsts_y, start, lanes)
        total, inner = np.zeros(lanes), np.empty(lanes)
        pair = 0
        for game in range(len(firsts_x) - 1):
            for run in range(firsts_x[game], firsts_x[game + 1]):
                inner[:] = 0.0
                for other in range(firsts_y[game], firsts_y[game + 1]):
                    weight, row = weights[pair], of_y[other]
                    pair += 1
                    if weight != 0.0:
                        for lane in range(lanes):
                            inner[lane] += row[lane] * weight
                own = of_x[run]
                for lane in range(lanes):
                    total[lane] += own[lane] * inner[lane]
        out[start : start + lanes] = total


# Applied as functions: Numba's decorators have no types.
_parallel = njit(parallel=True, cache=True)
_trimmed_means = _parallel(_trim_and_average)
_weighted_sums = _parallel(_weigh_and_add)
_medians = _parallel(_median_of_means)
_means_of_games = _parallel(_weigh_games)
_weighted_pairs = _parallel(_weigh_pairs)
