"""Figures of populations: what is drawn is what is in the tables."""

from statistics import stdev

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from valueshare.errors import InvalidInput
from valueshare.report.figures import curves
from valueshare.report.figures.style import series_style


def table(ks: list[float], means: list[float | None], half: float = 1.0) -> pl.DataFrame:
    return pl.DataFrame({"k": ks, "mean": means}, {"k": pl.Float64, "mean": pl.Float64}).with_columns(
        ci95_low=pl.col("mean") - half, ci95_high=pl.col("mean") + 2 * half
    )


def band(axes: Axes, x: float) -> tuple[float, float]:
    """The lowest and the highest shaded point at x."""
    collections = [c for c in axes.collections if isinstance(c, PolyCollection)]
    vertices = collections[0].get_paths()[0].vertices
    at = [y for px, y in np.asarray(vertices) if px == x]
    return min(at), max(at)


def test_auc_against_k_draws_line_band_zero_and_reference() -> None:
    figure = curves.against_k(table([16.0, 0.0, 1.0, 32_768.0], [30.0, 10.0, 20.0, -200.0]), "score")
    (axes,) = figure.axes
    reference, line = axes.lines
    assert list(np.asarray(reference.get_ydata())) == [10.0, 10.0]  # k = 0, dotted
    assert reference.get_linestyle() == ":"
    assert list(np.asarray(line.get_xdata())) == [0.0, 1.0, 16.0, 32_768.0]
    assert list(np.asarray(line.get_ydata())) == [10.0, 20.0, 30.0, -200.0]
    assert band(axes, 16.0) == (29.0, 32.0)
    assert axes.get_xscale() == "symlog"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "16", "32768"]
    x = axes.transData.transform([(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (4.0, 0.0)])[:, 0]
    assert x[1] > x[0]  # 0 has a place of its own
    assert x[3] - x[2] == pytest.approx(x[2] - x[1])  # and octaves are equally wide


def test_without_k_0_there_is_no_reference_and_one_seed_has_no_band() -> None:
    lonely = table([1.0, 2.0], [3.0, 4.0]).with_columns(
        ci95_low=pl.lit(None, pl.Float64), ci95_high=pl.lit(None, pl.Float64)
    )
    (axes,) = curves.against_k(lonely, "score").axes
    assert len(axes.lines) == 1
    assert not any(np.size(path.vertices) for c in axes.collections for path in c.get_paths())


def test_a_k_without_a_mean_is_not_drawn_and_nothing_to_draw_is_said() -> None:
    (axes,) = curves.against_k(table([0.0, 1.0, 2.0], [0.1, None, 0.3]), "relative_action_gap").axes
    assert list(np.asarray(axes.lines[-1].get_xdata())) == [0.0, 2.0]
    with pytest.raises(InvalidInput, match="overestimation"):
        curves.against_k(table([0.0], [None]), "overestimation")


def test_values_of_very_different_size_are_drawn_on_a_log_scale() -> None:
    narrow = curves.against_k(table([0.0, 1.0, 2.0], [1.0, 2.0, 40.0]), "overestimation")
    wide = curves.against_k(table([0.0, 1.0, 2.0], [1.0, 2.0, 4_000.0]), "overestimation")
    assert narrow.axes[0].get_yscale() == "linear"
    assert wide.axes[0].get_yscale() == "symlog"


def curve_table(ks: list[float]) -> pl.DataFrame:
    rows = [(k, step, k + step / 10) for k in ks for step in (0, 10_000)]
    frame = pl.DataFrame(rows, {"k": pl.Float64, "step": pl.Int64, "mean": pl.Float64}, orient="row")
    return frame.with_columns(ci95_low=pl.col("mean") - 1, ci95_high=pl.col("mean") + 1)


def test_learning_curves_are_those_of_the_papers_k() -> None:
    ks = [0.0, *(2.0**i for i in range(16))]
    _, axes = curves.sensitivity(curve_table(ks).filter(pl.col("step") == 0), curve_table(ks)).axes
    labels = [str(line.get_label()) for line in axes.lines]
    assert labels == [f"k = {k}" for k in (0, 16, 32, 256, 2048, 8192, 16384, 32768)]
    line = axes.lines[1]  # k = 16: scores 16 and 16 + 10,000 / 10
    assert list(np.asarray(line.get_ydata())) == [16.0, 1_016.0]
    lines = [(line.get_linestyle(), line.get_color()) for line in axes.lines]
    looks = [series_style("ib-dqn", k) for k in curves.CURVES]  # as in every other figure
    assert lines == [(own.line, own.colour) for own in looks]


def test_a_run_of_other_k_shows_its_own() -> None:
    assert curves.curves_shown(curve_table([0.0, 3.0, 5.0])) == [0.0, 3.0, 5.0]
    assert curves.curves_shown(curve_table([0.0, 16.0, 32.0, 64.0])) == [0.0, 16.0, 32.0]


def test_the_sensitivity_figure_has_both_panels() -> None:
    figure = curves.sensitivity(table([0.0, 16.0], [1.0, 2.0]), curve_table([0.0, 16.0, 32.0]))
    left, right = figure.axes
    assert list(np.asarray(left.lines[-1].get_ydata())) == [1.0, 2.0]
    assert len(right.lines) == 3


def test_sensitivity_by_game_shades_one_standard_deviation() -> None:
    scores = {("Pong", 0.0): [1.0, 2.0, 6.0], ("Pong", 32.0): [4.0], ("Alien", 0.0): [0.0, 1.0]}
    rows = [(e, k, s, v) for (e, k), values in scores.items() for s, v in enumerate(values)]
    table = pl.DataFrame(rows, ["env", "k", "seed", "value"], orient="row")
    (axes,) = curves.sensitivity_by_game(table).axes
    found = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in axes.lines}
    assert found == {"Pong": [[0.0, 3.0], [32.0, 4.0]], "Alien": [[0.0, 0.5]]}
    corners = np.asarray(axes.collections[1].get_paths()[0].vertices)  # Pong's
    at = [y for x, y in corners if x == 0.0]
    half = stdev([1.0, 2.0, 6.0])
    assert (min(at), max(at)) == pytest.approx((3 - half, 3 + half))
    assert "one standard deviation" in axes.get_title(loc="left")
    with pytest.raises(InvalidInput, match="nothing to draw"):
        curves.sensitivity_by_game(table.clear())
