"""Maps of two settings: what is drawn is what is in the table, also where much of it is missing."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.patches import Rectangle

from valueshare.errors import InvalidInput
from valueshare.report.figures.heat_map import HATCH, SettingsMap, colour_range, settings_maps
from valueshare.report.figures.style import contrast, rendered


def cells(rows: list[tuple[float, float, float | None, int, bool]], first: str = "k") -> pl.DataFrame:
    schema = {first: pl.Float64, "step_size": pl.Float64, "mean": pl.Float64, "diverged": pl.Int64, "best": pl.Boolean}
    return pl.DataFrame(rows, schema, orient="row")


def a_map(table: pl.DataFrame, first: str = "k") -> SettingsMap:
    return SettingsMap("LunarLander-v3, IB-DQN", (first, "step_size"), table, "mean AUC")


def full(xs: int, ys: int) -> pl.DataFrame:
    ks, sizes = [0.0, *(2.0**i for i in range(xs - 1))], [round(0.1 * 1.5**-i, 5) for i in range(ys)]
    return cells([(k, size, -100.0 * i + j, 0, j == 0) for i, k in enumerate(ks) for j, size in enumerate(sizes)])


def drawn(table: pl.DataFrame) -> Axes:
    return settings_maps([a_map(table)]).axes[0]


def numbers(axes: Axes) -> dict[tuple[float, float], str]:
    return {text.get_position(): text.get_text() for text in axes.texts}


def patches(axes: Axes, **wanted: Any) -> set[tuple[float, float]]:
    """Centres of rectangles: hatched ones, or outlines."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    kept = [one for one in found if (one.get_hatch() == HATCH) == wanted["hatched"]]
    return {(round(float(one.get_center()[0])), round(float(one.get_center()[1]))) for one in kept}


def test_colours_and_numbers_are_the_means() -> None:
    """k along x, step sizes up: the mean of k = 1 with 0.1 is 4 and stands at (1, 1)."""
    axes = drawn(
        cells([(0, 0.01, 1.0, 0, False), (0, 0.1, 2.0, 0, True), (1, 0.01, 3.0, 0, False), (1, 0.1, 4.0, 0, True)])
    )
    (mesh,) = (one for one in axes.collections if isinstance(one, QuadMesh))
    assert np.asarray(mesh.get_array()).reshape(2, 2).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert numbers(axes) == {(0, 0): "1.0", (1, 0): "3.0", (0, 1): "2.0", (1, 1): "4.0"}
    assert patches(axes, hatched=False) == {(0, 1), (1, 1)}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("k", "step size")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0.01", "0.1"]


@pytest.mark.parametrize(("xs", "ys"), [(9, 6), (17, 2), (2, 17)])
def test_numbers_have_room_and_the_longer_setting_goes_along_x(xs: int, ys: int) -> None:
    figure = settings_maps([a_map(full(xs, ys))])
    axes = figure.axes[0]
    assert axes.get_xlabel() == ("k" if xs > ys else "step size")
    labels = [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    assert not any("e" in label for label in labels)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == xs * ys
    width = abs(axes.transData.transform((1, 0))[0] - axes.transData.transform((0, 0))[0])
    assert max(box.width for box in boxes) < width


def test_numbers_without_room_are_left_out() -> None:
    wide = full(17, 2).with_columns(mean=pl.col("mean") * 1e9)
    assert not numbers(drawn(wide))


def test_numbers_can_be_read_on_every_colour() -> None:
    """WCAG 2.1 requires a contrast of 4.5. The scores are all colours of the map, in steps of 1/119."""
    axes = drawn(cells([(float(i), float(j), 12.0 * i + j, 0, False) for i in range(10) for j in range(12)]))
    (mesh,) = (one for one in axes.collections if isinstance(one, QuadMesh))
    assert len(axes.texts) == 120
    for text in axes.texts:
        (cell,) = mesh.to_rgba(np.array([float(text.get_text())]))
        assert contrast(text.get_color(), cell) > 4.5, text.get_text()


def test_missing_and_diverged_cells_are_told_apart() -> None:
    """(0, 0.1) was not run, (1, 0.01) has no score, of (1, 0.1) two runs diverged."""
    axes = drawn(cells([(0, 0.01, 1.0, 0, True), (1, 0.01, None, 0, False), (1, 0.1, 3.0, 2, False)]))
    assert patches(axes, hatched=True) == {(0, 1), (1, 0)}
    assert numbers(axes) == {(0, 0): "1.0", (1, 1): "3.0"}
    (crosses,) = (one for one in axes.collections if isinstance(one, PathCollection))
    assert [tuple(np.floor(at + 0.5)) for at in np.asarray(crosses.get_offsets())] == [(1.0, 1.0)]
    legend = axes.figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["best of each k", "runs diverged", "no score"]


def test_a_diverged_cell_without_a_score_has_both_marks() -> None:
    axes = drawn(cells([(0, 0.01, 1.0, 0, True), (1, 0.01, None, 3, False)]))
    assert patches(axes, hatched=True) == {(1, 0)}
    assert len([one for one in axes.collections if isinstance(one, PathCollection)]) == 1


def test_equal_scores_and_several_maps() -> None:
    flat = full(3, 2).with_columns(mean=pl.lit(5.0))
    empty = flat.with_columns(mean=pl.lit(None, pl.Float64), best=pl.lit(False))
    figure = settings_maps([a_map(flat), a_map(empty), a_map(full(3, 2))])
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")] == [
        "LunarLander-v3, IB-DQN"
    ] * 3
    assert set(numbers(figure.axes[0]).values()) == {"5.0"}
    assert all(rendered(figure).values())


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(InvalidInput, match="nothing to draw"):
        settings_maps([a_map(full(2, 2).with_columns(mean=pl.lit(None, pl.Float64)))])


def test_one_failure_does_not_take_all_colours() -> None:
    """Best 10, median 8: colours go down to 10 - 3 x 2 = 4; without the failure to the worst, 7."""
    scale, ends = colour_range(np.array([10.0, 9.0, 8.0, 7.0, -1_000.0]))
    assert (scale.vmin, scale.vmax, ends) == (4.0, 10.0, "min")
    scale, ends = colour_range(np.array([10.0, 9.0, 8.0, 7.0]))
    assert (scale.vmin, scale.vmax, ends) == (7.0, 10.0, "neither")
