"""Tuned comparisons: tables whose answer is known, and other people's bootstraps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats

from valueshare.analysis.tuned import tuned_increase

Floats = NDArray[np.float64]
Scores = dict[tuple[float, float], Sequence[float | None]]  # (k, step size) -> scores by seed


def runs(scores: Scores, *, step: int = 100, diverged: Sequence[tuple[float, float]] = ()) -> Any:
    """A tidy table. Of a (k, step size) in `diverged`, the last seed diverged."""
    return pl.DataFrame(
        [
            {"k": k, "step_size": size, "seed": seed, "step": step, "score": score}
            | {"diverged": (k, size) in diverged and seed == len(own) - 1}
            for (k, size), own in scores.items()
            for seed, score in enumerate(own)
        ]
    )


def row(table: pl.DataFrame, k: float, regime: int = 100) -> dict[str, Any]:
    return table.filter((pl.col("k") == k) & (pl.col("regime") == regime)).row(0, named=True)


KNOWN: Scores = {
    (0.0, 0.1): [10, 20, 30],  # mean 20: the best of k = 0
    (0.0, 0.2): [12, 12, 12],
    (4.0, 0.1): [0, 0, 3],
    (4.0, 0.2): [20, 25, 30],  # mean 25: the best of k = 4
}


def test_means_of_a_table_by_hand() -> None:
    """20 at k = 0 and 25 at k = 4: 25 % more."""
    table = tuned_increase(runs(KNOWN))
    assert table.columns == [
        "regime", "k", "increase_percent", "ci95_low", "ci95_high", "best_step_size",
        "mean_score", "diverged_step_sizes",
    ]  # fmt: skip
    plain, shared = row(table, 0.0), row(table, 4.0)
    assert [plain[name] for name in ("increase_percent", "ci95_low", "ci95_high")] == [0, 0, 0]
    assert (plain["best_step_size"], plain["mean_score"]) == (0.1, 20.0)
    assert (shared["best_step_size"], shared["mean_score"]) == (0.2, 25.0)
    assert shared["increase_percent"] == pytest.approx(25.0)
    assert shared["ci95_low"] < 25 < shared["ci95_high"]


def test_every_moment_chooses_for_itself() -> None:
    swapped = {(k, 0.3 - size): own for (k, size), own in KNOWN.items()}
    table = tuned_increase(pl.concat([runs(swapped, step=500), runs(KNOWN)]))
    assert table["regime"].to_list() == [100, 100, 500, 500]
    assert row(table, 4.0, 500)["best_step_size"] == pytest.approx(0.1)
    assert row(table, 4.0, 100)["best_step_size"] == 0.2


def test_row_order_changes_nothing() -> None:
    table = runs(KNOWN)
    assert tuned_increase(table.sample(fraction=1, shuffle=True, seed=1)).equals(tuned_increase(table))


def test_among_equals_the_smallest_step_size_is_chosen() -> None:
    table = tuned_increase(runs({(0.0, 0.3): [5, 5], (0.0, 0.1): [4, 6], (0.0, 0.2): [5, 5]}))
    assert row(table, 0.0)["best_step_size"] == 0.1


def test_the_reference_is_the_smallest_k() -> None:
    """Without k = 0: 30 against 20 at k = 2 is 50 % more."""
    table = tuned_increase(runs({(8.0, 0.1): [30, 30], (2.0, 0.1): [20, 20]}))
    assert row(table, 2.0)["increase_percent"] == 0
    assert row(table, 8.0)["increase_percent"] == pytest.approx(50.0)


def test_negative_scores() -> None:
    """From -20 to -15 is an increase, by 5 of 20: 25 %; to -30, a decrease by 50 %."""
    table = tuned_increase(runs({(0.0, 0.1): [-20, -20], (1.0, 0.1): [-15, -15], (2.0, 0.1): [-30, -30]}))
    assert row(table, 1.0)["increase_percent"] == pytest.approx(25.0)
    assert row(table, 2.0)["increase_percent"] == pytest.approx(-50.0)
    assert row(table, 1.0)["ci95_low"] == pytest.approx(25.0)  # no spread, no width


def test_nothing_to_compare_with_is_no_number() -> None:
    table = tuned_increase(runs({(0.0, 0.1): [0, 0], (1.0, 0.1): [3, 4]}))
    assert row(table, 1.0)["increase_percent"] is None
    assert row(table, 1.0)["mean_score"] == 3.5
    assert row(table, 0.0)["increase_percent"] == 0


# The interval.


@pytest.fixture(scope="module")
def samples() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(4)
    return rng.gamma(8.0, 5.0, size=40), rng.gamma(8.0, 6.0, size=40)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_interval_is_that_of_a_naive_bootstrap(samples: tuple[Floats, Floats], sign: float) -> None:
    """Draw seeds with replacement for both k, form the percentage, take its quantiles."""
    plain, shared = (sign * x for x in samples)
    rng = np.random.default_rng(99)
    drawn = []
    for _ in range(20_000):
        a = rng.choice(plain, size=len(plain)).mean()
        b = rng.choice(shared, size=len(shared)).mean()
        drawn.append(100 * (b - a) / abs(a))
    low, high = np.quantile(drawn, [0.025, 0.975])
    tuned = row(tuned_increase(runs({(0.0, 0.1): plain.tolist(), (1.0, 0.1): shared.tolist()})), 1)
    width = high - low
    assert tuned["ci95_low"] == pytest.approx(low, abs=0.05 * width)
    assert tuned["ci95_high"] == pytest.approx(high, abs=0.05 * width)


def test_the_interval_is_about_that_of_scipy(samples: tuple[Floats, Floats]) -> None:
    plain, shared = samples

    def increase(a: Floats, b: Floats, axis: int = -1) -> Any:
        return 100 * (b.mean(axis=axis) / a.mean(axis=axis) - 1)

    theirs = stats.bootstrap(samples, increase, method="percentile", rng=np.random.default_rng(5)).confidence_interval
    ours = row(tuned_increase(runs({(0.0, 0.1): plain.tolist(), (1.0, 0.1): shared.tolist()})), 1)
    width = theirs.high - theirs.low
    assert ours["ci95_low"] == pytest.approx(theirs.low, abs=0.06 * width)
    assert ours["ci95_high"] == pytest.approx(theirs.high, abs=0.06 * width)


def test_the_interval_covers_as_often_as_it_says() -> None:
    """200 studies of two equal learners: 95 % of the intervals hold 0, within 4 standard errors."""
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(200):
        plain, shared = rng.normal(100, 10, size=(2, 60)).tolist()
        table = tuned_increase(runs({(0.0, 0.1): plain, (1.0, 0.1): shared}), resamples=1_000)
        own = row(table, 1.0)
        held += own["ci95_low"] <= 0 <= own["ci95_high"]
    assert abs(held / 200 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 200)


def test_the_same_table_gives_the_same_interval(samples: tuple[Floats, Floats]) -> None:
    table = runs({(0.0, 0.1): samples[0].tolist(), (1.0, 0.1): samples[1].tolist()})
    assert tuned_increase(table).equals(tuned_increase(table))


# Runs that diverged.


def test_a_step_size_at_which_a_run_diverged_is_no_candidate() -> None:
    """0.2 is better at both k, but one of three runs diverged there, and has no score."""
    scores: Scores = {
        (0.0, 0.1): [10, 10, 10], (0.0, 0.2): [90, 90, None],
        (4.0, 0.1): [15, 15, 15], (4.0, 0.2): [90, 90, None],
    }  # fmt: skip
    table = tuned_increase(runs(scores, diverged=[(0.0, 0.2), (4.0, 0.2)]))
    assert table["best_step_size"].to_list() == [0.1, 0.1]
    assert table["diverged_step_sizes"].to_list() == [1, 1]
    assert row(table, 4.0)["increase_percent"] == pytest.approx(50.0)


def test_a_k_that_always_diverged_has_nulls() -> None:
    scores: Scores = {(0.0, 0.1): [10, 10], (4.0, 0.1): [20, None], (4.0, 0.2): [20, None]}
    table = tuned_increase(runs(scores, diverged=[(4.0, 0.1), (4.0, 0.2)]))
    assert row(table, 4.0) == {
        "regime": 100, "k": 4.0, "increase_percent": None, "ci95_low": None, "ci95_high": None,
        "best_step_size": None, "mean_score": None, "diverged_step_sizes": 2,
    }  # fmt: skip
    assert row(table, 0.0)["mean_score"] == 10


def test_without_a_reference_scores_stay_and_increases_go() -> None:
    scores: Scores = {(0.0, 0.1): [None, None], (4.0, 0.1): [20, 22]}
    table = tuned_increase(runs(scores, diverged=[(0.0, 0.1)]))
    assert row(table, 4.0)["mean_score"] == 21
    assert row(table, 4.0)["increase_percent"] is None


def test_a_run_that_diverged_among_the_scored_alone_is_in_no_average() -> None:
    """All rewards are negative: counted as 0, the run that diverged would be the best of all."""
    scores: Scores = {
        (0.0, 0.1): [-10, -10, -10, -10],
        (4.0, 0.1): [-9, -9, -9, -9],
        (4.0, 0.2): [-5, -5, -5, None],
    }
    table = tuned_increase(runs(scores, diverged=[(4.0, 0.2)]), held_out=True)
    assert row(table, 4.0)["best_step_size"] == 0.1
    assert row(table, 4.0)["increase_percent"] == pytest.approx(10.0)


# Choosing on some seeds, scoring on others.

SPLIT: Scores = {
    (0.0, 0.1): [10, 10, 4, 4],
    (0.0, 0.2): [1, 1, 8, 8],
    (4.0, 0.1): [3, 3, 9, 9],
    (4.0, 0.2): [12, 12, 5, 5],
}


def test_each_half_is_scored_at_the_choice_of_the_other() -> None:
    """The first two seeds choose 0.1 (10 > 1) and 0.2 (12 > 3), which score 4 and 5 on the last two.

    The last two choose 0.2 (8 > 4) and 0.1 (9 > 5), which score 1 and 3 on the first two. So 4, 4, 1, 1 at k = 0 and
    5, 5, 3, 3 at k = 4: means 2.5 and 4, which is 60 % more.
    """
    table = tuned_increase(runs(SPLIT), held_out=True)
    assert table["mean_score"].to_list() == [2.5, 4.0]
    assert row(table, 4.0)["increase_percent"] == pytest.approx(60.0)
    assert table["best_step_size"].to_list() == [0.1, 0.2]  # of the first half


def test_a_held_out_increase_has_a_wider_interval() -> None:
    """Means of 3, 3, 9, 9 against 2: 200 % more, resampled from 50 % to 350 %, and sqrt(1.36) times as far held out."""
    scores: Scores = {(0.0, 0.1): [2, 2, 2, 2], (4.0, 0.1): [9, 9, 3, 3], (4.0, 0.2): [0, 0, 1, 1]}
    for held_out, reach in ((False, 150.0), (True, 150 * 1.36**0.5)):
        own = row(tuned_increase(runs(scores), held_out=held_out), 4.0)
        bounds = [own[name] for name in ("ci95_low", "increase_percent", "ci95_high")]
        assert bounds == pytest.approx([200 - reach, 200, 200 + reach])


def test_choosing_on_the_scored_seeds_flatters() -> None:
    """Pure noise at 40 step sizes: the best of them looks better than the 100 it is."""
    rng = np.random.default_rng(7)
    noise: Scores = {(0.0, round(0.02 * (i + 1), 2)): rng.normal(100, 10, size=8).tolist() for i in range(40)}
    same = row(tuned_increase(runs(noise)), 0.0)["mean_score"]
    crossed = tuned_increase(runs(noise), held_out=True)
    assert same > 100 + 1.5 * 10 / np.sqrt(8)
    assert abs(row(crossed, 0.0)["mean_score"] - 100) < 3 * 10 / np.sqrt(8)
