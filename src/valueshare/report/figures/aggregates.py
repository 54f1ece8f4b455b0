"""Figures over all games: interquartile means, sample efficiency, and performance profiles.

The tables are those of `iqm_curves` and `performance_profile` in `valueshare.analysis`.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from valueshare.analysis.efficiency import EfficiencyPoint, sample_efficiency
from valueshare.errors import InvalidInput
from valueshare.report.figures.style import COLUMN, GREY, band, draw_line, rc_style, text_colour
from valueshare.report.figures.variants import Variant, baseline_variant, find_variants
from valueshare.text import format_steps


class Line(NamedTuple):
    """An algorithm with the layer, and when it reaches the best of the same one without."""

    sooner: Variant
    reference: Variant
    reached: EfficiencyPoint


def draw_iqm_curves(
    curves: pl.DataFrame, *, n: int | None = None, title: str = "", word: str = "human-normalized"
) -> Figure:
    """Interquartile means along training with 95 % intervals, dashed where the layer is on.

    Dotted: where an algorithm with the layer reaches the best of the same without. A name has the number of
    games with it where it is not that of the others.
    """
    variants = find_variants(curves, n)
    most = _most_games(curves)
    with rc_style():
        figure = Figure(figsize=(COLUMN + 0.5, 2.75), layout="constrained")
        axes = figure.subplots()
        lines = [(variant, variant.rows(curves).sort("step")) for variant in variants]
        lines.sort(key=lambda pair: -pair[1]["value"][-1])  # names in the order of their ends
        for variant, line in lines:
            band(axes, line, "step", variant.style.colour)
            draw_line(axes, line["step"], line["value"], variant.style, _with_games(variant, line, most), linewidth=1.3)
        lowest = pl.min_horizontal(pl.col("value").min(), pl.col("ci95_low").min())
        axes.set_ylim(bottom=min(0.0, curves.select(lowest).item()))
        axes.set_xlim(0, max(1, *curves["step"]))
        _mark(axes, efficiency_lines(curves, variants))
        names = [text_colour(variant.style.colour) for variant, _ in lines]
        figure.legend(loc="outside right center", fontsize=7, labelcolor=names, handlelength=1.6)
        axes.xaxis.set_major_formatter(FuncFormatter(format_steps))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set(xlabel="timesteps", ylabel=f"IQM of the {word} score", title=title)
    return figure


def performance_profiles(profiles: pl.DataFrame, *, n: int | None = None, word: str = "human-normalized") -> Figure:
    """The share of runs above every score, with 95 % intervals, dashed where the layer is on.

    A higher line is better everywhere; where two cross, neither is. The scale is linear up to 1, for example a human's
    score, and logarithmic beyond. A name has the number of games with it where it is not that of the others.
    """
    most = _most_games(profiles)
    with rc_style():
        figure = Figure(figsize=(COLUMN, 2.75), layout="constrained")
        axes = figure.subplots()
        axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
        for variant in find_variants(profiles, n):
            line = variant.rows(profiles).sort("threshold")
            band(axes, line, "threshold", variant.style.colour)
            name = _with_games(variant, line, most)
            draw_line(axes, line["threshold"], line["value"], variant.style, name, linewidth=1.2)
        low, high = min(profiles["threshold"]), max(profiles["threshold"])
        axes.set_xscale("symlog", linthresh=1.0, linscale=1.0)
        marks = [mark for mark in (0, 0.25, 0.5, 1, 2, 5, 10, 30, 100) if low <= mark <= high]
        axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
        axes.minorticks_off()
        axes.set(xlim=(low, high), ylim=(0, 1))
        axes.set(xlabel=f"{word} score (logarithmic from 1 on)", ylabel="share of runs above it")
        axes.legend(loc="best", fontsize=7, labelspacing=0.3)  # where it hides the least of the lines
    return figure


def efficiency_lines(curves: pl.DataFrame, variants: Sequence[Variant]) -> list[Line]:
    """The k that first reaches the best of each algorithm without the layer, if any does."""
    lines: dict[tuple[str, float], Line] = {}
    for sooner in variants:
        reference = baseline_variant(sooner, variants)
        if reference is None:
            continue
        with suppress(InvalidInput):  # they are of different games
            reached = sample_efficiency(curves, sooner.selection(), reference.selection())
            key = (reference.algorithm, reference.k)
            if reached.step is not None and (key not in lines or reached.step < (lines[key].reached.step or 0)):
                lines[key] = Line(sooner, reference, reached)
    return sorted(lines.values(), key=lambda line: line.reached.step or 0)


def _most_games(table: pl.DataFrame) -> int:
    return max(table["games"]) if "games" in table.columns else 0


def _with_games(variant: Variant, line: pl.DataFrame, most: int) -> str:
    """A name, and of how many games its line is, where others are of more."""
    games = _most_games(line)
    return variant.style.label if games == most else f"{variant.style.label}, {games} of {most} games"


def _mark(axes: Axes, lines: Sequence[Line]) -> None:
    """Dotted: from the reference curve's best back to the sooner curve, and down to the timesteps."""
    bottom = axes.get_ylim()[0]
    for row, (sooner, _, reached) in enumerate(lines):
        colour, step = sooner.style.colour, reached.step or 0
        xs, ys = [reached.best_step, step, step], [reached.best, reached.best, bottom]
        axes.plot(xs, ys, color=colour, linestyle=":", linewidth=0.9, label="_reached")
        offset, side = ((2, 3), "left") if row else ((-2, 3), "right")  # apart, if lines are close
        style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": text_colour(colour)}
        axes.annotate(format_steps(step), (step, bottom), offset, ha=side, **style)
