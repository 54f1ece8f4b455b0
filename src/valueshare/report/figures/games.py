"""Curves of every game, a small panel each: scores and overestimation along training."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from valueshare.report.figures import series
from valueshare.report.figures.series import game, seed_means
from valueshare.report.figures.style import GREY, band, draw_line, rc_style
from valueshare.report.figures.variants import Variant, find_variants
from valueshare.text import format_steps

SMOOTHING = 7  # evaluations, as in the paper
CAP = 25.0  # of overestimation, as in the paper
PANEL = (1.36, 1.12)  # inches
MAX_COLUMNS = 6
FEW_LINES = 5  # as many can be told apart in a small panel
MAX_SEEDS = 10  # as lines of their own


def learning_curves(
    table: pl.DataFrame, *, smoothing: int = SMOOTHING, bands: pl.DataFrame | None = None, n: int | None = None
) -> Figure:
    """Evaluation scores of every environment: means over seeds, a moving average of seven.

    `bands` are intervals to shade, as `mean_intervals` returns them for `env, algorithm, k, step`.
    """
    means = seed_means(table, "score")
    sentences = ["Mean evaluation score over seeds."]
    if smoothing > 1:
        sentences.append(f"Smoothed: moving average of {smoothing} evaluations, fewer at the ends.")
    if bands is not None:
        sentences.append("Shaded: 95 % intervals over seeds.")

    def draw(axes: Axes, env_means: pl.DataFrame, variant: Variant) -> None:
        line = variant.rows(env_means)
        if bands is not None:
            known = variant.rows(bands.filter(pl.col("env") == env_means["env"][0])).sort("step")
            band(axes, known, "step", variant.style.colour)
        means = series.smoothed(line["mean"], smoothing)
        draw_line(axes, line["step"], means, variant.style, linewidth=1.0)

    return _grid(means, draw, find_variants(means, n), [*sentences, series.short_seeds(means)])


def overestimation_curves(table: pl.DataFrame, *, n: int | None = None) -> Figure:
    """Overestimation of every environment along training: means over seeds, and each seed.

    Values above CAP are drawn at it. The seeds are the translucent lines, unless they are many.
    """
    seeds = series.tidy(table, "overestimation").sort("env", "step")
    means = seed_means(table, "overestimation")
    each_seed, most = overestimation_drawn(table)
    sentences = ["Mean overestimation over seeds" + ("; translucent: each seed." if each_seed else ".")]
    if most > CAP:
        sentences.append(f"Capped at {CAP:g}; the highest is {most:,.4g}.")

    def draw(axes: Axes, env_means: pl.DataFrame, variant: Variant) -> None:
        if each_seed:
            steps, values = _joined(variant.rows(seeds.filter(pl.col("env") == env_means["env"][0])))
            colour = variant.style.colour
            axes.plot(steps, np.minimum(values, CAP), color=colour, linewidth=0.4, alpha=0.3)
        line = variant.rows(env_means)
        capped = np.minimum(line["mean"].to_numpy(), CAP)
        draw_line(axes, line["step"], capped, variant.style, linewidth=1.0)

    return _grid(means, draw, find_variants(means, n), [*sentences, series.short_seeds(means)])


def overestimation_drawn(table: pl.DataFrame) -> tuple[bool, float]:
    """Whether `overestimation_curves` draws each seed, and the highest value of all its lines, before it is capped."""
    seeds = series.tidy(table, "overestimation")
    each_seed = seeds["seed"].n_unique() <= MAX_SEEDS
    return each_seed, float(max(seeds["overestimation"] if each_seed else seed_means(table, "overestimation")["mean"]))


def _joined(seeds: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The curves of all seeds as one line with a gap between each two; an empty line where there is no seed."""
    curves = [curve.sort("step") for curve in seeds.partition_by("seed", maintain_order=True)]
    steps, values = (
        np.concatenate([[], *([*curve[name], np.nan] for curve in curves)]) for name in ("step", "overestimation")
    )
    return steps, values


def _grid(
    means: pl.DataFrame,
    draw: Callable[[Axes, pl.DataFrame, Variant], None],
    variants: Sequence[Variant],
    sentences: Sequence[str],
) -> Figure:
    """A panel per environment, a legend above, and below them sentences on how the data were treated."""
    panels = {rows["env"][0]: rows for rows in means.partition_by("env")}
    envs = sorted(panels, key=lambda env: game(env).lower())
    steps = means["step"].unique().sort()
    columns = min(MAX_COLUMNS, len(envs))
    if 4 < len(envs) <= MAX_COLUMNS and len(variants) > FEW_LINES:
        columns = 3  # two rows of larger panels
    rows = math.ceil(len(envs) / columns)
    scale, small = (1.0, 5.5) if columns > 3 else (2.0, 7.0)  # few panels are larger
    width, height = max(3.4, scale * PANEL[0] * columns), scale * PANEL[1] * rows
    longest = max(len(variant.style.label) for variant in variants)
    names_per_row = max(1, int(width / ((0.6 * longest + 4.5) * (small + 1) / 72)))
    with rc_style():
        # Panels fill the figure, and the saved part includes what is beside it: a layout of 57 panels takes seconds.
        figure = Figure(figsize=(width, height))
        between = {"wspace": 0.38 / scale**1.2, "hspace": 0.36 / scale}
        edges = {"left": 0, "right": 1, "bottom": 0, "top": 1}
        grid = figure.subplots(rows, columns, squeeze=False, gridspec_kw={**edges, **between})
        for index, axes in enumerate(grid.flat):
            if index >= len(envs):
                axes.set_visible(False)
                continue
            for variant in variants:
                draw(axes, panels[envs[index]], variant)
            axes.set_title(game(envs[index]), fontsize=small + 1, pad=2)
            axes.tick_params(labelsize=small, length=2, pad=1.5)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(MaxNLocator(3 if scale == 1 else 5))
                axis.set_major_formatter(FuncFormatter(format_steps))
            if steps[0] < steps[-1]:  # else there is one point, and room around it
                axes.set_xlim(steps[0], steps[-1])
            axes.tick_params(labelbottom=index + columns >= len(envs))  # the last of its column
        handles = [Line2D([], [], color=v.style.colour, linestyle=v.style.line, label=v.style.label) for v in variants]
        line = small / 40 / height  # of text
        figure.legend(
            handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1 + line), ncols=names_per_row, fontsize=small + 1
        )
        figure.text(0.5, -1.5 * line, "timesteps", ha="center", va="top", fontsize=small + 1.5)
        notes = "\n".join(filter(None, sentences))
        figure.text(0.5, -3 * line, notes, ha="center", va="top", fontsize=small + 0.5, color=GREY)
    return figure
