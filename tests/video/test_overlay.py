"""Frames: bars, marks and scales."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from valueshare.video.overlay import (
    HEIGHT,
    PANEL,
    ROWS_TOP,
    Axis,
    Captions,
    Overlay,
    fit_size,
    number_text,
    scaled,
)
from valueshare.video.rollouts import RolloutStep, Values

# Drawing


def step_with(q: list[float], b: float, action: int, picture: Any = None) -> RolloutStep:
    values = Values(np.array(q), b, np.array(q) - b)
    return RolloutStep(1, 0, 0.0, values, action, int(np.argmax(q)), np.array([0.5, -2.0]), picture)


def orange(frame: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The bars of residuals, below the table's heads."""
    matches: NDArray[np.bool_] = np.all(frame[ROWS_TOP:] == (0xE6, 0x9F, 0x00), axis=-1)
    return matches


def test_the_bars_of_the_residuals_are_as_long_as_they_are() -> None:
    """b = 0, q = z = (1, 0.5, -0.5): orange pixels of the right column are as 2 : 1 : 1."""
    captions = Captions("title", "b", "q", ("one", "two", "three"))
    taken = step_with([1.0, 0.5, -0.5], 0.0, action=0)
    frame = Overlay(captions, taken).draw(taken)
    assert frame.shape == (HEIGHT, 480 + PANEL, 3)
    column = orange(frame)[:, -230:]  # without the bars of q
    rows = [column[36 * n : 36 * (n + 1)].any(0).sum() for n in range(3)]
    # The scale goes from -0.5 to 1 over 94 pixels: 62, 31 and 31 for (1, 0.5, -0.5), and the line
    # of the zero hides one.
    np.testing.assert_allclose(rows, [62, 31, 31], atol=1)


def test_the_chosen_action_is_marked_and_exploration_told_apart() -> None:
    captions = Captions("title", "b", "q", ("one", "two"))
    green, purple = (0x00, 0x9E, 0x73), (0xCC, 0x79, 0xA7)
    for action, colour in ((0, green), (1, purple)):
        taken = step_with([1.0, 0.5], 0.2, action)
        frame = Overlay(captions, taken).draw(taken)
        edge = (frame[ROWS_TOP:, 480 + 7] == colour).all(-1)
        assert edge.sum() == 35
        assert edge[36 * action : 36 * (action + 1)].sum() == 35


def test_values_that_are_not_finite_are_drawn_as_such() -> None:
    captions = Captions("title", "b", "q", ("one", "two"))
    taken = step_with([float("nan"), float("inf")], float("nan"), 0)
    assert not orange(Overlay(captions, taken).draw(taken)).any()
    assert number_text(float("nan"), 2) == "nan"


def test_scales_grow_in_steps_and_never_shrink() -> None:
    axis = Axis()
    assert axis.pixel(3.0, 10) == 0
    for value, ends in ((0.9, (0, 1)), (-0.13, (-0.15, 1)), (0.1, (-0.15, 1)), (31, (-0.15, 40))):
        axis.include(np.array([value]))
        assert (axis.low, axis.high) == pytest.approx(ends)
    assert (axis.pixel(axis.low, 100), axis.pixel(axis.high, 100)) == (0, 99)
    assert number_text(12.345, axis.decimals) == "12.35"
    assert number_text(-0.001, axis.decimals) == "0.00"


def test_pictures_keep_their_pixels_or_shrink() -> None:
    assert fit_size(210, 160) == (630, 480)
    assert fit_size(400, 600) == (400, 600)
    assert fit_size(1280, 640) == (640, 320)
    picture = np.random.default_rng(0).integers(0, 256, (4, 3, 3)).astype(np.uint8)
    np.testing.assert_array_equal(scaled(picture, 8, 6)[::2, 1::2], picture)
    assert scaled(picture, 2, 1).shape == (2, 1, 3)


def test_many_actions_fit() -> None:
    captions = Captions("title", "b", "q", tuple(f"action {n}" for n in range(60)))
    taken = step_with([float(n) for n in range(60)], 0.0, 59)
    assert Overlay(captions, taken).draw(taken).shape[0] == HEIGHT
