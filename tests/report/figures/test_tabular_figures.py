"""Figures of tabular studies draw the table they are given."""

from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from numpy.testing import assert_array_equal

from valueshare.report.figures import tabular as figures
from valueshare.report.figures.style import FORMATS, rendered

KS = [0.0, 0.4, 1.6, 6.4]
REGIMES = [500, 1_000]


def increases(cases: list[float | None], seed: int = 0) -> pl.DataFrame:
    """A table as `tuned_increase` answers it, with random numbers."""
    rng = np.random.default_rng(seed)
    rows = [
        {"step_reward": case, "regime": regime, "k": k, "increase_percent": float(middle)}
        | {"ci95_low": float(middle - width), "ci95_high": float(middle + width)}
        for case in cases
        for regime in REGIMES
        for k in KS
        for middle, width in [rng.random(2)]
    ]
    return pl.DataFrame(rows, schema_overrides={"step_reward": pl.Float64})


def lines(axes: Axes, at_least: int = 3) -> list[Any]:
    """The lines of data; reference lines have two points."""
    return [line for line in axes.get_lines() if np.size(line.get_xdata(orig=True)) >= at_least]


def band(collection: Any) -> tuple[dict[float, float], dict[float, float]]:
    """The lower and upper edge of a shaded band, by x."""
    corners = cast(PolyCollection, collection).get_paths()[0].vertices
    edges: dict[float, list[float]] = {}
    for x, y in np.asarray(corners):
        edges.setdefault(float(x), []).append(float(y))
    return {x: min(ys) for x, ys in edges.items()}, {x: max(ys) for x, ys in edges.items()}


@pytest.mark.parametrize("cases", [[-1.0, 0.0], [None]])
def test_the_increase_figure_draws_its_tables(cases: list[float | None]) -> None:
    left, right = increases(cases, seed=1), increases(cases, seed=2)
    # Rows may come in any order.
    figure = figures.draw_tuned_increase(
        (("left", left), ("right", right.reverse().sort("step_reward", maintain_order=True))),
        measure="reward",
    )
    panels = figure.get_axes()
    assert len(panels) == 2 * len(cases)
    for panel, (case, table) in zip(panels, [(case, table) for case in cases for table in (left, right)], strict=True):
        drawn = lines(panel)
        assert [line.get_label() for line in drawn] == ["500 timesteps", "1,000 timesteps"]
        for regime, line, shade in zip(REGIMES, drawn, panel.collections, strict=True):
            expected = table.filter(pl.col("step_reward").eq_missing(case) & (pl.col("regime") == regime))
            assert_array_equal(line.get_xdata(orig=True), KS)
            assert_array_equal(line.get_ydata(orig=True), expected["increase_percent"])
            low, high = band(shade)
            assert low == dict(zip(KS, expected["ci95_low"], strict=True))
            assert high == dict(zip(KS, expected["ci95_high"], strict=True))
        assert panel.get_xscale() == "symlog"
    ticks = [tick.get_text() for tick in panels[-1].get_xticklabels()]  # those above share them
    assert ticks == ["0", "0.4", "1.6", "6.4"]
    assert panels[0].get_ylabel() == "reward: increase over\nk = 0, in %"
    assert panels[0].get_title(loc="left") == ("left" if cases == [None] else "-1 per step · left")


def norms(cases: list[float | None], ks: list[float]) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    rows = [
        {"step_reward": case, "k": k, "step_size": 0.1, "step": step}
        | {name: float(rng.random()) for name in ("norm_q", "norm_u", "norm_z")}
        | {f"{name}_ci95_low": -0.1 for name in ("norm_q", "norm_u", "norm_z")}
        | {f"{name}_ci95_high": 1.3 for name in ("norm_q", "norm_u", "norm_z")}
        for case in cases
        for k in ks
        for step in (0, 50, 100, 150)
    ]
    return pl.DataFrame(rows, schema_overrides={"step_reward": pl.Float64})


@pytest.mark.parametrize("cases", [[-1.0, 0.0], [None]])
def test_the_norm_figure_draws_its_table(cases: list[float | None]) -> None:
    table = norms(cases, KS)
    panels = figures.norm_reduction(table).get_axes()
    width = 3 + 1  # k = 0.4, 1.6, 6.4, and the end
    assert len(panels) == width * len(cases)
    for row, case in enumerate(cases):
        own = table.filter(pl.col("step_reward").eq_missing(case))
        for panel, k in zip(panels[row * width :], KS[1:], strict=False):
            expected = own.filter(pl.col("k") == k)
            assert panel.get_title(loc="left").endswith(f"k = {k:g}")
            for line, name in zip(lines(panel), ("norm_q", "norm_u", "norm_z"), strict=True):
                assert_array_equal(line.get_xdata(orig=True), [0, 50, 100, 150])
                assert_array_equal(line.get_ydata(orig=True), expected[name])
            low, high = band(panel.collections[0])
            assert (low[50], high[50]) == (-0.1, 1.3)
        last = own.filter(pl.col("step") == 150)
        for line, name in zip(lines(panels[row * width + 3]), ("norm_q", "norm_u", "norm_z"), strict=True):
            assert_array_equal(line.get_xdata(orig=True), KS)
            assert_array_equal(line.get_ydata(orig=True), last[name])


def test_what_has_no_number_is_a_gap() -> None:
    """Nulls, which stand for runs that diverged, are drawn as nothing, and warn of nothing."""
    gone = pl.when(pl.col("k") < 6.4).then(pl.col("increase_percent", "ci95_low", "ci95_high"))
    table = increases([None]).with_columns(gone)
    figure = figures.draw_tuned_increase((("one", table),))
    for line in lines(figure.get_axes()[0]):
        assert np.isnan(line.get_ydata(orig=True)).tolist() == [False, False, False, True]
    assert rendered(figure)


@pytest.mark.parametrize("ks", [[0.0], [0.0, 2.0], [3.0]])
def test_few_k_still_make_figures(ks: list[float]) -> None:
    table = increases([None]).filter(pl.col("k") == 0.0)
    few = pl.concat([table.with_columns(k=pl.lit(k)) for k in ks])
    increase, reduction = (
        figures.draw_tuned_increase((("few", few),)),
        figures.norm_reduction(norms([None], ks)),
    )
    for figure in (increase, reduction):
        assert rendered(figure)
        assert all(axes.has_data() for axes in figure.axes)
    drawn = [line for line in increase.axes[0].get_lines() if np.size(line.get_xdata()) == len(ks)]
    assert drawn  # a curve with a point for each k


def test_the_same_figure_is_the_same_file() -> None:
    one, two = (rendered(figures.draw_tuned_increase((("a", increases([None])),))) for _ in range(2))
    assert tuple(one) == FORMATS
    assert one == two
    assert [image[:5] for image in one.values()] == [b"\x89PNG\r", b"<?xml", b"%PDF-"]
