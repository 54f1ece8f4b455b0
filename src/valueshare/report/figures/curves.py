"""Figures of populations: a quantity against k, and learning curves.

The tables are those of `valueshare.analysis.intervals.mean_intervals`: `mean, ci95_low, ci95_high` beside `k`, and
beside `step` for curves. Shaded: 95 % intervals. Where there is none (one seed), nothing is shaded.
"""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from valueshare.errors import InvalidInput
from valueshare.report.figures import style
from valueshare.report.figures.series import game
from valueshare.report.figures.style import BLUE, GREEN, GREY, ORDER, PURPLE
from valueshare.text import format_steps

PANEL = (3.6, 2.6)  # inches: a column of a paper
BAND = 0.2  # of opacity
CURVES = (0.0, 16.0, 32.0, 256.0, 2_048.0, 8_192.0, 16_384.0, 32_768.0)  # the paper's choice
K_LABEL = "mean-scaling coefficient k (log scale, and 0)"
AGAINST_K = {  # what is drawn against k: label and colour
    "score": ("AUC (mean evaluation score)", BLUE),
    "overestimation": ("overestimation", PURPLE),  # action-values minus the returns that followed
    "relative_action_gap": ("relative action gap", GREEN),  # best minus second-best action-value by their mean
}
BESIDE = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}  # a legend on the right


def sensitivity(auc: pl.DataFrame, curves: pl.DataFrame) -> Figure:
    """The paper's sensitivity figure: AUC against k, and beside it the learning curves."""
    with style.rc_style():
        figure, (left, right) = _panels(2)
        _draw_against_k(left, auc, "score")
        for k in curves_shown(curves):
            line = curves.filter(k=k).drop_nulls("mean").sort("step")
            line_style = style.series_style("ib-dqn", k)  # as in every other figure
            style.band(right, line, "step", line_style.colour, BAND)
            right.plot(
                line["step"], line["mean"], color=line_style.colour, linestyle=line_style.line, label=f"k = {k:g}"
            )
        right.set(xlabel="timesteps", ylabel="evaluation score")
        right.xaxis.set_major_formatter(FuncFormatter(format_steps))
        right.legend(**BESIDE)
    return figure


def against_k(table: pl.DataFrame, column: str) -> Figure:
    """The means of a column of `AGAINST_K` against k."""
    with style.rc_style():
        figure, (axes,) = _panels(1)
        _draw_against_k(axes, table, column)
    return figure


def curves_shown(table: pl.DataFrame) -> list[float]:
    """The k of the table that the paper draws; all k of the table where these are fewer than three."""
    ks = table["k"].unique().sort().to_list()
    shown = [k for k in ks if k in CURVES]
    return shown if len(shown) >= 3 else ks


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(count * PANEL[0], PANEL[1]), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _draw_against_k(axes: Axes, table: pl.DataFrame, column: str) -> None:
    label, colour = AGAINST_K[column]
    line = table.drop_nulls("mean").sort("k")
    if line.is_empty():
        raise InvalidInput(f"no agent has a value of {label}: there is nothing to draw")
    _k_axis(axes, line["k"].to_list())
    sizes = line["mean"].abs().to_numpy()
    if sizes.max() > 50 * np.median(sizes) > 0:  # a linear scale would hide most values
        axes.set_yscale("symlog", linthresh=float(np.median(sizes)))  # first, so that the limits follow the scale
        axes.yaxis.set_major_formatter(FuncFormatter(format_steps))
    reference = line.filter(pl.col("k") == 0)
    if not reference.is_empty():
        axes.axhline(reference["mean"][0], color=GREY, linestyle=":", linewidth=1.2, label="k = 0")
        axes.legend(loc="best")
    style.band(axes, line, "k", colour, BAND)
    axes.plot(line["k"], line["mean"], color=colour, marker="o")
    axes.set(xlabel=K_LABEL, ylabel=label)


def _k_axis(axes: Axes, ks: list[float]) -> None:
    """Log scale with 0 one octave before the smallest k; at most ten values are written."""
    positive = [k for k in ks if k > 0]
    every = -(-len(positive) // 9)
    written = [k for k in ks if k == 0] + positive[::every]
    style.symlog_k_axis(axes, written, base=2, rotation=45 if len(written) > 6 else 0)


def sensitivity_by_game(auc: pl.DataFrame, word: str = "human-normalized") -> Figure:
    """AUC against k with a line per game; shaded: one standard deviation over seeds.

    One row per run: `env, k, seed, value`. A game with one seed has a line and no band.
    """
    label, value = f"AUC, {word}", pl.col("value")
    mean, deviation = value.mean(), value.std()
    by_k = auc.filter(value.is_finite()).group_by("env", "k")
    lines = by_k.agg(mean=mean, ci95_low=mean - deviation, ci95_high=mean + deviation).sort("env", "k")
    if lines.is_empty():
        raise InvalidInput(f"no agent has a value of {label}: there is nothing to draw")
    envs = lines["env"].unique().sort().to_list()
    with style.rc_style():
        figure, (axes,) = _panels(1)
        _k_axis(axes, lines["k"].unique().sort().to_list())
        for index, env in enumerate(envs):
            line, colour = lines.filter(pl.col("env") == env), ORDER[index % len(ORDER)]
            marker = "os^Dv"[index // len(ORDER) % 5]
            style.band(axes, line, "k", colour, BAND)
            axes.plot(line["k"], line["mean"], color=colour, marker=marker, label=game(env))
        axes.set(xlabel=K_LABEL, ylabel=label)
        axes.set_title("shaded: one standard deviation over seeds", fontsize=7.5, color=GREY)
        axes.legend(**({"loc": "best"} if len(envs) <= 4 else BESIDE))
    return figure
