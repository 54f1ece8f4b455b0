"""Smaller SVGs: the same points to rounding, and addresses that hold the same picture."""

import re
from io import BytesIO
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from valueshare.report.figures.style import as_svg, rc_style
from valueshare.report.figures.svg import MANY, data_uri, in_steps, shortened
from valueshare.report.page.elements import figure as page_figure

NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)")


@pytest.mark.parametrize(
    ("path", "digits", "short"),
    [
        ("M 1 2 \nL 3 4.5 \nL 3 4 \n", 2, "M1,2l2,2.5,0-.5"),
        ("M 0.004 -0.5 \nL 0.14 0.5 \nL 0.34 0.75 \n", 2, "M0-.5l.14,1,.2.25"),  # a second dot
        ("M 1 1 \nL 2 1 \nz\nM 5 5 \nL 6 7 \n", 2, "M1,1l1,0zM5,5l1,2"),
        # Every step is 0.04, which alone would round to 0: the third reaches 0.12, so 0.1.
        ("M 0 0 \nL 0.04 0 \nL 0.08 0 \nL 0.12 0 \n", 1, "M0,0l0,0,.1,0,0,0"),
    ],
)
def test_steps_by_hand(path: str, digits: int, short: str) -> None:
    assert in_steps(path, digits) == short


def points(path: str) -> np.ndarray:
    """The places of a straight path of absolute M and L, or of M and steps, as SVG reads them."""
    found, here = [], np.zeros(2)
    for command, text in re.findall(r"([MLl])([^MLlz]*)", path):
        for pair in np.array([float(n) for n in NUMBER.findall(text)]).reshape(-1, 2):
            here = here + pair if command == "l" else pair
            found.append(here)
    return np.array(found)


@pytest.mark.parametrize("panels", [1, 30])
def test_lines_are_where_they_were(panels: int) -> None:
    rng = np.random.default_rng(0)
    figure = Figure(figsize=(6, 4))
    for axes in np.ravel(figure.subplots(panels, 1)):
        axes.plot(rng.standard_normal((3_000, 1)).cumsum(axis=0), gid="line")
    out = BytesIO()
    with rc_style():
        figure.savefig(out, format="svg", metadata={"Date": None})
    whole = out.getvalue().decode()
    small = shortened(whole)
    assert (len(whole) > MANY) == (panels > 1)
    assert len(small) < 0.6 * len(whole)
    ElementTree.fromstring(small)  # is XML
    pairs = [re.findall(r'<g id="line">\s*<path d="([^"]*)"', svg) for svg in (whole, small)]
    assert len(pairs[0]) == len(pairs[1]) == panels
    off = 0.05 if panels > 1 else 0.005  # half of the last decimal
    for before, after in zip(*pairs, strict=True):
        assert np.abs(points(before) - points(after)).max() <= off + 1e-9


def test_a_picture_is_text_in_its_address() -> None:
    name = '<!-- 100% "of" it\'s & #1 -->'
    svg = as_svg(Figure()).replace(b"</svg>", (name + "<g/>" * 50_000 + "</svg>").encode())
    address = data_uri(svg)
    assert not set('"&#\n') & set(address)  # nothing ends the attribute, or the address
    text = unquote(address.removeprefix("data:image/svg+xml,"))
    assert text == svg.decode().replace("\n", " ")
    assert name in text
    assert len(page_figure(svg, "caption")) < 1.05 * len(svg)
