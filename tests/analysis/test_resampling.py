"""The bootstrap's machinery: fair draws, and statistics that a naive resample confirms."""

from importlib import import_module
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from valueshare import InvalidInput
from valueshare.analysis import resampling
from valueshare.analysis.resampling import (
    BLOCK,
    bounds,
    count_blocks,
    game_means,
    intervals,
    pair_means,
    resampled,
)

metrics = import_module("rliable.metrics")
SIZES = np.array([5, 1, 3, 4])
VALUES = np.random.default_rng(3).gamma(1.0, 5.0, size=(3, 13)) - 2


def all_counts(sizes: NDArray[np.int64], resamples: int, seed: int = 0, stream: int = 0) -> Any:
    blocks = count_blocks(sizes, resamples=resamples, seed=seed, stream=stream)
    return np.concatenate([counts for _, counts in blocks], axis=1)  # [n, R]


def test_every_game_keeps_its_number_of_runs() -> None:
    counts = all_counts(SIZES, 1_500)
    assert counts.shape == (13, 1_500)
    for rows, size in zip(np.split(counts, np.cumsum(SIZES)[:-1]), SIZES, strict=True):
        np.testing.assert_array_equal(rows.sum(axis=0), size)


def test_draws_are_uniform_and_independent() -> None:
    """Of three runs, 27 equally likely draws give 10 counts: compared with the multinomial."""
    counts = all_counts(np.array([3, 3]), 60_000)
    first, second = counts[:3], counts[3:]
    seen = {tuple(map(int, c)): 0 for c in np.unique(first, axis=1).T}
    for column in first.T:
        seen[tuple(map(int, column))] += 1
    expected = {c: 60_000 * stats.multinomial.pmf(c, 3, [1 / 3] * 3) for c in seen}
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values()), list(expected.values())).pvalue > 1e-4
    # Variance of a count is 3 * 1/3 * 2/3 = 2/3; the games know nothing of each other.
    assert first[0].var() == pytest.approx(2 / 3, rel=0.03)
    assert abs(np.corrcoef(first[0], second[0])[0, 1]) < 4 / np.sqrt(60_000)
    assert abs(np.corrcoef(first[0, 1:], first[0, :-1])[0, 1]) < 4 / np.sqrt(60_000)


def test_streams_and_seeds_are_independent() -> None:
    base = all_counts(SIZES, 20_000)[0]
    for other in (all_counts(SIZES, 20_000, stream=1)[0], all_counts(SIZES, 20_000, seed=1)[0]):
        assert abs(np.corrcoef(base, other)[0, 1]) < 4 / np.sqrt(20_000)
    np.testing.assert_array_equal(base, all_counts(SIZES, 20_000)[0])


@pytest.mark.parametrize(
    ("name", "naive"),
    [
        ("iqm", lambda games: stats.trim_mean(np.concatenate(games), 0.25)),
        ("mean", lambda games: np.mean([np.mean(g) for g in games])),
        ("median", lambda games: np.median([np.mean(g) for g in games])),
        ("optimality_gap", lambda games: 1 - np.minimum(np.concatenate(games), 1).mean()),
        ("run_mean", lambda games: np.concatenate(games).mean()),
    ],
)
def test_a_resample_is_what_a_naive_one_is(name: str, naive: Any) -> None:
    """Repeat each run as often as it was drawn, and ask NumPy and SciPy."""
    found = resampled(VALUES, SIZES, name, resamples=1_200, seed=5)  # one block and a part
    counts = all_counts(SIZES, 1_200, seed=5)
    games = np.repeat(np.arange(4), SIZES)
    for resample in (0, 1, 500, 1_023, 1_024, 1_199):
        for cell, values in enumerate(VALUES):
            drawn = np.repeat(values, counts[:, resample])
            strata = np.repeat(games, counts[:, resample])
            expected = naive([drawn[strata == game] for game in range(4)])
            assert found[cell, resample] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_means_of_games_and_pairs_are_what_naive_ones_are() -> None:
    """Of two games with 3 and 2 runs against 1 and 4, resampled independently."""
    sizes, rng = (np.array([3, 2]), np.array([1, 4])), np.random.default_rng(5)
    x = rng.standard_normal(5)
    resamples = BLOCK + 3
    of_x, of_y = (all_counts(n, resamples, 7, stream) for stream, n in enumerate(sizes, start=1))
    means = game_means(x, sizes[0], resamples=resamples, seed=7, stream=1)  # [2, R]
    weights = [rng.standard_normal((3, 1)), rng.standard_normal((2, 4))]
    pairs = pair_means(weights, sizes, resamples=resamples, seed=7)  # [R]
    for r in range(resamples):
        a, b = of_x[:, r], of_y[:, r]
        drawn = np.repeat(x, a)  # three of the first game, then two of the second
        assert means[:, r] == pytest.approx([drawn[:3].mean(), drawn[3:].mean()])
        first = sum(weights[0][i, 0] * a[i] * b[0] for i in range(3))
        second = sum(weights[1][i, j] * a[3 + i] * b[1 + j] for i in range(2) for j in range(4))
        assert pairs[r] == pytest.approx(first + second)


def test_a_function_of_ones_own() -> None:
    own = resampled(VALUES, SIZES, lambda rows: stats.trim_mean(rows, 0.25, axis=-1), resamples=1_100, seed=2)
    ours = resampled(VALUES, SIZES, "iqm", resamples=1_100, seed=2)
    np.testing.assert_allclose(own, ours, rtol=1e-12, atol=1e-12)
    with pytest.raises(InvalidInput, match="must reduce the last axis"):
        resampled(VALUES, SIZES, lambda rows: rows.max(axis=0), resamples=10, seed=0)


@pytest.mark.parametrize("name", ["iqm", "mean", "median"])
def test_nothing_depends_on_how_the_work_is_cut(name: str, monkeypatch: Any) -> None:
    """Cell by cell, one thread, or more resamples: the same bits."""
    whole = resampled(VALUES, SIZES, name, resamples=1_500, seed=0)
    low, high = intervals(VALUES, SIZES, name, resamples=1_500, seed=0)
    monkeypatch.setattr(resampling, "MEMORY", 1)  # one cell at a time
    np.testing.assert_array_equal(intervals(VALUES, SIZES, name, resamples=1_500, seed=0)[0], low)
    more = resampled(VALUES[::-1], SIZES, name, resamples=2_100, seed=0)
    np.testing.assert_array_equal(more[::-1, :1_500], whole)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = intervals(VALUES, SIZES, name, resamples=1_500, seed=0)
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(alone, (low, high))


def test_a_huge_outlier_leaves_the_others_exact() -> None:
    """Trimmed away, 1e15 must not cost the IQM of the other values any digits."""
    values = np.array([[1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 1e15]])
    counts = all_counts(np.array([8]), 2_000)
    found = resampled(values, np.array([8]), "iqm", resamples=2_000, seed=0)[0]
    once = counts[7] <= 2  # two are dropped at either end
    assert once.sum() > 1_000
    for index in np.flatnonzero(once)[:200]:
        assert found[index] == stats.trim_mean(np.repeat(values[0], counts[:, index]), 0.25)


def test_bounds_are_the_usual_quantiles() -> None:
    low, high = bounds(np.arange(101.0)[None, ::-1].copy())
    assert (low[0], high[0]) == (2.5, 97.5)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInput, match="resamples = 0"):
        resampled(VALUES, SIZES, "iqm", resamples=0, seed=0)
    with pytest.raises(InvalidInput, match="at most 32,767"):
        next(count_blocks(np.array([40_000]), resamples=1, seed=0))
