"""The packed curves of the panel, against arithmetic that can be followed by hand."""

import base64
import tracemalloc

import numpy as np
import polars as pl
import pytest
from synthetic import RESAMPLES, TWO, data_of, synthetic_results, tidy

from valueshare.analysis.importers.results import Results
from valueshare.report.data import report_data
from valueshare.report.page.curve_data import NONE, _bands, curve_data, quantised


def test_numbers_are_packed_to_a_scale_of_their_own() -> None:
    codes, low, unit = quantised(np.array([0.0, 1.0, np.nan, 2.0]))
    assert codes.tolist() == [0, 32_767, NONE, 65_534]
    assert (low, unit) == (0.0, 2 / 65_534)
    codes, low, unit = quantised(np.array([7.0, 7.0]))  # one value: nothing to divide by
    assert (codes.tolist(), low, unit) == ([0, 0], 7.0, 0.0)
    assert quantised(np.array([np.nan]))[0].tolist() == [NONE]


def test_numbers_whose_range_would_overflow_are_left_out() -> None:
    """1.5e308 - (-1.5e308) is infinite in double precision, and so is 1.5e308 + 1.5e308. Warnings are errors here."""
    codes, low, unit = quantised(np.array([-1.5e308, 1.5e308, 0.0, 2.0]))
    assert (codes.tolist(), low, unit) == ([NONE, NONE, 0, 65_534], 0.0, 2 / 65_534)
    codes, low, unit = quantised(np.array([-1e300, 1e300, 0.0]))
    assert (codes.tolist(), low, unit) == ([0, 65_534, 32_767], -1e300, 2e300 / 65_534)
    data = curve_data(data_of({("Here", "dqn", 0.0, seed): [float(seed), 1.5e308] for seed in (0, 1)}))[0]
    ((curve,),) = (view["curves"]["score"] for view in data["views"])
    assert decoded(data, curve, 0, 2) == pytest.approx([0.5, np.nan], nan_ok=True)


def test_packed_numbers_come_back_within_half_a_step() -> None:
    row = np.random.default_rng(0).normal(0, 1e6, 500)
    codes, low, unit = quantised(row)
    assert np.abs(low + unit * codes - row).max() <= unit / 2 * (1 + 1e-9)


def decoded(data: dict[str, object], curve: list[int], row: int, length: int) -> list[float]:
    """A row of a curve, as the page's script reads it."""
    values = np.frombuffer(base64.b64decode(str(data["values"])), "<u2")
    scales = np.frombuffer(base64.b64decode(str(data["scales"])), "<f8").reshape(-1, 2)
    codes = values[curve[2] + row * length :][:length].astype(float)
    low, unit = scales[curve[1] + row]
    return [float(v) for v in np.where(codes == NONE, np.nan, low + unit * codes)]


def test_curves_hold_means_intervals_and_seeds() -> None:
    ragged = {**TWO, ("Here", "dqn", 0.0, 1): [2.0, None]}
    data = curve_data(data_of(ragged))[0]
    (view,) = data["views"]
    assert (view["label"], data["grids"][view["grid"]]) == ("Here", [0, 10])
    plain, layered = view["curves"]["score"]
    names = [variant["label"] for variant in data["variants"]]
    assert names == ["DQN", "IB-DQN(4)"]
    assert [plain[0], layered[0]] == [0, 1]
    assert decoded(data, plain, 0, 2) == pytest.approx([1.0, 2.0])  # mean of 0, 2; then of 2 alone
    assert decoded(data, plain, 1, 2) == pytest.approx([0.0, np.nan], nan_ok=True)  # no interval
    assert decoded(data, plain, 4, 2) == pytest.approx([2.0, np.nan], nan_ok=True)  # the 2nd seed
    assert decoded(data, layered, 0, 2) == pytest.approx([11.0, 13.0])
    assert decoded(data, layered, 2, 2) == pytest.approx([12.0, 14.0])  # high: both times the best
    assert [variant["dash"] for variant in data["variants"]] == [(), (3.2, 1.4)]


def test_the_headlines_curves_are_on_at_first() -> None:
    found = data_of(TWO)
    assert [v["on"] for v in curve_data(found)[0]["variants"]] == [True, True]
    assert [v["on"] for v in curve_data(found, found.variants[1:])[0]["variants"]] == [False, True]


def test_k_0_is_called_by_its_name() -> None:
    zero = {(env, "ib-dqn", k, seed): own for (env, _, k, seed), own in TWO.items()}
    assert [v["chip"] for v in curve_data(data_of(zero))[0]["variants"]] == ["DQN", "k = 4"]
    actions = {("Breakout-MinAtar", "ib-dqn", k, 0): [1.0, 2.0] for k in (0.0, 1.0, 6.0)}
    variants = curve_data(data_of(actions))[0]["variants"]
    assert [(v["label"], v["chip"]) for v in variants][1:] == [("IB-DQN(1)", "k = 1"), ("IB-DQN(n)", "k = n")]


def test_the_clock_is_the_mean_of_the_runs_that_have_one() -> None:
    table = tidy(TWO).table.with_columns(seconds=pl.Series([0.0, 10.0, 2.0, None, 0.0, 5.0, None, None]))
    data = curve_data(report_data(Results(table, (), ()), RESAMPLES))[0]
    plain, layered = data["views"][0]["clock"]
    assert decoded(data, plain, 0, 2) == pytest.approx([1.0, 10.0])  # mean of 0 and 2, then 10 alone
    assert decoded(data, layered, 0, 2) == pytest.approx([0.0, 5.0])
    assert "clock" not in curve_data(data_of(TWO))[0]["views"][0]


def test_environments_of_one_game_are_told_apart() -> None:
    both = {(f"ALE/Pong-v{v}", *key[1:]): own for v in (4, 5) for key, own in TWO.items()}
    labels = [view["label"] for view in curve_data(data_of(both))[0]["views"]]
    assert labels == ["All 2 games", "Pong", "Pong (2)"]


def test_all_games_together_are_the_interquartile_mean() -> None:
    table = synthetic_results(games=3, seeds=2, points=2)
    found = report_data(Results(table, (), ()), RESAMPLES)
    data = curve_data(found)[0]
    view = data["views"][0]
    assert view["label"] == "All 3 games"
    own = found.normalized.filter((pl.col("algorithm") == "dqn") & (pl.col("step") == 25_000_000))
    six = np.sort(own["normalized"].to_numpy())  # 3 games x 2 seeds: one is cut at each end
    assert decoded(data, view["curves"]["score"][0], 0, 2)[0] == pytest.approx(six[1:5].mean(), 1e-4)


def test_one_variant_with_many_runs_takes_no_memory_for_the_others() -> None:
    """200 variants of one run and one of 200, 500 steps: 1.6 MB of numbers, which padding would make 160 MB."""
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(1, 500)) for _ in range(200)] + [rng.normal(size=(200, 500))]
    tracemalloc.start()
    bands = _bands(groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    np.testing.assert_allclose(bands[0][0], groups[0][0])  # a single run is its mean
    np.testing.assert_allclose(bands[200][0], groups[200].mean(axis=0))
