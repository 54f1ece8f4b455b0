"""Comparisons of algorithms: by hand, and as rliable has them."""

from collections.abc import Callable
from importlib import import_module

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from valueshare import InvalidInput
from valueshare.analysis import (
    difference_interval,
    game_differences,
    performance_profile,
    probability_of_improvement,
)

Tidy = Callable[..., pl.DataFrame]
library, metrics = import_module("rliable.library"), import_module("rliable.metrics")


@pytest.fixture(scope="module")
def ended(two_algorithms: pl.DataFrame) -> pl.DataFrame:
    return two_algorithms.filter(pl.col("step") == 30)


def matrix(table: pl.DataFrame, algorithm: str) -> NDArray[np.float64]:
    own = table.filter(pl.col("algorithm") == algorithm).sort("seed", "env")
    return own["score"].to_numpy().reshape(5, -1)  # [seeds, games]


def test_probability_by_hand(tidy: Tidy) -> None:
    """Pong: 3 beats 1 and 2, 2 beats 1 and ties 2: 3.5 of 4. Alien: 0 of 2. Mean: 7 / 16."""
    scores = {
        ("x", "Pong"): [3, 2], ("y", "Pong"): [1, 2],
        ("x", "Alien"): [0], ("y", "Alien"): [5, 6],
    }  # fmt: skip
    row = probability_of_improvement(tidy(scores), "x", "y", resamples=500).table.to_dicts()[0]
    assert row["value"] == (3.5 / 4 + 0) / 2
    # Resampled, Pong's share is between 1/2 (x draws 2, 2; y draws 2, 2) and 1, Alien's 0.
    assert 0.25 <= row["ci95_low"] < row["value"] < row["ci95_high"] <= 0.5
    assert (row["games"], row["runs_x"], row["runs_y"]) == (2, 3, 4)


def test_probability_is_that_of_rliable(ended: pl.DataFrame) -> None:
    few = ended.filter(pl.col("env") < "Game04")  # a resample is 4 tests of Mann and Whitney there
    row = probability_of_improvement(few, "ib-dqn", "dqn", resamples=20_000).table.to_dicts()[0]
    pair = [matrix(few, "ib-dqn"), matrix(few, "dqn")]
    np.random.seed(2)  # noqa: NPY002 (rliable draws from the global generator)
    points, ranges = library.get_interval_estimates(
        {"pair": pair}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=300
    )
    low, high = ranges["pair"][:, 0]
    assert row["value"] == pytest.approx(points["pair"][0], rel=1e-12)
    # 300 draws, rliable being slow: 0.15 standard errors, a twenty-fifth of the width; four.
    assert row["ci95_low"] == pytest.approx(low, abs=4 / 25 * (high - low))
    assert row["ci95_high"] == pytest.approx(high, abs=4 / 25 * (high - low))


def test_probability_of_the_two_ways_adds_up_to_one(ended: pl.DataFrame) -> None:
    one, other = (
        probability_of_improvement(ended, *names, resamples=10).table["value"][0]
        for names in (("ib-dqn", "dqn"), ("dqn", "ib-dqn"))
    )
    assert one + other == pytest.approx(1, rel=1e-12)


def test_profiles_are_those_of_rliable(ended: pl.DataFrame) -> None:
    taus = [0.0, 0.5, 1.0, 2.0, 4.0]
    found = performance_profile(ended, taus, resamples=20_000).table
    np.random.seed(3)  # noqa: NPY002
    points, ranges = library.create_performance_profile(
        {a: matrix(ended, a) for a in ("dqn", "ib-dqn")}, np.array(taus), reps=2_000
    )
    for algorithm, own in points.items():
        rows = found.filter(pl.col("algorithm") == algorithm)
        assert rows["threshold"].to_list() == taus
        np.testing.assert_allclose(rows["value"], own, rtol=1e-12)
        # Shares are multiples of 1/55: an end may be one such step away.
        for name, end in zip(("ci95_low", "ci95_high"), ranges[algorithm], strict=True):
            np.testing.assert_allclose(rows[name], end, atol=1.01 / 55)


def test_a_profile_by_hand(tidy: Tidy) -> None:
    """Above, not at: of 1, 2, 3, 4, three are above 1 and none above 4."""
    found = performance_profile(tidy({("x", "Pong"): [1, 2, 3, 4]}), [0, 1, 4], resamples=50)
    assert found.table["value"].to_list() == [1.0, 0.75, 0.0]
    with pytest.raises(InvalidInput, match="thresholds"):
        performance_profile(tidy({("x", "Pong"): [1, 2]}), [])


def test_differences_of_games_by_hand(tidy: Tidy) -> None:
    """Pong: 4 - 2 = 2, 100 %. Alien: -4 - (-2) = -2, -100 %. Freeway: from 0, no percentage."""
    scores = {
        ("x", "Pong"): [3, 5], ("y", "Pong"): [2, 2, 2],
        ("x", "Alien"): [-4], ("y", "Alien"): [-2],
        ("x", "Freeway"): [1, 1], ("y", "Freeway"): [0, 0],
    }  # fmt: skip
    found = game_differences(tidy(scores), "x", "y", resamples=2_000)
    table = found.table
    assert table["env"].to_list() == ["Pong", "Freeway", "Alien"]
    assert table["difference"].to_list() == [2.0, 1.0, -2.0]
    assert table["percent"].to_list() == [100.0, None, -100.0]
    # Of (3, 5), a quarter of the resamples have mean 3 and a quarter 5: the ends are 1 and 3.
    assert table["ci95_low"].to_list() == [1.0, 1.0, None]
    assert table["ci95_high"].to_list() == [3.0, 1.0, None]
    assert table["runs_y"].to_list() == [3, 2, 1]
    assert "x lacks 1 of 6 runs: Pong 1" in found.notes


def test_differences_agree_with_a_naive_bootstrap(ended: pl.DataFrame) -> None:
    row = game_differences(ended, "ib-dqn", "dqn", resamples=20_000).table.row(
        by_predicate=pl.col("env") == "Game03", named=True
    )
    x, y = matrix(ended, "ib-dqn")[:, 3], matrix(ended, "dqn")[:, 3]
    rng = np.random.default_rng(5)
    drawn = rng.choice(x, (20_000, 5)).mean(axis=1) - rng.choice(y, (20_000, 5)).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    assert row["difference"] == pytest.approx(x.mean() - y.mean(), rel=1e-12)
    assert row["ci95_low"] == pytest.approx(low, abs=0.03 * (high - low))
    assert row["ci95_high"] == pytest.approx(high, abs=0.03 * (high - low))


def test_a_single_run_on_either_side_leaves_no_interval(tidy: Tidy) -> None:
    """One that stands still would lend its certainty to the difference."""
    table = tidy({("x", "Pong"): [3, 5, 4], ("y", "Pong"): [1]})
    for pair in (("x", "y"), ("y", "x")):
        for found in (
            game_differences(table, *pair, resamples=50),
            probability_of_improvement(table, *pair, resamples=50),
            difference_interval(table, *pair, resamples=50),
        ):
            assert found.table.select("ci95_low", "ci95_high").row(0) == (None, None)
            assert found.table["runs_x"].to_list() == [3 if pair[0] == "x" else 1]


@pytest.mark.parametrize(("seeds", "rate"), [(2, 1 / 3), (3, 1 / 5), (5, 1 / 8), (20, 1 / 15)])
def test_intervals_of_few_seeds_are_as_narrow_as_is_said(seeds: int, rate: float) -> None:
    """Every environment is an experiment of its own: two equal learners, `seeds` runs each."""
    many = 1_500
    scores = np.random.default_rng(seeds).normal(size=(2, many, seeds))
    side, env, seed = np.indices(scores.shape).reshape(3, -1)
    table = pl.DataFrame(
        {
            "env": [f"{index:04d}" for index in env],
            "algorithm": np.array(["x", "y"])[side],
            "seed": seed,
            "score": scores.ravel(),
        }
    )
    found = game_differences(table, "x", "y", resamples=1_000).table
    wrong = found.filter((pl.col("ci95_low") > 0) | (pl.col("ci95_high") < 0)).height / many
    assert wrong == pytest.approx(rate, rel=0.25)


def test_several_environments_do_not_make_up_for_few_seeds(tidy: Tidy) -> None:
    """Two equal learners on 8 environments: 2 runs have half of the variance in a bootstrap, as (n - 1) / n says.

    So the interval of the difference is 0.71 times as wide, and excludes 0 where a normal number exceeds 0.71 x 1.96.
    """
    rng, trials, wrong = np.random.default_rng(0), 150, 0
    for _ in range(trials):
        table = tidy({(name, f"E{env}"): rng.normal(size=2).tolist() for name in "xy" for env in range(8)})
        low, high = (
            difference_interval(table, "x", "y", "run_mean", resamples=500).table["ci95_low", "ci95_high"].row(0)
        )
        wrong += low > 0 or high < 0
    assert wrong / trials == pytest.approx(0.166, rel=0.35)  # 1 of 6, and not 1 of 20
