"""Plain numbers: no exponents, whole numbers exact, and different numbers written differently; ranges of numbers."""

from collections.abc import Iterable

import pytest

from valueshare.runs.variants import shown_score
from valueshare.text import format_number, interval_text, plain_number, plain_numbers, ranges, suggestion


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (32_768.0, "32768"), (1e-3, "0.001"), (3e-5, "0.00003"), (0.00031623, "0.000316"), (-2.5, "-2.5")],
)
def test_a_number_without_an_exponent(value: float, text: str) -> None:
    assert plain_number(value) == text


def test_as_many_digits_as_tell_numbers_apart() -> None:
    assert plain_numbers([0.0001, 0.1]) == ["0.0001", "0.1"]
    assert plain_numbers([0.10001, 0.10002]) == ["0.10001", "0.10002"]
    assert plain_numbers([]) == []


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (range(30), "0 to 29"),
        ([7], "7"),
        ([5, 3, 4, 3, 5], "3 to 5"),
        ([9, 0, 1, 2, 31, 8], "0 to 2, 8 to 9, 31"),
        ([], ""),
    ],
)
def test_whole_numbers_as_ranges(numbers: Iterable[int], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((50.0, 24.0, 76.0), "50 [24, 76]"),
        ((0.5, 0.45, 0.55), "0.50 [0.45, 0.55]"),
        ((-1.0, -2.5, 0.5), "-1.0 [-2.5, 0.5]"),
        ((500.0, 500.0, 500.0), "500.00 [500.00, 500.00]"),
        ((0.3, 0.1 + 0.2 - 1e-16, 0.1 + 0.2), "0.30 [0.30, 0.30]"),  # a width of rounding alone
    ],
)
def test_an_interval_has_two_digits_of_its_width(interval: tuple[float, float, float], text: str) -> None:
    assert interval_text(*interval) == text


def test_suggested_names_are_a_list_with_a_final_or() -> None:
    games = ["Pong1", "Pong2", "Pong3"]
    assert [suggestion("Pong", games[:count]) for count in range(4)] == [
        "",
        "did you mean Pong1?",
        "did you mean Pong2 or Pong1?",
        "did you mean Pong3, Pong2 or Pong1?",
    ]


def test_a_score_has_no_minus_before_zero_and_enough_digits_for_small_ones() -> None:
    scores = (-0.0, -0.04, 0.125, 9.0, 253.84, 12_345.6, -200.0)
    assert [format_number(score) for score in scores] == ["0", "-0.04", "0.125", "9", "253.8", "12,346", "-200.0"]
    assert shown_score(0.0125) == "0.0125"
    assert interval_text(-0.0, -1e-9, 20.0) == "0 [0, 20]"  # rounded to whole numbers
