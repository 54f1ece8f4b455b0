"""Elements of a page: no name from data becomes markup, and nothing is fetched."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from matplotlib.figure import Figure

from valueshare.report.figures.style import as_svg
from valueshare.report.page import elements

# Pages.

EVIL = "<script>alert('x')</script>\" onload=\"y & z"


class Seen(HTMLParser):
    """The tags and attributes of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_names_are_escaped_everywhere() -> None:
    parts = (
        elements.paragraph(EVIL),
        elements.bullets([EVIL]),
        elements.code(EVIL),
        elements.figure(b"<svg xmlns='http://www.w3.org/2000/svg'/>", EVIL),
        elements.table([EVIL], [[EVIL], [[EVIL]], [{EVIL: EVIL}]]),
        elements.settings_table({EVIL: EVIL}),
    )
    seen = Seen(elements.page(EVIL, EVIL, [elements.section(EVIL, *parts)]))
    assert "script" not in seen.tags
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    # As text: title, h1, subtitle, heading, paragraph, bullet, code, caption, head of the table, two
    # cells, key and value of the third, key and value of the settings.
    assert seen.text.count(EVIL) == 15
    assert ("alt", EVIL) in seen.attributes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.123456789, "0.1235"),
        (1e-9, "1e-09"),
        (-2.5, "−2.5"),
        (-1e-9, "−1e-09"),
        (128, "128"),
        (-3, "−3"),
        (True, "True"),
        ((0.1, 2), "0.1, 2"),
        ([float(i) for i in range(20)], "0, 1, 2, 3, 4, …, 18, 19"),
        ({"cores": 2, "system": "Linux"}, "cores 2, system Linux"),
    ],
)
def test_values_as_a_reader_wants_them(value: Any, text: str) -> None:
    assert elements.value_text(value) == text


def test_a_page_fetches_nothing() -> None:
    figure = Figure()
    figure.subplots().plot([1, 2])
    text = elements.page("t", "l", [elements.figure(as_svg(figure), "c")])
    sources = [value for name, value in Seen(text).attributes if name in ("src", "href")]
    assert len(sources) == 1
    assert re.match(r"data:image/svg\+xml,", sources[0] or "")
    assert "url(" not in elements.STYLE
    assert "@import" not in elements.STYLE
