"""IQM curves with the lines of sample efficiency, the geometry of the layer, sensitivity to k."""

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes

from valueshare.report.figures import aggregates
from valueshare.report.figures.style import contrast
from valueshare.report.figures.variants import find_variants


def curve(algorithm: str, k: float, values: list[float]) -> pl.DataFrame:
    rows = [(algorithm, k, 10 * (t + 1), value) for t, value in enumerate(values)]
    table = pl.DataFrame(rows, ["algorithm", "k", "step", "value"], orient="row")
    return table.with_columns(ci95_low=pl.col("value") - 0.1, ci95_high=pl.col("value") + 0.2)


CURVES = pl.concat(
    [
        curve("dqn", 0.0, [0.2, 0.9, 1.0, 0.8]),
        curve("ib-dqn", 18.0, [0.5, 1.0, 1.2, 1.3]),  # reaches 1.0 at step 20
        curve("ib-dqn", 1.0, [0.3, 0.7, 1.1, 1.1]),  # at step 30: later, so it has no line
        curve("ib-iqn", 18.0, [0.1, 0.2, 0.3, 0.4]),  # there is no IQN to compare with
    ]
)


def drawn(axes: Axes) -> dict[str, tuple[list[float], list[float], str]]:
    return {
        str(line.get_label()): (
            np.asarray(line.get_xdata(orig=True)).tolist(),
            np.asarray(line.get_ydata(orig=True)).tolist(),
            str(line.get_linestyle()),
        )
        for line in axes.lines
    }


def test_iqm_curves_with_bands_names_and_the_line_of_sample_efficiency() -> None:
    (axes,) = aggregates.draw_iqm_curves(CURVES.sample(fraction=1, shuffle=True, seed=0), n=18).axes
    found = drawn(axes)
    assert found["DQN"] == ([10, 20, 30, 40], [0.2, 0.9, 1.0, 0.8], "-")
    assert found["IB-DQN(n)"] == ([10, 20, 30, 40], [0.5, 1.0, 1.2, 1.3], "--")
    # From DQN's best, 1.0 at step 30, back to step 20, and down.
    assert found["_reached"] == ([30, 20, 20], [1.0, 1.0, 0.0], ":")
    assert [str(line.get_label()) for line in axes.lines].count("_reached") == 1
    corners = np.asarray(axes.collections[2].get_paths()[0].vertices)  # DQN's band
    at = [y for x, y in corners if x == 20]
    assert (min(at), max(at)) == pytest.approx((0.8, 1.1))
    assert [text.get_text() for text in axes.texts] == ["20"]
    legend = axes.figure.legends[0].get_texts()
    assert min(contrast(text.get_color(), "white") for text in (*legend, *axes.texts)) >= 4.5
    names = [text.get_text() for text in legend]
    assert names == ["IB-DQN(n)", "IB-DQN(1)", "DQN", "IB-IQN(n)"]  # as the lines end, from above


def test_names_are_beside_the_lines() -> None:
    names = ("dqn", "rdq", "iqn", "dueling-dqn")
    figure = aggregates.draw_iqm_curves(
        pl.concat([curve(name, 0.0, [0.1, 1.0 + 0.001 * i]) for i, name in enumerate(names)])
    )
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 4
    assert legend.get_window_extent().x0 >= figure.axes[0].get_window_extent().x1


def test_k_0_stands_in_for_the_plain_algorithm_and_never_reached_is_no_line() -> None:
    table = pl.concat([curve("ib-dqn", 0.0, [0.5, 1.0]), curve("ib-dqn", 4.0, [1.5, 1.5])])
    (line,) = aggregates.efficiency_lines(table, find_variants(table))
    assert (line.sooner.k, line.reached.step) == (4.0, 10)
    low = pl.concat([curve("dqn", 0.0, [0.5, 1.0]), curve("ib-dqn", 4.0, [0.5, 0.9])])
    assert aggregates.efficiency_lines(low, find_variants(low)) == []
