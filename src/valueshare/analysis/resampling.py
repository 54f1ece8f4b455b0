"""Stratified bootstrap over runs, on plain arrays: many cells at once, and no sorting per resample.

A cell holds the runs of one interval: those of one algorithm at one evaluation, say. Its values are in the order of
games, `sizes` are the runs of each game, and a resample draws as many runs of each game, with replacement. A resample
is stored as counts: how often each run was drawn. All cells of the same sizes share these counts, and each cell is
sorted once: the trimmed mean of a resample is a weighted sum in sorted order.

A draw is a function of (seed, stream, resample, position). So intervals depend neither on threads nor on how the work
is split, and two streams are independent.

Legend: C cells, S games, R resamples, L resamples of a block, n runs of a cell.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from valueshare import splitmix
from valueshare.analysis.statistics import GAP_BELOW, Statistic, check_statistic
from valueshare.errors import InvalidInput
from valueshare.splitmix import ODD, S32, U64, bits, mix, randint, source_type

Floats = NDArray[np.float64]
Counts = NDArray[np.int16]
Sizes = NDArray[np.int64]

BLOCK = 512  # L: the counts of a block stay in a core's cache
MAX_RESAMPLES = 1_000_000
MEMORY = 200_000_000  # bytes for the statistics of resamples, at a time
KEY = np.dtype([("key", U64), *source_type(splitmix.__file__).descr])


def intervals(
    values: Floats, sizes: Sizes, statistic: Statistic, *, resamples: int, seed: int
) -> tuple[Floats, Floats]:
    """The bounds of the 95 % percentile intervals. Shapes: values [C, n], sizes [S] -> [C], [C]."""
    at_once = max(1, MEMORY // (8 * resamples))
    low, high = np.empty(len(values)), np.empty(len(values))
    for start in range(0, len(values), at_once):
        block = slice(start, start + at_once)
        low[block], high[block] = bounds(resampled(values[block], sizes, statistic, resamples=resamples, seed=seed))
    return low, high


def bounds(drawn: Floats) -> tuple[Floats, Floats]:
    """The 2.5 % and 97.5 % quantiles along the last axis; this reorders `drawn`."""
    low, high = np.quantile(drawn, (0.025, 0.975), axis=-1, overwrite_input=True)
    return low, high


def resampled(
    values: Floats, sizes: Sizes, statistic: Statistic, *, resamples: int, seed: int, stream: int = 0
) -> Floats:
    """A statistic of every resample of every cell. Shapes: values [C, n], sizes [S] -> [C, R].

    `statistic` is one of `statistics.NAMES`, or a function [L, n] -> [L].
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    cells, n = values.shape
    key, firsts = _start(sizes, resamples, seed, stream)
    out = np.empty((cells, resamples))
    if callable(statistic):
        for start, counts in count_blocks(sizes, resamples=resamples, seed=seed, stream=stream):
            block_size = counts.shape[1]
            # Every resample has n runs, so the repeated positions fill a rectangle.
            drawn = np.repeat(np.tile(np.arange(n), block_size), counts.T.ravel()).reshape(block_size, n)
            for cell, row in enumerate(values):
                estimates = np.asarray(statistic(row[drawn]), np.float64)
                if estimates.shape != (block_size,):
                    raise InvalidInput(
                        f"the statistic returned shape {estimates.shape} for values of shape {(block_size, n)}: "
                        "it must reduce the last axis"
                    )
                out[cell, start : start + block_size] = estimates
        return out
    check_statistic(statistic)
    if statistic == "iqm":
        order = np.argsort(values, axis=1, kind="stable")
        _trimmed_means(key, firsts, np.take_along_axis(values, order, axis=1), order, n // 4, n - n // 4, out)
        return out
    if statistic == "median":
        for cell, row in enumerate(values):
            means = game_means(row, sizes, resamples=resamples, seed=seed, stream=stream)
            out[cell] = np.median(means, axis=0)
        return out
    if statistic == "mean":  # of the games' means
        weighted = values / np.repeat(len(sizes) * sizes, sizes)
    elif statistic == "run_mean":
        weighted = values / n
    else:
        weighted = np.maximum(GAP_BELOW - values, 0.0) / n
    _segment_sums(key, firsts, np.array([0, n]), weighted, out[:, None])
    return out


def game_means(values: Floats, sizes: Sizes, *, resamples: int, seed: int, stream: int) -> Floats:
    """Every game's mean in every resample. Shapes: values [n], sizes [S] -> [S, R]."""
    key, firsts = _start(sizes, resamples, seed, stream)
    out = np.empty((len(sizes), resamples))
    _segment_sums(key, firsts, firsts, (values / np.repeat(sizes, sizes))[None], out[None])
    return out


def pair_means(weights: Sequence[Floats], sizes: tuple[Sizes, Sizes], *, resamples: int, seed: int) -> Floats:
    """The weighted number of pairs of runs of two sides, in every resample of both.

    There is a table of weights per game, [runs of the first side, runs of the second]. Both sides are resampled,
    independently: streams 1 and 2. Shapes: sizes [S] each -> [R].
    """
    drawn = (count_blocks(side, resamples=resamples, seed=seed, stream=stream) for stream, side in enumerate(sizes, 1))
    ends = [np.cumsum(side)[:-1] for side in sizes]
    blocks = []
    for (_, x_counts), (_, y_counts) in zip(*drawn, strict=True):
        games = zip(weights, np.split(x_counts, ends[0]), np.split(y_counts, ends[1]), strict=True)
        blocks.append(sum((x * (weight @ y)).sum(axis=0) for weight, x, y in games))
    return np.concatenate(blocks)


def count_blocks(sizes: Sizes, *, resamples: int, seed: int, stream: int = 0) -> Iterator[tuple[int, Counts]]:
    """Counts of how often each run is drawn, block by block: (first resample, counts [n, L])."""
    key, firsts = _start(sizes, resamples, seed, stream)
    for block in range(-(-resamples // BLOCK)):
        yield _draw_block(key, firsts, block, resamples)


def check_resamples(resamples: int) -> None:
    """Refuse numbers that no bootstrap needs, before memory is allocated for them."""
    if not 1 <= resamples <= MAX_RESAMPLES:
        raise InvalidInput(f"`resamples = {resamples}`: write a number from 1 to {MAX_RESAMPLES:,}")


def _start(sizes: Sizes, resamples: int, seed: int, stream: int) -> tuple[NDArray[Any], Sizes]:
    """The key of the draws, [1], and where each game's runs begin, [S + 1]."""
    check_resamples(resamples)
    if sizes.sum() > np.iinfo(np.int16).max:
        raise InvalidInput(f"{sizes.sum()} runs in one group: at most 32,767 can be resampled")
    # Arrays of one element: they wrap around without a warning, as scalars do not.
    first, second = (np.array([number], np.int64).astype(U64) for number in (seed, stream))
    key = np.zeros(1, KEY)
    key["key"] = mix.py_func(mix.py_func(first + ODD) ^ (second * ODD))
    return key, np.concatenate([[0], np.cumsum(sizes)])


# Below, compiled. A thread takes a block of resamples, draws its counts, and processes all cells with them: the loops
# over a block's resamples are vectorised, and no thread waits for another.


@njit(cache=True)
def _draw_block(key: NDArray[Any], firsts: Sizes, block: int, resamples: int) -> tuple[int, Counts]:
    """The first resample of a block, and how often each run is drawn in its resamples, [n, L]."""
    start, n, stream_key = block * BLOCK, firsts[-1], key[0].key
    block_size = min(BLOCK, resamples - start)
    counts = np.zeros((n, block_size), np.int16)
    for game in range(len(firsts) - 1):
        first, size = firsts[game], firsts[game + 1] - firsts[game]
        for resample in range(block_size):
            position = (start + resample) * n + first
            for draw in range(size):
                run = first + randint(bits(stream_key, position + draw) >> S32, size)
                counts[run, resample] += 1
    return start, counts


@njit(parallel=True, cache=True)
def _trimmed_means(
    key: NDArray[Any], firsts: Sizes, ranked: Floats, order: Sizes, low: int, high: int, out: Floats
) -> None:
    """Means of the draws number low to high - 1 of each resample, in ascending order."""
    cells, n = ranked.shape
    resamples = out.shape[1]
    bottom, top = np.int16(low), np.int16(high)
    for block in prange((resamples + BLOCK - 1) // BLOCK):
        start, counts = _draw_block(key, firsts, block, resamples)
        block_size = counts.shape[1]
        drawn, kept = np.empty(block_size, np.int16), np.empty(block_size, np.int16)
        total = np.empty(block_size)
        for cell in range(cells):
            drawn[:] = 0  # draws so far, from the smallest value up
            total[:] = 0.0
            for rank in range(n):
                value, row = ranked[cell, rank], counts[order[cell, rank]]
                # Two loops: 16-bit integers make wide vectors, as long as no float is among them.
                for resample in range(block_size):
                    before = drawn[resample]
                    after = np.int16(before + row[resample])
                    drawn[resample] = after
                    # Of the draws before..after, how many lie within bottom..top.
                    kept[resample] = np.int16(min(max(after, bottom), top) - min(max(before, bottom), top))
                for resample in range(block_size):
                    total[resample] += np.float64(kept[resample]) * value
            for resample in range(block_size):
                out[cell, start + resample] = total[resample] / (high - low)


@njit(parallel=True, cache=True)
def _segment_sums(key: NDArray[Any], firsts: Sizes, segments: Sizes, weighted: Floats, out: Floats) -> None:
    """Sums over the drawn runs of each of G segments. Shapes: segments [G + 1], weighted [C, n] -> out [C, G, R]."""
    resamples = out.shape[2]
    for block in prange((resamples + BLOCK - 1) // BLOCK):
        start, counts = _draw_block(key, firsts, block, resamples)
        block_size = counts.shape[1]
        total = np.empty(block_size)
        for cell in range(len(weighted)):
            for segment in range(len(segments) - 1):
                total[:] = 0.0
                for run in range(segments[segment], segments[segment + 1]):
                    value, row = weighted[cell, run], counts[run]
                    for resample in range(block_size):
                        total[resample] += row[resample] * value
                out[cell, segment, start : start + block_size] = total
