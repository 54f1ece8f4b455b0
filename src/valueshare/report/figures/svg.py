"""Smaller SVGs that look the same: Matplotlib writes six decimals, and every point in full."""

import base64
import re
from functools import cache

MANY = 400_000  # letters, as Matplotlib writes them: dozens of small panels
LARGE = 150_000  # bytes in a page
_PATH = re.compile(r' d="([^"]*)"')
_PLACE = re.compile(r'(?<= [xy]=")-?[\d.]+|(?<=translate\()[-\d. ]+')
_LONG = re.compile(r"-?\d+\.\d{3,}")
_STYLE = re.compile(r' style="[^"]*"')
_INDENT = re.compile(r"\n\s+")
_CURVED = re.compile(r"[^MLz\d\s.-]")
_AROUND = re.compile(r"\s*([A-Za-z])\s*")


def shortened(svg: str) -> str:
    """An SVG with hundredths of a point, or tenths where it is one of dozens of small panels.

    Straight paths are written as steps from point to point. A step begins where rounding left the one before it, so
    that errors do not add up.
    """
    digits = 1 if len(svg) > MANY else 2
    svg = _PLACE.sub(lambda found: _LONG.sub(_hundredths, found[0]), svg)
    svg = _STYLE.sub(lambda found: found[0].replace("; ", ";").replace(": ", ":"), svg)
    svg = _INDENT.sub("\n", svg)
    return _PATH.sub(lambda found: f' d="{_smaller(found[1], digits)}"', svg)


def _smaller(path: str, digits: int) -> str:
    if _CURVED.search(path):  # letters, mostly: in units of their own
        return _AROUND.sub(r"\1", _LONG.sub(_hundredths, path)).strip()
    return in_steps(path, digits)


def in_steps(path: str, digits: int) -> str:
    """`M 1 2 L 3 4.5 L 3 4 z` as `M1,2l2,2.5,0-.5z`: a minus, or a second dot, begins a number."""
    words, texts, unit = iter(path.split()), list[str](), 10**digits
    x = y = first_x = first_y = 0
    for word in words:
        if word == "z":
            texts.append("z")
            x, y = first_x, first_y
            continue
        to_x, to_y = round(float(next(words)) * unit), round(float(next(words)) * unit)
        if word == "M":
            texts += ["M", _decimal(to_x, digits), _decimal(to_y, digits)]
            first_x, first_y = to_x, to_y
        else:
            texts += ["l", _decimal(to_x - x, digits), _decimal(to_y - y, digits)]
        x, y = to_x, to_y
    return _joined(texts)


def _joined(texts: list[str]) -> str:
    """Commands and numbers with as little between them as SVG allows."""
    parts, command, before = list[str](), "", ""
    for text in texts:
        if text.isalpha():
            if text != command or text != "l":  # a command holds until the next one
                parts.append(text)
                before = text
            command = text
            continue
        apart = text[0] == "-" or before.isalpha() or (text[0] == "." and "." in before)
        parts.append(text if apart else f",{text}")
        before = text
    return "".join(parts)


@cache
def _decimal(number: int, digits: int) -> str:
    """-50 hundredths as -.5, without needless zeros."""
    whole, rest = divmod(abs(number), 10**digits)
    behind = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    sign = "-" if number < 0 else ""
    return f"{sign}{whole or ('' if rest else '0')}{behind}"


def _hundredths(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}"


def data_uri(svg: bytes) -> str:
    """An SVG as an address for an attribute in double quotes.

    A large one stays text, which base64 would make a third larger.
    """
    if len(svg) <= LARGE:
        return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    text = svg.decode()
    for letter, code in (("%", "%25"), ("#", "%23"), ('"', "%22"), ("&", "%26"), ("\n", " ")):
        text = text.replace(letter, code)
    return f"data:image/svg+xml,{text}"
