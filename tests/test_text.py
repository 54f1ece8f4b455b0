"""Plain numbers: no exponents, whole numbers exact, and different numbers written differently."""

import pytest

from valueshare.text import plain_number, plain_numbers


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
