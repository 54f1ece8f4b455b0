"""The gain over the learner without shared value, against k or against the number of actions."""

from collections.abc import Sequence
from typing import Literal

import polars as pl
from matplotlib.figure import Figure

from valueshare.report.figures.style import GREY, SeriesStyle, band, rc_style, symlog_k_axis

# A learner at every x: `gain, ci95_low, ci95_high` beside x, nulls where it has no gain.
Line = tuple[SeriesStyle, pl.DataFrame]
Panel = tuple[str, Sequence[Line]]  # a title, and lines that share axes


def gain_panels(rows: Sequence[Sequence[Panel]], x: Literal["k", "actions"], label: str) -> Figure:
    """Rows of panels with a logarithmic axis of x; `label` names the measure and its reference."""
    width = 3.6 if x == "k" else 2.6
    with rc_style():
        figure = Figure(figsize=(max(4.2, width * len(rows[0])), 2.7 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(rows[0]), sharex=True, sharey="row", squeeze=False)
        for axes_row, row in zip(grid, rows, strict=True):
            for axes, (title, lines) in zip(axes_row, row, strict=True):
                axes.axhline(0, color=GREY, linewidth=0.8)
                for style, table in lines:
                    line = table.sort(x)
                    band(axes, line, x, style.colour, 0.18)
                    axes.plot(
                        line[x], line["gain"], marker="o", color=style.colour, linestyle=style.line, label=style.label
                    )
                axes.set_title(title)
                values = sorted({value for _, table in lines for value in table[x]})
                if x == "k":
                    symlog_k_axis(axes, values)
                    continue
                shown = values if len(values) < 6 else values[::2]  # a narrow panel
                axes.set_xscale("log", base=2)
                axes.set_xticks(shown, [f"{count:,}" for count in shown])
                axes.minorticks_off()
            axes_row[0].set_ylabel(label)
        for axes in grid[-1]:
            axes.set_xlabel("mean-scaling coefficient k (symlog)" if x == "k" else "number of actions n (log)")
        grid[0, 0].legend(loc="best" if x == "actions" else "upper left")
    return figure
