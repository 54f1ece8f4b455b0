"""One number per game, as bars from the largest to the smallest.

The tables are those of `valueshare.analysis.comparison.game_differences`, of the algorithm with the layer against the
one without. Games are rows, so that their names read as text and 57 of them fit a column. A bar has the colour of the
better algorithm.
"""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from valueshare.analysis.tidy import CI95
from valueshare.errors import InvalidInput
from valueshare.report.figures.series import game
from valueshare.report.figures.style import COLUMN, GREY, INK, SeriesStyle, rc_style
from valueshare.text import format_steps

ROW = 0.122  # inches per game
GAP_CLIP = 0.01  # of relative action gaps, as in the paper


def score_change(
    differences: pl.DataFrame, reference: SeriesStyle, other: SeriesStyle, word: str = "human-normalized"
) -> Figure:
    """Change of the normalized AUC in each game from one algorithm to another, symlog."""
    label = f"change of the {word} AUC\n{reference.label} → {other.label} (symlog)"
    changes = differences.select("env", *CI95, change="difference")
    figure, axes, _ = _bars(changes, reference, other, label, ("better", "worse"))
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.6)
    axes.xaxis.set_major_formatter(FuncFormatter(_signed))
    axes.minorticks_off()
    return figure


def overestimation_reduction(differences: pl.DataFrame, reference: SeriesStyle, other: SeriesStyle) -> Figure:
    """Reduction of the overestimation in each game, in % of the first algorithm's.

    100 % is none left; beyond it, values are underestimated.
    """
    label = f"reduction of the overestimation, in %\n{reference.label} → {other.label} (dotted: none left)"
    reduced = differences.select("env", change=-pl.col("percent"))
    figure, axes, rows = _bars(reduced, reference, other, label, ("less", "more"))
    axes.axvline(100, color=GREY, linewidth=0.9, linestyle=":")
    if np.abs(rows["change"].to_numpy()).max() > 1_000:
        axes.set_xscale("symlog", linthresh=200, linscale=1.5)
        axes.xaxis.set_major_formatter(FuncFormatter(format_steps))
        axes.minorticks_off()
    return figure


def action_gap_increase(differences: pl.DataFrame, reference: SeriesStyle, other: SeriesStyle) -> Figure:
    """Increase of the relative action gap in each game; the names of bars that are cut off carry their value.

    The paper cuts off at GAP_CLIP. If that would cut off more than three quarters of the bars, none is cut off.
    """
    changes = differences.select("env", *CI95, change="difference")
    label = f"increase of the relative action gap\n{reference.label} → {other.label}"
    if np.mean(np.abs(changes["change"].drop_nulls().to_numpy()) > GAP_CLIP) > 0.75:
        return _bars(changes, reference, other, label, ("wider", "narrower"))[0]
    label += f" (clipped at {GAP_CLIP:g})"
    figure, axes, _ = _bars(changes, reference, other, label, ("wider", "narrower"), GAP_CLIP)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return figure


def _bars(
    changes: pl.DataFrame,
    reference: SeriesStyle,
    other: SeriesStyle,
    label: str,
    words: tuple[str, str],
    clip: float = np.inf,
) -> tuple[Figure, Axes, pl.DataFrame]:
    """Bars of `change`, the largest on top, with intervals where the table has them.

    The title says, in two words for more and less, how many games are better or worse, and the meaning of the strokes.
    """
    rows = changes.filter(pl.col("change").is_finite()).sort("change", "env")
    if rows.is_empty():
        raise InvalidInput("no game has results of both algorithms: there is nothing to compare")
    values = rows["change"].to_numpy().clip(-clip, clip)
    names = [game(env) + _beyond(change, clip) for env, change in rows.select("env", "change").iter_rows()]
    height = 0.85 + max(1.0, ROW * len(names))
    with rc_style():
        figure = Figure(figsize=(COLUMN, height), layout="constrained")
        axes = figure.subplots()
        colours = [other.colour if value >= 0 else reference.colour for value in values]
        axes.barh(range(len(names)), values, height=0.72, color=colours)
        if "ci95_low" in rows.columns:
            known = rows.with_row_index("place").drop_nulls("ci95_low")
            low, high = (known[name].to_numpy().clip(-clip, clip) for name in CI95)
            axes.hlines(known["place"], low, high, color=INK, linewidth=0.7)
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.set_yticks(range(len(names)), names, fontsize=6.5 if len(names) > 20 else 8)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.tick_params(axis="y", length=0, pad=2)
        axes.tick_params(axis="x", labelsize=7.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(label, fontsize=8)
        axes.spines["left"].set_visible(False)
        title = f"{words[0]} in {(values > 0).sum()} of {len(names)} games, {words[1]} in {(values < 0).sum()}"
        title += "\nblack lines: 95 % intervals" if "ci95_low" in rows.columns else ""
        axes.set_title(title, fontsize=8, loc="left")
    return figure, axes, rows


def _beyond(change: float, clip: float) -> str:
    return f" ({change:+.3f})".replace("-", "−") if abs(change) > clip else ""


def _signed(value: float, _: object = None) -> str:
    return "0" if value == 0 else f"{value:+g}".replace("-", "−")
