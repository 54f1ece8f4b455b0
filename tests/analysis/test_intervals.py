"""Intervals of groups of runs: as rliable and SciPy have them, and what is said of ragged data."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal
from scipy import stats

from valueshare import InvalidInput
from valueshare.analysis import bootstrap_interval, difference_interval, iqm, iqm_curves
from valueshare.analysis.intervals import over_all_games

Tidy = Callable[..., pl.DataFrame]
library, metrics = import_module("rliable.library"), import_module("rliable.metrics")


def matrix(table: pl.DataFrame, algorithm: str) -> NDArray[np.float64]:
    """Scores as rliable wants them: [seeds, games]."""
    own = table.filter(pl.col("algorithm") == algorithm).sort("seed", "env")
    return own["score"].to_numpy().reshape(own["seed"].n_unique(), -1)


@pytest.fixture(scope="module")
def ended(two_algorithms: pl.DataFrame) -> pl.DataFrame:
    return two_algorithms.filter(pl.col("step") == 30)


@pytest.mark.parametrize("name", ["iqm", "mean", "median", "optimality_gap"])
def test_values_and_intervals_are_those_of_rliable(ended: pl.DataFrame, name: str) -> None:
    found = bootstrap_interval(ended, name, resamples=20_000)
    assert found.notes == ()
    theirs = getattr(metrics, f"aggregate_{name}")
    np.random.seed(1)  # noqa: NPY002 (rliable draws from the global generator)
    points, ranges = library.get_interval_estimates(
        {a: matrix(ended, a) for a in ("dqn", "ib-dqn")},
        lambda scores: np.array([theirs(scores)]),
        reps=3_000,
    )
    for row in found.table.to_dicts():
        low, high = ranges[row["algorithm"]][:, 0]
        assert row["value"] == pytest.approx(points[row["algorithm"]][0], rel=1e-12)
        # A 2.5 % quantile of 3,000 draws is known to 0.05 standard errors, an eightieth of the
        # interval's width: five of these are allowed.
        assert row["ci95_low"] == pytest.approx(low, abs=5 / 80 * (high - low))
        assert row["ci95_high"] == pytest.approx(high, abs=5 / 80 * (high - low))
        assert (row["games"], row["runs"], row["left_out"]) == (11, 55, 0)


def test_one_environment_is_the_plain_bootstrap_of_scipy(tidy: Tidy) -> None:
    values = np.random.default_rng(2).exponential(3.0, size=40)
    row = bootstrap_interval(tidy({("dqn", "Pong"): values.tolist()}), "iqm").table.to_dicts()[0]
    other = stats.bootstrap(
        (values,),
        lambda rows, axis: stats.trim_mean(rows, 0.25, axis=axis),
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(3),
    ).confidence_interval
    # 20,000 draws: 0.019 standard errors, a two-hundredth of the width.
    width = other.high - other.low
    assert row["ci95_low"] == pytest.approx(other.low, abs=5 / 200 * width)
    assert row["ci95_high"] == pytest.approx(other.high, abs=5 / 200 * width)


def test_intervals_cover_as_often_as_they_say(tidy: Tidy) -> None:
    """300 studies of 4 games x 30 seeds with mean 10: about 95 % of the intervals hold 10."""
    rng = np.random.default_rng(4)
    scores = {(f"study {i:03d}", f"G{g}"): rng.normal(10, 1 + g, 30).tolist() for i in range(300) for g in range(4)}
    table = bootstrap_interval(tidy(scores), "mean", resamples=2_000).table
    held = ((table["ci95_low"] <= 10) & (table["ci95_high"] >= 10)).sum()
    # Percentile intervals of 30 are a little narrow: 0.94 and three standard errors of 0.0137.
    assert held / 300 == pytest.approx(0.94, abs=0.041)


def test_the_order_of_rows_changes_nothing(two_algorithms: pl.DataFrame) -> None:
    found = iqm_curves(two_algorithms, resamples=1_000).table
    shuffled = two_algorithms.sample(fraction=1, shuffle=True, seed=1)
    assert iqm_curves(shuffled, resamples=1_000).table.equals(found)
    assert not iqm_curves(two_algorithms, resamples=1_000, seed=1).table.equals(found)


def test_curves_are_the_intervals_of_every_step(two_algorithms: pl.DataFrame, ended: pl.DataFrame) -> None:
    curves = iqm_curves(two_algorithms, resamples=2_000).table
    assert curves.columns == [
        *("algorithm", "k", "step", "value", "ci95_low", "ci95_high", "games", "runs", "left_out")
    ]
    assert curves.height == 2 * 3
    last = curves.filter(pl.col("step") == 30).drop("step")
    assert_frame_equal(last, bootstrap_interval(ended, resamples=2_000).table, check_exact=True)


def test_groups_of_ones_own_choice(ended: pl.DataFrame) -> None:
    games = bootstrap_interval(ended, "mean", by=("env", "algorithm"), resamples=100).table
    assert games.height == 22
    assert games["games"].unique().to_list() == [1]
    plain = ended.filter(pl.col("algorithm") == "dqn")
    everything = bootstrap_interval(plain, by=(), resamples=100).table
    assert everything["value"].to_list() == [iqm(plain["score"].to_numpy())]
    assert everything["runs"].to_list() == [55]


# Ragged tables.


def test_missing_seeds_are_counted_and_said(tidy: Tidy) -> None:
    scores: dict[Any, Any] = {
        ("dqn", "Pong"): [1, 2, 3, 4],
        ("dqn", "Alien"): [5, 6],
        ("ib-dqn", "Pong"): [1, 2, 3, 4],
        ("ib-dqn", "Alien"): [5, 6, 7, 8],
    }
    found = bootstrap_interval(tidy(scores), resamples=100)
    assert found.table["runs"].to_list() == [6, 8]
    assert found.table["left_out"].to_list() == [2, 0]
    assert found.table["value"].to_list() == [iqm([1, 2, 3, 4, 5, 6]), 4.5]
    assert found.notes == ("dqn k=0 lacks 2 of 8 runs: Alien 2",)


def test_a_missing_game_is_said(tidy: Tidy) -> None:
    scores = {("dqn", "Pong"): [1, 2], ("ib-dqn", "Pong"): [1, 2], ("ib-dqn", "Alien"): [5, 6]}
    found = bootstrap_interval(tidy(scores), resamples=100)
    assert found.table["games"].to_list() == [1, 2]
    assert found.notes == ("dqn k=0 lacks 2 of 4 runs: Alien 2",)


def test_other_seeds_are_as_good(tidy: Tidy) -> None:
    """Nobody has to run the same seed numbers."""
    one = tidy({("dqn", "Pong"): [1, 2]})
    other = tidy({("ib-dqn", "Pong"): [3, 4]}).with_columns(pl.col("seed") + 100)
    assert bootstrap_interval(pl.concat([one, other]), resamples=100).notes == ()


def test_evaluations_without_a_score_and_short_curves_are_said(tidy: Tidy) -> None:
    """At 200, seed 2 has ended early, and seed 1 has no score: one of three runs is left."""
    table = pl.concat(
        [
            tidy({("dqn", "Pong"): [1, 2, 3]}, step=100),
            tidy({("dqn", "Pong"): [4, float("nan")]}, step=200),
            tidy({("ib-dqn", "Pong"): [7, 8, 9]}, step=100),
        ]
    )
    found = iqm_curves(table, resamples=100)
    assert found.table["value"].to_list() == [2.0, 4.0, 8.0]
    assert found.table["runs"].to_list() == [3, 1, 3]
    assert found.table["left_out"].to_list() == [0, 2, 0]
    assert found.table["ci95_low"].is_null().to_list() == [False, True, False]
    assert found.notes == (
        "dqn k=0: 1 rows without a finite score are left out",
        "dqn k=0: 1 of 2 points are over fewer than its 3 runs, one of them over 1",
        "ib-dqn k=0 has 1 of 2 points, up to step 100",
    )


def test_a_group_without_any_value_is_said(tidy: Tidy) -> None:
    table = tidy({("dqn", "Pong"): [1, 2], ("rdq", "Pong"): [None, None]})
    found = bootstrap_interval(table, resamples=100)
    assert found.table["algorithm"].to_list() == ["dqn"]
    assert "rdq k=0 has no value of score and is not in the table" in found.notes


def test_one_run_a_game_has_no_interval(tidy: Tidy) -> None:
    found = bootstrap_interval(tidy({("dqn", "Pong"): [1], ("dqn", "Alien"): [2]}))
    row = found.table.to_dicts()[0]
    assert (row["value"], row["ci95_low"], row["ci95_high"]) == (1.5, None, None)
    assert found.notes == ("dqn k=0: one seed, no interval",)


# Differences.


def test_a_difference_by_a_naive_bootstrap(ended: pl.DataFrame) -> None:
    row = difference_interval(ended, "ib-dqn", "dqn", resamples=20_000).table.to_dicts()[0]
    better, plain = (matrix(ended, a) for a in ("ib-dqn", "dqn"))
    rng = np.random.default_rng(8)
    columns, drawn = np.arange(11), []
    for _ in range(2_000):
        one, other = (m[rng.integers(5, size=(5, 11)), columns] for m in (better, plain))
        drawn.append(stats.trim_mean(one, 0.25, axis=None) - stats.trim_mean(other, 0.25, axis=None))
    low, high = np.quantile(drawn, (0.025, 0.975))
    assert row["difference"] == pytest.approx(iqm(better) - iqm(plain), rel=1e-12)
    # 2,000 draws: 0.06 standard errors, a sixty-fifth of the width.
    assert row["ci95_low"] == pytest.approx(low, abs=5 / 65 * (high - low))
    assert row["ci95_high"] == pytest.approx(high, abs=5 / 65 * (high - low))
    assert (row["x"], row["y"], row["games"], row["runs_x"]) == ("ib-dqn", "dqn", 11, 55)


def test_a_k_is_named_with_its_column(tidy: Tidy) -> None:
    table = pl.concat([tidy({("ib-dqn", "Pong"): [k, k + 1.0]}, k=k) for k in (1.0, 18.0)])
    found = difference_interval(
        table, {"algorithm": "ib-dqn", "k": 18.0}, {"algorithm": "ib-dqn", "k": 1.0}, resamples=50
    )
    row = found.table.to_dicts()[0]
    assert (row["x"], row["y"], row["difference"]) == ("ib-dqn k=18", "ib-dqn k=1", 17.0)
    with pytest.raises(InvalidInput, match=r"duplicate rows for one run .*: add 'k' to `by`"):
        difference_interval(table, "ib-dqn", {"k": 1.0})


def test_games_that_one_alone_has_are_left_out_and_said(tidy: Tidy) -> None:
    scores = {("dqn", "Pong"): [1, 2], ("ib-dqn", "Pong"): [3, 4], ("ib-dqn", "Alien"): [9, 9]}
    found = difference_interval(tidy(scores), "ib-dqn", "dqn", resamples=50)
    assert found.table["difference"].to_list() == [2.0]
    assert found.notes == ("left out, because ib-dqn alone has them: Alien",)


# Bad input.


def test_bad_tables_are_refused(two_algorithms: pl.DataFrame, ended: pl.DataFrame) -> None:
    with pytest.raises(InvalidInput, match=r"duplicate rows for one run .*\(run_auc, final_scores\)"):
        bootstrap_interval(two_algorithms)
    with pytest.raises(InvalidInput, match=r"duplicate rows for one run .*: give each run once"):
        bootstrap_interval(pl.concat([ended, ended]))
    with pytest.raises(InvalidInput, match=r"duplicate rows .*: add 'step_size' to `by`"):
        bootstrap_interval(pl.concat([ended.with_columns(step_size=pl.lit(size)) for size in (0.1, 0.2)]))
    with pytest.raises(InvalidInput, match="no column 'gap': choose one of env, algorithm"):
        bootstrap_interval(ended, column="gap")
    with pytest.raises(InvalidInput, match="no rows"):
        bootstrap_interval(ended.clear())
    with pytest.raises(InvalidInput, match="no run has a value of 'score'"):
        bootstrap_interval(ended.with_columns(score=pl.lit(None, pl.Float64)))
    with pytest.raises(InvalidInput, match="unknown statistic 'iqr'"):
        bootstrap_interval(ended, "iqr")
    with pytest.raises(InvalidInput, match="no runs of rainbow: choose one of dqn k=0; ib-dqn k=0"):
        difference_interval(ended, "rainbow", "dqn")
    with pytest.raises(InvalidInput, match="no runs of ib-dqn k=high"):
        difference_interval(ended, {"algorithm": "ib-dqn", "k": "high"}, "dqn")
    with pytest.raises(InvalidInput, match="dqn is compared with itself"):
        difference_interval(ended, "dqn", "dqn")
    alone = ended.filter((pl.col("algorithm") == "dqn") == (pl.col("env") == "Game00"))
    with pytest.raises(InvalidInput, match="no environment in common"):
        difference_interval(alone, "ib-dqn", "dqn")


def test_a_curve_ends_where_not_all_of_its_games_have_come(tidy: Tidy) -> None:
    """Hard games are not at step 20 yet: the IQM of the easy one alone is not a point of the curve."""
    both = {("dqn", "Easy"): [10.0, 12.0], ("dqn", "Hard"): [0.0, 2.0], ("rdq", "Easy"): [1.0, 2.0]}
    easy = {("dqn", "Easy"): [11.0, 13.0], ("rdq", "Easy"): [1.0, 3.0]}
    table = pl.concat([tidy(both, step=10), tidy(easy, step=20)])
    curves = iqm_curves(table, resamples=50).table
    found = over_all_games(curves)
    assert found.table.select("algorithm", "step", "games").rows() == [
        ("dqn", 10, 2), ("rdq", 10, 1), ("rdq", 20, 1)
    ]  # fmt: skip
    (note,) = found.notes
    assert note.startswith("dqn k=0: 1 points are over fewer than its 2 environments and not shown")
    again = over_all_games(found.table)
    assert again.table.equals(found.table)
    assert again.notes == ()
