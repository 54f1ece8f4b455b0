"""Smaller SVGs that look the same: Matplotlib writes six decimals, and every point in full."""

import re

import numpy as np
from numpy.typing import NDArray

MANY = 400_000  # characters, as Matplotlib writes them: dozens of small panels
_PATH = re.compile(r' d="([^"]*)"')
_PLACE = re.compile(r'(?<= [xy]=")-?[\d.]+|(?<=translate\()[-\d. ]+')
_LONG = re.compile(r"-?\d+\.\d{3,}")
_STYLE = re.compile(r' style="[^"]*"')
_INDENT = re.compile(r"\n\s+")
_CURVED = re.compile(r"[^MLz\d\s.-]")
_ZERO = re.compile(r"(?<!\d)0\.")
_SECOND_DOT = re.compile(r"(\.\d+),(?=\.)")
_AROUND = re.compile(r"\s*([A-Za-z])\s*")


def shortened(svg: str) -> str:
    """An SVG with hundredths of a point, or tenths where it is one of dozens of small panels.

    Straight paths are written as steps from point to point. A step begins where rounding left the one before it, so
    that errors do not add up.
    """
    digits = 1 if len(svg) > MANY else 2
    svg = _PLACE.sub(lambda match: _LONG.sub(_hundredths, match[0]), svg)
    svg = _STYLE.sub(lambda match: match[0].replace("; ", ";").replace(": ", ":"), svg)
    svg = _INDENT.sub("\n", svg)
    return _PATH.sub(lambda match: f' d="{_smaller(match[1], digits)}"', svg)


def _smaller(path: str, digits: int) -> str:
    if _CURVED.search(path):  # glyphs, mostly: in units of their own
        return _AROUND.sub(r"\1", _LONG.sub(_hundredths, path)).strip()
    return in_steps(path, digits)


def in_steps(path: str, digits: int) -> str:
    """`M 1 2 L 3 4.5 L 3 4 z` as `M1,2l2,2.5,0-.5z`: a minus, or a second dot, begins a number."""
    lines = []
    for line in path.split("M")[1:]:
        numbers = np.array(line.replace("L", " ").replace("z", " ").split(), np.float64)
        points = np.rint(numbers * 10**digits).astype(np.int64).reshape(-1, 2)
        steps = np.diff(points, axis=0)
        rest = f"l{_joined(steps.ravel(), digits)}" if len(steps) else ""
        lines.append(f"M{_joined(points[0], digits)}{rest}{'z' if 'z' in line else ''}")
    return "".join(lines)


def _joined(numbers: NDArray[np.int64], digits: int) -> str:
    """Hundredths, or tenths, with as little between them as SVG allows: -50 and 25 as -.5.25."""
    text = ",".join(f"{number / 10**digits:.12g}" for number in numbers)
    return _SECOND_DOT.sub(r"\1", _ZERO.sub(".", text).replace(",-", "-"))


def _hundredths(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}"


def data_uri(svg: bytes) -> str:
    """An SVG as an address for an attribute in double quotes; as text, which base64 would make a third larger."""
    text = svg.decode()
    for character, code in (("%", "%25"), ("#", "%23"), ('"', "%22"), ("&", "%26"), ("\n", " ")):
        text = text.replace(character, code)
    return f"data:image/svg+xml,{text}"
