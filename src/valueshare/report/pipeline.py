"""From a report in memory to its folder: the same steps for every kind of study."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from matplotlib.figure import Figure

from valueshare.files import write_json, write_whole
from valueshare.records import write_table
from valueshare.report.figures.style import save
from valueshare.report.page.elements import Picture


class Drawn(NamedTuple):
    """A figure, its caption, and notes on what it leaves out."""

    name: str
    figure: Figure
    caption: str = ""
    notes: tuple[str, ...] = ()


class Report(NamedTuple):
    """A report before it is written; files are named relative to its folder."""

    figures: Sequence[Drawn]
    values: Mapping[str, Any]  # JSON files
    page: Callable[[dict[str, Picture]], str] | None = None  # HTML, from the figures by name
    tables: Mapping[str, pl.DataFrame] = {}  # Parquet files
    texts: Mapping[str, str] = {}


def write_files(report: Report, folder: Path) -> None:
    """Write tables, texts, figures/, report.html and JSON files into a folder that is there."""
    for name in (*report.tables, *report.texts):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    for name, table in report.tables.items():
        write_table(folder / name, table)
    for name, text in report.texts.items():
        write_whole(folder / name, [text.encode()])
    for drawn in report.figures:
        save(drawn.figure, folder / "figures", drawn.name)
    if report.page is not None:
        pictures = {
            name: Picture(name, (folder / "figures" / f"{name}.svg").read_bytes(), caption, notes)
            for name, _, caption, notes in report.figures
        }
        write_whole(folder / "report.html", [report.page(pictures).encode()])
    for name, value in report.values.items():
        write_json(folder / name, value)
