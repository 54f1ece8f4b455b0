"""Text for people: counts with their nouns, exact and plain numbers, intervals and columns."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from math import floor, log10
from typing import Any

# The scores that `train` prints at its end, and that reports call final.
LAST_SCORE = "score of the last evaluation"
FINAL_SCORE = "mean of the last three evaluations"


def pluralize(count: int, what: str) -> str:
    """1 agent, 2,040 agents."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def either(names: Iterable[str]) -> str:
    """Pong, Pooyan or Breakout."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def conjoin(names: Iterable[str]) -> str:
    """Pong, Pooyan and Breakout."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def shorten_list(items: Sequence[str], most: int = 5) -> str:
    """The first items of a list, and how many more there are; with semicolons if an item has a comma."""
    more = len(items) - most
    separator = "; " if any("," in item for item in items) else ", "
    return separator.join(items[:most]) + (f" and {more:,} more" if more > 0 else "")


def suggestion(name: str, known: Sequence[str] | Mapping[str, str], count: int = 3, cutoff: float = 0.6) -> str:
    """did you mean Pong or Pooyan? Empty where no known name is close; a mapping has the names to write as values."""
    written = known if isinstance(known, Mapping) else {word: word for word in known}
    near = get_close_matches(name, written, count, cutoff)
    return f"did you mean {either(written[word] for word in near)}?" if near else ""


def resume_command(location: object) -> str:
    """The command that resumes the run in a folder or at a URL, quoted for the shell."""
    return f"valueshare resume {shlex.quote(str(location))}"


def ranges(numbers: Iterable[int]) -> str:
    """Sorted unique integers as ranges: 0 to 29, 31, 40 to 42."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)


def exact(number: float) -> str:
    """A number that reads back as the very same: 4.0 is 4, and no digit is lost."""
    return repr(float(number)).removesuffix(".0")


def option_words(name: str, value: Any) -> list[str]:
    """A setting as it is written on the command line: --hidden 128 128, --no-clip-rewards."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"--{option}", *(exact(item) if isinstance(item, float) else str(item) for item in values)]


def plain_numbers(values: Sequence[float]) -> list[str]:
    """Numbers without an exponent, 0.00003 and 32768: whole ones exact, others with as many digits as tell them apart.

    At least three digits are kept, and zeros at the end are not written.
    """
    for digits in range(3, 18):
        texts = [plain_number(value, digits) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def plain_number(value: float, digits: int = 3) -> str:
    """A number without an exponent, to `digits` digits; whole numbers are exact."""
    if value == int(value):
        return f"{value:.0f}"
    text = f"{Decimal(f'{value:.{digits}g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_number(value: float) -> str:
    """A score or another result: four digits at most; 0 has no sign."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 999.95 else f"{value:.1f}" if size >= 9.995 else f"{value:z.3g}"


def format_steps(value: float, _: object = None) -> str:
    """A number on an axis of a figure, short: 250k, 33.75M. Matplotlib gives formatters a position as well."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return with_minus(f"{value / size:.4g}{suffix}")
    return with_minus(f"{value:g}")


def with_minus(number: str) -> str:
    """A number with a real minus in place of the hyphen, for figures and pages; text that is searched keeps it."""
    return number.replace("-", "−")


def interval_text(value: float, low: float, high: float, least_decimals: int = 0) -> str:
    """50 [24, 76]: with as many decimals as show two digits of the interval's width."""
    width, rounding = high - low, 1e-12 * max(abs(low), abs(high))
    decimals = min(12, max(0, 1 - floor(log10(width)))) if width > rounding else 2
    decimals = max(decimals, least_decimals)
    middle, below, above = (f"{x:z,.{decimals}f}" for x in (value, low, high))
    return f"{middle} [{below}, {above}]"


def align_columns(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """A table as lines of text: columns of equal width, all but the first aligned to the `right` if it is set."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = str.rjust if right else str.ljust
    return ["  ".join([row[0].ljust(widths[0]), *map(pad, row[1:], widths[1:])]).rstrip() for row in rows]
