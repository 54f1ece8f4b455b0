"""HTML elements of a page in one file: no network, light and dark, readable on a phone.

Text and JSON from data are escaped here, and nowhere else.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from valueshare.report.figures.svg import data_uri


class Picture(NamedTuple):
    """A figure as an SVG, with its caption and notes."""

    name: str
    svg: bytes
    caption: str
    notes: tuple[str, ...] = ()


class Cell(NamedTuple):
    """A cell with a value to sort by, and its own HTML."""

    markup: str  # HTML already
    value: Any = None
    css_class: str = ""
    label: str = ""  # before it, where a narrow screen has no heading


def page(
    title: str,
    subtitle: str,
    sections: Iterable[str],
    *,
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    above: str = "",
    links: Mapping[str, str] | None = None,
    online: bool = False,
) -> str:
    """A complete HTML page; `title` and `subtitle` are escaped, sections and `above` are HTML already.

    `scripts` are names of assets, `data` the JSON that they read, by id. A policy in the page forbids the browser to
    load or run anything else. With `online` the page may send requests to its own server.
    """
    texts = [asset(name) for name in scripts]
    stored = [embedded(name, value) for name, value in (data or {}).items()]
    running = [f"<script>{text}</script>" for text in texts]
    return Template(asset("page.html")).substitute(
        policy=policy(texts, online),
        title=html.escape(title),
        style=STYLE,
        heading=unbroken(title),
        subtitle=html.escape(subtitle),
        above=above,
        links=_links(links, bool(scripts)) if links else "",
        sections="\n".join(sections),
        scripts="\n".join([*stored, *running]),
    )


def section(heading: str, *parts: str, name: str = "") -> str:
    title = name and f"{name}-title"
    inside = "\n".join([f"<h2{_attributes({'id': title})}>{html.escape(heading)}</h2>", *parts])
    return f'<section id="{name}" aria-labelledby="{title}">\n{inside}\n</section>' if name else inside


def paragraph(text: str, name: str = "") -> str:
    opening = f'<p class="{name}">' if name else "<p>"
    return f"{opening}{unbroken(text) if name else html.escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"


def unbroken(text: str) -> str:
    """Text as HTML in which short names with hyphens, like IB-DQN(4), stay on one line."""
    escaped = html.escape(text)
    return re.sub(r"[\w(]+-[\w().-]{1,20}", lambda m: f'<span class="name">{m[0]}</span>', escaped)


def code(text: str) -> str:
    return f"<pre><code>{html.escape(text)}</code></pre>"


def command(text: str) -> str:
    """A command with a button that copies it."""
    return f'<div class="command">{code(text)}<button type="button" data-copy>Copy</button></div>'


def details(summary: str, *parts: str, name: str = "", rows: str = "") -> str:
    """Content that opens on a click; `rows` is the id of data that a table is made of then."""
    about = _attributes({"id": name, "data-rows": rows})
    return f"<details{about}><summary>{html.escape(summary)}</summary>{''.join(parts)}</details>"


def figure(svg: bytes, caption: str, name: str = "", css_class: str = "") -> str:
    """An SVG inside the page, as an image: its names and styles cannot clash with another's.

    As an image it can run nothing either, whatever text is in it. A narrow screen scrolls it if it is `wide`.
    """
    # The size is known before the image is there, so that nothing moves when it comes.
    size = svg_size(svg)
    room = "" if size is None else f' width="{size[0]:.0f}" height="{size[1]:.0f}"'
    image = f'<img{_attributes({"alt": caption})} loading="lazy" decoding="async"{room} src="{data_uri(svg)}">'
    if css_class == "wide":
        region = {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": name.replace("-", " ")}
        image = f"<div{_attributes(region)}>{image}</div>"
    about = _attributes({"id": name, "class": css_class})
    return f"<figure{about}>{image}<figcaption>{html.escape(caption)}</figcaption></figure>"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    name: str = "",
    css_class: str = "",
    caption: str = "",
    tall: bool = False,
    foot: Sequence[Cell] = (),
) -> str:
    """A table; with a `name` its columns can be sorted by, and `foot` stays below. Cells are values, or `Cell`s."""
    body = [[value if isinstance(value, Cell) else Cell("", value) for value in row] for row in rows]
    text = [any(isinstance(row[i].value, str) for row in body) for i in range(len(columns))]
    headings = "".join(_heading(c, t, bool(name)) for c, t in zip(columns, text, strict=True))
    lines = ("<tr>" + "".join(_cell(*pair) for pair in zip(row, text, strict=True)) + "</tr>\n" for row in body)
    hidden = f'<caption class="hidden">{html.escape(caption)}</caption>' if caption else ""
    inside = f"{hidden}<thead><tr>{headings}</tr></thead><tbody>{''.join(lines)}</tbody>"
    inside += f"<tfoot><tr>{''.join(_cell(cell, False) for cell in foot)}</tr></tfoot>" if foot else ""
    # A region that scrolls must be reachable by keyboard, and have a name.
    region = {"tabindex": "0", "role": "region", "aria-label": caption} if caption else {}
    frame = _attributes({"class": "scroll tall" if tall else "scroll", **region})
    return f"<div{frame}><table{_attributes({'id': name, 'class': css_class})}>{inside}</table></div>"


def settings_table(settings: Mapping[str, Any]) -> str:
    return table(("setting", "value"), settings.items(), css_class="settings")


def embedded(name: str, value: Any) -> str:
    """JSON for scripts: no text in it can end the script or begin another."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{html.escape(name)}">{text}</script>'


def value_text(value: Any) -> str:
    """A value as text: numbers short, lists in a line, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return re.sub("^-", "−", f"{value:.4g}" if isinstance(value, float) else str(value))
    if isinstance(value, list | tuple):
        texts = [value_text(item) for item in value]
        return ", ".join(texts if len(texts) <= 12 else [*texts[:5], "…", *texts[-2:]])
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value_text(item)}" for key, item in value.items())
    return str(value)


def svg_size(content: bytes) -> tuple[float, float] | None:
    """Width and height from the viewBox of an SVG, or None."""
    head = content[:2_000].decode("utf-8", "replace")
    numbers = head.partition('viewBox="')[2].partition('"')[0].split()
    try:
        width, height = float(numbers[2]), float(numbers[3])
    except (IndexError, ValueError):
        return None
    return (width, height) if width > 0 and height > 0 else None


@cache
def asset(name: str) -> str:
    """A style, script or template of the package; one of another project comes with its licence."""
    folder = files("valueshare.report.page") / "assets"
    text = (folder / name).read_text(encoding="utf-8")
    project, slash, _ = name.partition("/")
    return f"/*!\n{(folder / project / 'LICENSE').read_text(encoding='utf-8')}\n*/\n{text}" if slash else text


STYLE = asset("uplot/uPlot.min.css") + asset("page.css")


def _attributes(values: Mapping[str, str]) -> str:
    """HTML attributes of those values that are not empty."""
    return "".join(f' {name}="{html.escape(value)}"' for name, value in values.items() if value)


def policy(scripts: Sequence[str], online: bool) -> str:
    """The Content-Security-Policy: no network; no scripts but these, by their checksums."""
    sums = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{checksum}'" for checksum in sums) or "'none'"
    origin, connect = (" 'self'", "; connect-src 'self'") if online else ("", "")
    return (
        f"default-src 'none'; img-src data:{origin}; media-src data:; style-src 'unsafe-inline'; script-src {allowed}"
        f"; base-uri 'none'; form-action 'none'{connect}"
    )


def _links(links: Mapping[str, str], switch: bool) -> str:
    items = "".join(f'<a href="#{html.escape(name)}">{html.escape(label)}</a>' for name, label in links.items())
    button = '<button type="button" id="theme">Dark</button>' if switch else ""
    return f'<nav aria-label="On this page">{items}{button}</nav>'


def _heading(name: str, text: bool, sortable: bool) -> str:
    kind = _attributes({"class": "text" if text else ""})
    if not sortable:
        return f"<th{kind}>{html.escape(name)}</th>"
    button = f'<button type="button">{html.escape(name)}</button>'
    return f'<th{kind} scope="col" aria-sort="none">{button}</th>'


def _cell(cell: Cell, text: bool) -> str:
    number = isinstance(cell.value, int | float) and not isinstance(cell.value, bool)
    sorted_by = repr(cell.value) if number else cell.value if cell.markup else ""
    about = {"class": cell.css_class or ("text" if text else ""), "data-name": cell.label}
    about["data-v"] = sorted_by if isinstance(sorted_by, str) else ""
    return f"<td{_attributes(about)}>{cell.markup or html.escape(value_text(cell.value))}</td>"
