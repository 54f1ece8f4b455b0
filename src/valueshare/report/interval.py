"""A number with its interval, and how both are written."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from valueshare.text import format_number, interval_text


class Interval(NamedTuple):
    """A number and its 95 % interval, if there is one."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any], names: Sequence[str]) -> "Interval | None":
        """A number of a row with its interval, by their three names; None where there is no number."""
        value, low, high = (row[name] for name in names)
        return None if value is None else cls(value, low, high)

    def sign_relative_to(self, other: float) -> int:
        """1 if all of the interval lies above a number, -1 if below, 0 if neither."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > other) - (self.high < other)


def format_interval(interval: Interval, *, sign: bool = True, least_decimals: int = 0) -> str:
    """+50 [24, 76]: with as many decimals as show two digits of the interval's width."""
    value, low, high = interval
    plus = "+" if sign and value > 0 else ""
    if low is None or high is None:
        number = format_number(value)
        if len(number.partition(".")[2]) < least_decimals:
            number = f"{value:z,.{least_decimals}f}"
        return f"{plus}{number} (too few seeds: no interval)"
    return f"{plus}{interval_text(value, low, high, least_decimals)}"


def probability_text(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
