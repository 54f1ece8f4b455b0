"""Means over training and intervals over seeds, against hand arithmetic and SciPy."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from valueshare.analysis.intervals import mean_intervals
from valueshare.errors import InvalidInput


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no column 'k'"):
        mean_intervals(pl.DataFrame({"score": [1.0]}), ["k"], "score")


def test_intervals_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    groups = {0.0: rng.exponential(10, 120), 4.0: rng.normal(3, 5, 120), 8.0: rng.normal(0, 1, 30)}
    table = pl.DataFrame({"k": np.repeat(list(groups), [120, 120, 30]), "value": np.concatenate([*groups.values()])})
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
    assert found.equals(mean_intervals(table.sample(fraction=1, shuffle=True, seed=3), ["k"], resamples=500))
    alone = mean_intervals(table.filter(pl.col("k") == 1), ["k"], resamples=500)
    assert alone.equals(found.filter(pl.col("k") == 1))
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
