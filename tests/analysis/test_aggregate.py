"""Means over training and intervals over seeds, against hand arithmetic and SciPy."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats

from valueshare.analysis.aggregate import agent_means, auc, bootstrap_means, mean_intervals
from valueshare.errors import InvalidInput


def records(rows: Sequence[tuple[int, int, float | None]]) -> pl.DataFrame:
    schema = {"agent": pl.Int64, "step": pl.Int64, "score": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def test_auc_is_the_mean_of_an_agents_evaluations() -> None:
    # Agent 0: (-100 + 20 + 140) / 3 = 20. Agent 1: (0 + 30 + 60) / 3 = 30.
    rows = [
        (0, 0, -100.0),
        (0, 10, 20.0),
        (0, 20, 140.0),
        (1, 0, 0.0),
        (1, 10, 30.0),
        (1, 20, 60.0),
    ]
    table = auc(records(rows))
    assert table["agent"].to_list() == [0, 1]
    assert table["value"].to_list() == [20.0, 30.0]
    assert table["missing"].to_list() == [0, 0]


def test_a_curve_with_a_hole_or_a_missing_end_has_no_auc() -> None:
    # Without its null, agent 1 would have (50 + 60) / 2 = 55: its bad start would be forgotten.
    rows = [
        *[(0, 0, 0.0), (0, 10, 10.0), (0, 20, 20.0)],
        *[(1, 0, None), (1, 10, 50.0), (1, 20, 60.0)],
        *[(2, 0, 0.0), (2, 10, 5.0)],
        *[(3, 0, 0.0), (3, 10, float("nan")), (3, 20, float("inf"))],
    ]
    table = auc(records(rows))
    assert table["value"].to_list() == [10.0, None, None, None]
    assert table["points"].to_list() == [3, 2, 2, 1]
    assert table["missing"].to_list() == [0, 1, 1, 2]


def test_a_step_at_which_nobody_has_a_value_is_no_point() -> None:
    # An action gap does not exist before training: step 0 is null for all, and costs nobody theirs.
    rows = [(0, 0, None), (0, 10, 1.0), (0, 20, 3.0), (1, 0, None), (1, 10, 2.0), (1, 20, 2.0)]
    assert agent_means(records(rows), "score")["value"].to_list() == [2.0, 2.0]


def test_an_agent_twice_and_a_column_that_is_not_there_are_refused() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        auc(records([(0, 0, 1.0), (0, 0, 1.0)]))
    with pytest.raises(InvalidInput, match="no column 'gap': choose one of agent, step, score"):
        agent_means(records([(0, 0, 1.0)]), "gap")
    with pytest.raises(InvalidInput, match="no column 'k'"):
        mean_intervals(records([(0, 0, 1.0)]), ["k"], "score")


def test_bootstrap_means_are_means_of_draws_with_replacement() -> None:
    # Of (0, 1), the mean of two draws is 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4.
    means = bootstrap_means(np.array([[0.0, 1.0], [0.0, 10.0]]), 20_000, seed=0)
    values, counts = np.unique(means[0], return_counts=True)
    assert values.tolist() == [0.0, 0.5, 1.0]
    # Standard error of a frequency: sqrt(0.25 * 0.75 / 20,000) = 0.003; four of them are allowed.
    np.testing.assert_allclose(counts / 20_000, [0.25, 0.5, 0.25], atol=0.0125)
    np.testing.assert_array_equal(means[1], 10 * means[0])  # groups share the draws


def test_intervals_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    groups = {0.0: rng.exponential(10, 120), 4.0: rng.normal(3, 5, 120), 8.0: rng.normal(0, 1, 30)}
    table = pl.DataFrame(
        {"k": np.repeat(list(groups), [120, 120, 30]), "value": np.concatenate([*groups.values()])}
    )
    found = mean_intervals(table, ["k"], resamples=20_000)
    assert found["k"].to_list() == [0.0, 4.0, 8.0]
    assert found["agents"].to_list() == [120, 120, 30]
    for row in found.to_dicts():
        values = groups[row["k"]]
        error = values.std() / np.sqrt(len(values))
        other = stats.bootstrap(
            (values,),
            np.mean,
            n_resamples=20_000,
            method="percentile",
            rng=np.random.default_rng(2),
        ).confidence_interval
        assert row["mean"] == pytest.approx(values.mean(), rel=1e-12)
        # A 2.5 % quantile of 20,000 draws is known to about 0.02 standard errors; five are allowed.
        assert row["ci95_low"] == pytest.approx(other.low, abs=0.1 * error)
        assert row["ci95_high"] == pytest.approx(other.high, abs=0.1 * error)


def test_intervals_depend_on_the_numbers_and_the_seed_alone() -> None:
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"k": np.repeat([0.0, 1.0], 20), "value": rng.normal(size=40)})
    found = mean_intervals(table, ["k"], resamples=500)
    assert found.equals(
        mean_intervals(table.sample(fraction=1, shuffle=True, seed=3), ["k"], resamples=500)
    )
    alone = mean_intervals(table.filter(pl.col("k") == 1), ["k"], resamples=500)
    # To rounding: a matrix product of one row adds in another order.
    assert_frame_equal(alone, found.filter(pl.col("k") == 1), rel_tol=1e-12)
    assert not found.equals(mean_intervals(table, ["k"], resamples=500, seed=1))


def test_what_is_left_out_is_counted() -> None:
    values = [1.0, 3.0, None, float("nan"), 5.0, float("inf"), None, 7.0]
    table = pl.DataFrame({"k": [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0], "value": values})
    found = mean_intervals(table, ["k"], resamples=100)
    assert found["agents"].to_list() == [2, 1, 0, 1]
    assert found["left_out"].to_list() == [2, 1, 1, 0]
    assert found["mean"].to_list() == [2.0, 5.0, None, 7.0]  # (1 + 3) / 2; one each
    # One agent has no interval; two have one from the smaller to the larger value.
    assert found["ci95_low"].to_list() == [1.0, None, None, None]
    assert found["ci95_high"].to_list() == [3.0, None, None, None]


def test_groups_of_two_columns_and_an_empty_table() -> None:
    table = pl.DataFrame({"k": [0.0, 0.0, 1.0], "step": [0, 10, 0], "score": [1.0, 2.0, 3.0]})
    found = mean_intervals(table, ["k", "step"], "score", resamples=10)
    assert found.select("k", "step", "mean").rows() == [
        (0.0, 0, 1.0),
        (0.0, 10, 2.0),
        (1.0, 0, 3.0),
    ]
    assert mean_intervals(table.clear(), ["k"], "score").columns == [
        *("k", "mean", "ci95_low", "ci95_high", "agents", "left_out")
    ]
