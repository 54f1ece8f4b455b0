"""Figures of populations: a quantity against k, and learning curves; data frame in, Figure out.

The tables are those of `valueshare.analysis.aggregate.mean_intervals`: `mean, ci95_low, ci95_high`
beside `k`, and beside `step` for curves. Shaded: 95 % intervals. Where there is none (one seed),
nothing is shaded.
"""

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from valueshare.errors import InvalidInput
from valueshare.report.figures.series import game, millions
from valueshare.report.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORDER,
    PURPLE,
    band,
    house_style,
    look,
)

COLUMN = (3.6, 2.6)  # inches: a column of a paper
BAND = 0.2  # of opacity
CURVES = (0.0, 16.0, 32.0, 256.0, 2_048.0, 8_192.0, 16_384.0, 32_768.0)  # the paper's choice


def sensitivity(auc: pl.DataFrame, curves: pl.DataFrame, ks: Sequence[float] = CURVES) -> Figure:
    """The paper's sensitivity figure: AUC against k, and beside it the learning curves."""
    with house_style():
        figure = Figure(figsize=(2 * COLUMN[0], COLUMN[1]), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_against_k(left, auc, "AUC (mean evaluation score)", BLUE)
        _draw_curves(right, curves, ks)
    return figure


def auc_against_k(auc: pl.DataFrame) -> Figure:
    """The mean over training of the evaluation score, against k."""
    return _against_k(auc, "AUC (mean evaluation score)", BLUE)


def overestimation_against_k(table: pl.DataFrame) -> Figure:
    """Action-values minus the returns that followed, against k."""
    return _against_k(table, "overestimation", PURPLE)


def relative_action_gap_against_k(table: pl.DataFrame) -> Figure:
    """Best minus second-best action-value by the mean action-value, against k."""
    return _against_k(table, "relative action gap", GREEN)


def learning_curves(curves: pl.DataFrame, ks: Sequence[float] = CURVES) -> Figure:
    """Evaluation scores along training, a line for each of `ks` that is in the table."""
    with house_style():
        figure = Figure(figsize=COLUMN, layout="constrained")
        _draw_curves(figure.subplots(), curves, ks)
    return figure


def curves_shown(table: pl.DataFrame, ks: Sequence[float] = CURVES) -> list[float]:
    """Those of `ks` that the table has; all of its own where it has fewer than three of them."""
    own = table["k"].unique().sort().to_list()
    shown = [k for k in own if k in set(ks)]
    return shown if len(shown) >= 3 else own


def _against_k(table: pl.DataFrame, label: str, colour: str) -> Figure:
    with house_style():
        figure = Figure(figsize=COLUMN, layout="constrained")
        _draw_against_k(figure.subplots(), table, label, colour)
    return figure


def _draw_against_k(axes: Axes, table: pl.DataFrame, label: str, colour: str) -> None:
    line = table.filter(pl.col("mean").is_not_null()).sort("k")
    if line.is_empty():
        raise InvalidInput(f"no agent has a value of {label}: there is nothing to draw")
    _k_axis(axes, line["k"].to_list())
    _wide_values(axes, line)  # before anything is drawn, so that the limits follow the scale
    plain = line.filter(pl.col("k") == 0)
    if not plain.is_empty():
        axes.axhline(plain["mean"][0], color=GREY, linestyle=":", linewidth=1.2, label="k = 0")
        axes.legend(loc="best")
    band(axes, line, "k", colour, BAND)
    axes.plot(line["k"], line["mean"], color=colour, marker="o")
    axes.set_xlabel("mean-scaling coefficient k (log scale, and 0)")
    axes.set_ylabel(label)


def _draw_curves(axes: Axes, curves: pl.DataFrame, ks: Sequence[float]) -> None:
    for k in curves_shown(curves, ks):
        line = curves.filter((pl.col("k") == k) & pl.col("mean").is_not_null()).sort("step")
        style = look("ib-dqn", k)  # as in every other figure
        band(axes, line, "step", style.colour, BAND)
        axes.plot(
            line["step"], line["mean"], color=style.colour, linestyle=style.line, label=f"k = {k:g}"
        )
    axes.set_xlabel("timesteps")
    axes.set_ylabel("evaluation score")
    axes.xaxis.set_major_formatter(FuncFormatter(millions))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _k_axis(axes: Axes, ks: list[float]) -> None:
    """Log scale with 0 one octave before the smallest k; at most ten values are written."""
    positive = [k for k in ks if k > 0]
    axes.set_xscale("symlog", base=2, linthresh=min(positive, default=1.0), linscale=1.0)
    every = -(-len(positive) // 9)
    written = [k for k in ks if k == 0] + positive[::every]
    axes.set_xticks(written, [f"{k:g}" for k in written], rotation=45 if len(written) > 6 else 0)
    axes.minorticks_off()


def _wide_values(axes: Axes, line: pl.DataFrame) -> None:
    """A symmetric log scale where the values span so much that a linear one would hide most."""
    sizes = line["mean"].abs()
    typical = float(sizes.median() or 0.0)  # type: ignore[arg-type]
    if typical > 0 and float(sizes.max() or 0.0) > 50 * typical:  # type: ignore[arg-type]
        axes.set_yscale("symlog", linthresh=typical)
        axes.yaxis.set_major_formatter(FuncFormatter(millions))


def cost_against_agents(timings: pl.DataFrame) -> Figure:
    """What a tick of a population costs against its size: ms of each part, and agent-steps/s.

    One row a size: `agents`, a column `PART_ms` for each part, `agent_steps_per_s`.
    """
    line = timings.sort("agents")
    parts = [name for name in line.columns if name.endswith("_ms")]
    sizes = line["agents"].to_list()
    with house_style():
        figure = Figure(figsize=(2 * COLUMN[0], COLUMN[1]), layout="constrained")
        left, right = figure.subplots(1, 2)
        for part, colour in zip(parts, ORDER, strict=False):
            name = part.removesuffix("_ms").replace("_", " ")
            left.plot(sizes, line[part], marker="o", color=colour, label=name)
        left.set_ylabel("ms a tick of all agents")
        left.legend(loc="upper left")
        right.plot(sizes, line["agent_steps_per_s"], marker="o", color=BLUE)
        right.set_ylabel("agent-steps a second")
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(millions))
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axes.set_xlabel("agents")
            axes.minorticks_off()
    return figure


def sensitivity_by_game(auc: pl.DataFrame, *, label: str = "AUC, human-normalised") -> Figure:
    """AUC against k with a line a game; shaded: one standard deviation over seeds.

    One row a run: `env, k, seed, value`. A game with one seed has a line and no band.
    """
    by_k = auc.filter(pl.col("value").is_finite()).group_by("env", "k")
    line_of = by_k.agg(pl.col("value").mean().alias("mean"), pl.col("value").std().alias("sd"))
    if line_of.is_empty():
        raise InvalidInput(f"no agent has a value of {label}: there is nothing to draw")
    half = pl.col("sd")
    line_of = line_of.with_columns(
        ci95_low=pl.col("mean") - half, ci95_high=pl.col("mean") + half
    ).sort("env", "k")
    envs = line_of["env"].unique().sort().to_list()
    with house_style():
        figure = Figure(figsize=COLUMN, layout="constrained")
        axes = figure.subplots()
        _k_axis(axes, line_of["k"].unique().sort().to_list())
        for index, env in enumerate(envs):
            line = line_of.filter(pl.col("env") == env)
            colour = ORDER[index % len(ORDER)]
            marker = "os^Dv"[index // len(ORDER) % 5]
            band(axes, line, "k", colour, BAND)
            axes.plot(line["k"], line["mean"], color=colour, marker=marker, label=game(env))
        axes.set_xlabel("mean-scaling coefficient k (log scale, and 0)")
        axes.set_ylabel(label)
        axes.set_title("shaded: one standard deviation over seeds", fontsize=7.5, color=GREY)
        axes.legend(loc="best") if len(envs) <= 4 else axes.legend(
            loc="center left", bbox_to_anchor=(1.0, 0.5)
        )
    return figure
