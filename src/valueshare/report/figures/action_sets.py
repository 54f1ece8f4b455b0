"""The gain over the learner without shared value, against the number of actions."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl
from matplotlib.figure import Figure

from valueshare.report.figures.style import GREY, Look, band, house_style


class Line(NamedTuple):
    """A learner at every number of actions: `actions, gain, ci95_low, ci95_high`; null where it has no gain."""

    look: Look
    table: pl.DataFrame


class Panel(NamedTuple):
    """Lines that share axes."""

    title: str
    lines: Sequence[Line]


def gain_against_actions(rows: Sequence[Sequence[Panel]], label: str) -> Figure:
    """Rows of panels with a logarithmic axis of actions; `label` says what is gained, over what."""
    with house_style():
        figure = Figure(figsize=(max(4.2, 2.6 * len(rows[0])), 2.7 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(rows[0]), sharex=True, sharey="row", squeeze=False)
        for axes_row, row in zip(grid, rows, strict=True):
            for axes, panel in zip(axes_row, row, strict=True):
                axes.axhline(0, color=GREY, linewidth=0.8)
                for line in panel.lines:
                    known = line.table.drop_nulls("gain").sort("actions")
                    band(axes, known, "actions", line.look.colour)
                    own = {"color": line.look.colour, "linestyle": line.look.line, "label": line.look.label}
                    axes.plot(known["actions"], known["gain"], marker="o", **own)
                axes.set_title(panel.title)
                counts = sorted({count for line in panel.lines for count in line.table["actions"]})
                axes.set_xscale("log", base=2)
                shown = counts if len(counts) < 6 else counts[::2]  # a narrow panel
                axes.set_xticks(shown, [f"{count:,}" for count in shown])
                axes.minorticks_off()
            axes_row[0].set_ylabel(label)
        for axes in grid[-1]:
            axes.set_xlabel("number of actions n (log)")
        grid[0, 0].legend(loc="best")
    return figure
