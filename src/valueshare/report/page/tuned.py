"""The table of settings chosen on half of the seeds, for a page."""

import html
from collections.abc import Sequence
from typing import Any

from valueshare.analysis.held_out import CHOICES, DIFFERENCE, MEAN
from valueshare.report import tuned_text
from valueshare.report.findings import Interval, written
from valueshare.report.page import elements
from valueshare.report.page.elements import Cell
from valueshare.report.swept_settings import Tuned
from valueshare.text import plain_number


def tuned_tables(found: Sequence[Tuned]) -> list[str]:
    """A heading, how to read it and a table for each map of two swept settings."""
    parts = []
    for number, one in enumerate(found):
        first, second = (name.replace("_", " ") for name in one.grid.settings)
        caption = f"{one.grid.title}: the best {second} of each {first}"
        reading = elements.paragraph(" ".join(tuned_text.reading(one)), "small")
        rows = [_row(row) for row in one.table.to_dicts()]
        table = elements.table(tuned_text.headings(one), rows, name=f"tuned-{number}", caption=caption)
        parts += [f"<h3>{html.escape(caption)}</h3>", reading, table]
    return parts


def _row(row: dict[str, Any]) -> list[Any]:
    settings = [Cell("–" if row[name] is None else plain_number(row[name]), row[name]) for name in ("k", *CHOICES)]
    score, difference = (
        _with_interval([row[name] for name in names], sign) for names, sign in ((MEAN, False), (DIFFERENCE, True))
    )
    return [*settings, score, difference, row["mean_at_plain"], row["runs"], row["failed_step_sizes"]]


def _with_interval(numbers: Sequence[float | None], sign: bool) -> Cell:
    value, low, high = numbers
    if value is None:
        return Cell("–")
    return Cell(f'<span class="number">{written(Interval(value, low, high), sign=sign)}</span>', value)
