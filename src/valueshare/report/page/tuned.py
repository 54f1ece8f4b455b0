"""The table of settings chosen on half of the seeds, for a page."""

import html
from collections.abc import Sequence
from typing import Any

from valueshare.analysis.held_out import CHOICES, DIFFERENCE, MEAN
from valueshare.report import tuned_text
from valueshare.report.findings import Interval, number, written
from valueshare.report.page import elements
from valueshare.report.page.elements import Cell
from valueshare.report.swept_settings import HeldOutChoice
from valueshare.text import plain_number


def tuned_tables(found: Sequence[HeldOutChoice], *, explained: bool = True) -> list[str]:
    """A heading and a table for each map of two swept settings; `explained`: with how to read it."""
    parts = []
    for place, one in enumerate(found):
        first, second = (name.replace("_", " ") for name in one.grid.settings)
        caption = f"{one.grid.title}: the best {second} of each {first}"
        reading = [elements.paragraph(" ".join(tuned_text.reading(one)), "small")] if explained else []
        rows = [_row(row, row["k"] == one.table["k"][0]) for row in one.table.to_dicts()]
        table = elements.table(tuned_text.headings(one), rows, name=f"tuned-{place}", caption=caption)
        parts += [f"<h3>{html.escape(caption)}</h3>", *reading, table]
    return parts


def _row(row: dict[str, Any], is_plain: bool) -> list[Any]:
    settings = [Cell("–" if row[name] is None else plain_number(row[name]), row[name]) for name in ("k", *CHOICES)]
    score = _with_interval([row[name] for name in MEAN], sign=False)
    difference = Cell("–") if is_plain else _with_interval([row[name] for name in DIFFERENCE], sign=True)
    at_plain = Cell("–") if row["mean_at_plain"] is None else Cell(number(row["mean_at_plain"]), row["mean_at_plain"])
    return [*settings, score, difference, at_plain, row["runs"], row["failed_step_sizes"]]


def _with_interval(numbers: Sequence[float | None], *, sign: bool) -> Cell:
    value, low, high = numbers
    if value is None:
        return Cell("–")
    return Cell(f'<span class="number">{written(Interval(value, low, high), sign=sign)}</span>', value)
