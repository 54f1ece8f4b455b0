"""A page in one file: no network, light and dark, readable on a phone."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff;
  --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9ea7b3; --line: #3d444d;
  --paper: #0d1117; --panel: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 62rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
p.lead { color: var(--soft); margin-top: 0; }
figure { margin: 1rem 0; background: #fff; border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem; overflow-x: auto; }
figure img { display: block; width: 100%; min-width: 34rem; height: auto; }
figcaption { color: #57606a; font-size: .87rem; padding: .4rem .2rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
thead th { background: var(--panel); position: sticky; top: 0; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .8rem;
  overflow-x: auto; }
li { margin: .3rem 0; }
"""


def page(title: str, lead: str, sections: Iterable[str]) -> str:
    """A whole HTML page; `title` and `lead` are escaped, sections are HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<p class="lead">{html.escape(lead)}</p>\n'
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


def section(heading: str, *parts: str) -> str:
    return f"<h2>{html.escape(heading)}</h2>\n" + "\n".join(parts)


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"


def code(text: str) -> str:
    return f"<pre><code>{html.escape(text)}</code></pre>"


def figure(svg: Path, caption: str) -> str:
    """An SVG inside the page, as an image: its names and styles cannot meet those of another."""
    data = base64.b64encode(svg.read_bytes()).decode()
    described = html.escape(caption, quote=True)
    return (
        f'<figure><img alt="{described}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(shown(cell))}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{inside}</table></div>'


def settings_table(settings: Mapping[str, Any]) -> str:
    return table(("setting", "value"), settings.items())


def shown(value: Any) -> str:
    """A value as a reader wants it: numbers short, lists in a line, nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        texts = [shown(item) for item in value]
        return ", ".join(texts if len(texts) <= 12 else [*texts[:5], "…", *texts[-2:]])
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
    return str(value)
