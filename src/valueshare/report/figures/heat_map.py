"""Maps of two swept settings: the mean score of every combination as a colour, and as a number where there is room."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.typing import ColorType
from numpy.typing import NDArray

from valueshare.errors import InvalidInput
from valueshare.report.figures.style import GREY, INK, RED, contrast, rc_style
from valueshare.text import plain_numbers

ROW, NARROW, WIDE = 0.3, 0.34, 0.62  # inches: the height of a cell, and its widths
ACROSS = 6.0  # inches that the cells of a row may take
MAX_POINTS, MIN_POINTS = 7.0, 4.5  # points of the numbers in cells; where less would fit, there are none
COLOURS = "viridis"
EMPTY = "#F2F2F2"
CONTRAST = 3.0  # colours end this many times as far below the best as the median is
EM = 0.75  # of its size is the width of a bold digit, at most
HATCH = "////"
INSET = 0.04  # of outlines, so that neighbours' do not touch

Floats = NDArray[np.float64]


class SettingsMap(NamedTuple):
    """Scores of one algorithm on one environment, by two settings.

    `cells` has a row per combination: the two settings, `mean` (null where no run has a score), `diverged` (how many
    runs did) and `best` (whether it is the best of its row or column).
    """

    title: str
    settings: tuple[str, str]  # columns of `cells`; the first has a best cell for each of its values
    cells: pl.DataFrame
    score: str  # what `mean` is the mean of


def settings_maps(maps: Sequence[SettingsMap]) -> Figure:
    """A map below the other, each with its own colours; the setting with more values goes along x.

    Outlined: the best of each value of the first setting. A cross: some runs diverged. Hatched: no run has a score. The
    colours are linear from the best score down; scores far below the median are drawn in the last one.
    """
    if not maps or all(grid_map.cells["mean"].is_null().all() for grid_map in maps):
        raise InvalidInput("no combination of settings has a score: there is nothing to draw")
    # Rows and columns of each map.
    counts = [sorted(grid_map.cells[name].n_unique() for name in grid_map.settings) for grid_map in maps]
    across = [min(WIDE, max(NARROW, ACROSS / columns)) for _, columns in counts]
    heights = [0.9 + ROW * rows for rows, _ in counts]
    widest = max(wide * columns for wide, (_, columns) in zip(across, counts, strict=True))
    with rc_style():
        figure = Figure(figsize=(max(3.2, 1.7 + widest), 0.2 + sum(heights)), layout="constrained")
        stacked = figure.subplots(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, grid_map, wide in zip(stacked, maps, across, strict=True):
            _draw(axes, grid_map, wide)
        handles = _explained(maps)
        figure.legend(handles=handles, loc="outside lower center", ncols=max(1, len(handles)), fontsize=7,
                      handlelength=1.2, columnspacing=1.2, borderaxespad=0.0)  # fmt: skip
    return figure


def _draw(axes: Axes, grid_map: SettingsMap, wide: float) -> None:
    x, y = sorted(
        grid_map.settings, key=lambda name: -grid_map.cells[name].n_unique()
    )  # of equals the first goes along x
    xs, ys = (grid_map.cells[name].unique().sort().to_list() for name in (x, y))
    columns, rows = (np.searchsorted(values, grid_map.cells[name].to_numpy()) for name, values in ((x, xs), (y, ys)))
    means = np.full((len(ys), len(xs)), np.nan)
    means[rows, columns] = grid_map.cells["mean"].cast(pl.Float64).to_numpy()  # NaN for null
    scale, ends = colour_range(means[np.isfinite(means)])
    axes.grid(visible=False)
    axes.set_facecolor(EMPTY)
    for i, j in np.argwhere(np.isnan(means)):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=EMPTY, edgecolor="#BFBFBF", hatch=HATCH, lw=0))
    edges = [np.arange(len(values) + 1) - 0.5 for values in (xs, ys)]
    mesh = axes.pcolormesh(*edges, np.ma.masked_invalid(means), cmap=COLOURS, norm=scale, edgecolor="white", lw=0.6)
    is_best, crossed = grid_map.cells["best"].to_numpy(), grid_map.cells["diverged"].to_numpy() > 0
    best = set(zip(rows[is_best].tolist(), columns[is_best].tolist(), strict=True))
    _write_numbers(axes, means, scale, best, wide)
    inside = 1 - 2 * INSET
    for colour, width in (("white", 2.6), (INK, 1.3)):  # visible on dark and on light
        for i, j in best:
            corner = (j - 0.5 + INSET, i - 0.5 + INSET)
            axes.add_patch(Rectangle(corner, inside, inside, fill=False, edgecolor=colour, lw=width, zorder=3))
    if crossed.any():
        marker: dict[str, Any] = {"s": 14, "color": RED, "linewidths": 1.4, "zorder": 4}
        axes.scatter(columns[crossed] + 0.33, rows[crossed] + 0.27, marker="x", **marker)
    for axis, name, values in ((axes.xaxis, x, xs), (axes.yaxis, y, ys)):
        axis.set_ticks(range(len(values)), plain_numbers(values))
        axis.set_label_text(name.replace("_", " "))
        axis.set_tick_params(length=2)
    longest = max(len(label.get_text()) for label in axes.get_xticklabels())
    if longest * 0.075 > wide:
        axes.tick_params(axis="x", labelrotation=45)
    for spine in axes.spines.values():
        spine.set_visible(False)
    inch = 1 / (wide * len(xs))
    bar = axes.figure.colorbar(mesh, ax=axes, extend=ends, pad=0.1 * inch, fraction=0.2 * inch, aspect=12, shrink=0.9)
    bar.set_label(grid_map.score, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)
    axes.set_title(grid_map.title)


def colour_range(scores: Floats) -> tuple[Normalize, Any]:
    """The scores of the first and last colour, and at which end colours stand for scores beyond.

    From the best down to the worst; but scores much further below than the median end it before: else one failure
    would leave one colour to all others.
    """
    if not scores.size:
        return Normalize(0.0, 1.0), "neither"
    high, low, middle = scores.max(), scores.min(), float(np.median(scores))
    bottom = max(low, high - CONTRAST * (high - middle)) if middle < high else low
    return Normalize(bottom, high if high > bottom else bottom + 1.0), "min" if bottom > low else "neither"


def _write_numbers(axes: Axes, means: Floats, scale: Normalize, best: set[tuple[int, int]], wide: float) -> None:
    """The means in their cells, all in one size, if they can be read in it."""
    known = means[np.isfinite(means)]
    if not known.size:
        return
    spread = float(scale.vmax or 0.0) - float(scale.vmin or 0.0)
    decimals = min(4, max(0, 1 - math.floor(math.log10(spread)))) if known.size > 1 and spread > 0 else 1
    texts = {(i, j): f"{means[i, j]:z.{decimals}f}".replace("-", "−") for i, j in np.argwhere(np.isfinite(means))}
    size = min(MAX_POINTS, 0.9 * 72 * wide / (EM * max(map(len, texts.values()))))
    if size < MIN_POINTS:
        return
    colours = mpl.colormaps[COLOURS]
    for (i, j), text in texts.items():
        written = _text_colour(colours(scale(means[i, j])))
        weight = "bold" if (i, j) in best else "normal"
        axes.text(j, i, text, ha="center", va="center", fontsize=size, color=written, weight=weight)


def _text_colour(cell: ColorType) -> str:
    """Black or white, whichever has the higher contrast with a colour: 4.58 at least."""
    return max("white", "black", key=lambda text: contrast(text, cell))


def _explained(maps: Sequence[SettingsMap]) -> list[Artist]:
    """The entries of the legend, for the marks that the maps have."""
    names = dict.fromkeys(grid_map.settings[0].replace("_", " ") for grid_map in maps if grid_map.cells["best"].any())
    handles: list[Artist] = []
    if names:
        handles.append(Patch(facecolor="none", edgecolor=INK, label=f"best of each {' or '.join(names)}"))
    if any((grid_map.cells["diverged"] > 0).any() for grid_map in maps):
        marker: dict[str, Any] = {"marker": "x", "color": RED, "linestyle": "", "markersize": 4}
        handles.append(Line2D([], [], label="runs diverged", **marker))
    sizes = (
        grid_map.cells[grid_map.settings[0]].n_unique() * grid_map.cells[grid_map.settings[1]].n_unique()
        for grid_map in maps
    )
    if any(grid_map.cells["mean"].count() < size for grid_map, size in zip(maps, sizes, strict=True)):
        handles.append(Patch(facecolor=EMPTY, edgecolor=GREY, hatch=HATCH, lw=0.3, label="no score"))
    return handles
