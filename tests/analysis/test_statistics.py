"""Statistics without intervals: by hand, and as rliable has them."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from valueshare import InvalidInput
from valueshare.analysis import iqm, optimality_gap
from valueshare.analysis.statistics import point_estimates

metrics = import_module("rliable.metrics")
scores = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def test_the_middle_half_by_hand() -> None:
    # Eight values: two are dropped at either end, (2 + 3 + 4 + 5) / 4 = 3.5.
    assert iqm([100, 1, 6, 5, 4, 3, 2, -50]) == 3.5
    # Seven values: floor(7 / 4) = 1 at either end, (2 + 3 + 4 + 5 + 6) / 5 = 4.
    assert iqm([7, 6, 5, 4, 3, 2, 1]) == 4.0
    assert iqm([3.0]) == 3.0
    assert iqm(np.array([[100, 1, 6, 5], [4, 3, 2, -50]])) == 3.5  # of any shape


@settings(max_examples=50)
@given(scores)
def test_iqm_and_gap_are_those_of_rliable(values: list[float]) -> None:
    array = np.array(values)[:, None]
    assert iqm(values) == pytest.approx(metrics.aggregate_iqm(array), rel=1e-12, abs=1e-12)
    gap = metrics.aggregate_optimality_gap(array)
    assert optimality_gap(values) == pytest.approx(gap, rel=1e-12, abs=1e-9)


def test_gap_by_hand() -> None:
    assert optimality_gap([0.5, 2.0, -1.0]) == pytest.approx((0.5 + 0 + 2.0) / 3)
    assert optimality_gap([0.5, 2.0], threshold=3) == pytest.approx((2.5 + 1.0) / 2)


def test_all_statistics_of_many_cells_are_those_of_rliable() -> None:
    rng = np.random.default_rng(0)
    runs = rng.gamma(0.5, 2.0, size=(4, 57, 5))  # cells, games, seeds
    ours = {
        "iqm": metrics.aggregate_iqm,
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "optimality_gap": metrics.aggregate_optimality_gap,
    }
    for name, theirs in ours.items():
        found = point_estimates(runs.reshape(4, -1), np.full(57, 5), name)
        # rliable wants [seeds, games].
        np.testing.assert_allclose(found, [theirs(cell.T) for cell in runs], rtol=1e-12)


def test_ragged_games_count_once_in_means_and_by_their_runs_otherwise() -> None:
    values, sizes = np.array([[0.0, 4.0, 2.0, 9.0]]), np.array([3, 1])
    assert point_estimates(values, sizes, "mean")[0] == pytest.approx((2 + 9) / 2)
    assert point_estimates(values, sizes, "median")[0] == pytest.approx((2 + 9) / 2)
    assert point_estimates(values, sizes, "run_mean")[0] == pytest.approx(15 / 4)
    assert point_estimates(values, sizes, "iqm")[0] == pytest.approx((2 + 4) / 2)
    assert point_estimates(values, sizes, lambda rows: rows.max(axis=-1))[0] == 9


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no values"):
        iqm([])
    with pytest.raises(InvalidInput, match="not a finite number"):
        iqm([1.0, float("nan")])
    with pytest.raises(InvalidInput, match="unknown statistic 'iqr': write iqm, mean"):
        point_estimates(np.ones((1, 2)), np.array([2]), "iqr")
