"""Figures of tabular studies: the increase over the smallest k, and norms along learning."""

from collections.abc import Sequence

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valueshare.report.figures.style import BLUE, GREEN, GREY, RED, house_style

CASE = "step_reward"


def tuned_increase(columns: Sequence[tuple[str, pl.DataFrame]], *, measure: str = "episodes") -> Figure:
    """The gridworld figure: increase over the smallest k against k, a line per regime.

    One column per (title, table) pair, one row per case (step reward); the tables are those of
    `valueshare.analysis.tuned.tuned_increase`.
    """
    cases = columns[0][1][CASE].unique(maintain_order=True).to_list()
    regimes = sorted(columns[0][1]["regime"].unique())
    colours = mpl.colormaps["viridis"]([0.85 * i / max(1, len(regimes) - 1) for i in range(len(regimes))])
    with house_style():
        figure = Figure(figsize=(3.6 * len(columns), 2.6 * len(cases)), layout="constrained")
        grid = figure.subplots(len(cases), len(columns), sharex=True, sharey="row", squeeze=False)
        for row, case in zip(grid, cases, strict=True):
            for axes, (title, table) in zip(row, columns, strict=True):
                axes.axhline(0, color=GREY, linewidth=0.8)
                of_case = table.filter(pl.col(CASE).eq_missing(case))
                for regime, colour in zip(regimes, colours, strict=True):
                    line = of_case.filter(pl.col("regime") == regime).sort("k")
                    style = {"color": colour, "label": f"{regime:,} timesteps"}
                    axes.plot(line["k"], line["increase_percent"], marker="o", **style)
                    ends = line["ci95_low"], line["ci95_high"]
                    axes.fill_between(line["k"], *ends, color=colour, alpha=0.18, lw=0)
                _k_axis(axes, of_case["k"].unique().sort().to_list())
                axes.set_title(title if case is None else f"{case:g} per step · {title}")
            row[0].set_ylabel(f"{measure}: increase over\nk = {min(of_case['k']):g}, in %")
        for axes in grid[-1]:
            axes.set_xlabel("mean-scaling coefficient k (symlog)")
        grid[0, 0].legend(loc="upper left")
    return figure


def norm_reduction(norms: pl.DataFrame) -> Figure:
    """Norms of action-values q, baseline-residual vectors u and residuals z along learning.

    One row per case, a column for each of three values of k, and in the last column the norms at the end against k.
    Bands are 95 % normal intervals over seeds.
    """
    cases = norms[CASE].unique(maintain_order=True).to_list()
    ks = norms["k"].unique().sort().to_list()
    positive = [k for k in ks if k > 0] or ks
    picks = sorted({positive[round(share * (len(positive) - 1))] for share in (0, 0.5, 1)})
    lines = (("norm_q", "|q|", BLUE), ("norm_u", "|u|", GREEN), ("norm_z", "|z|", RED))
    with house_style():
        width = len(picks) + 1
        figure = Figure(figsize=(2.5 * width, 2.4 * len(cases)), layout="constrained")
        grid = figure.subplots(len(cases), width, squeeze=False, sharey="row")
        for row, case in zip(grid, cases, strict=True):
            of_case = norms.filter(pl.col(CASE).eq_missing(case))
            prefix = "" if case is None else f"{case:g} per step · "
            for axes, k in zip(row, picks, strict=False):
                _norm_lines(axes, of_case.filter(pl.col("k") == k), "step", lines)
                axes.set(title=f"{prefix}k = {k:g}", xlabel="timesteps")
            last = of_case.filter(pl.col("step") == pl.col("step").max()).sort("k")
            _norm_lines(row[-1], last, "k", lines)
            _k_axis(row[-1], ks[:1] + ks[1::2] if len(ks) > 6 else ks)  # a narrow panel
            row[-1].set(title=f"{prefix}at the end", xlabel="k (symlog)")
            row[0].set_ylabel("mean norm over states")
            row[0].set_ylim(bottom=0)
        grid[0, -1].legend(loc="lower left")
    return figure


def _norm_lines(axes: Axes, table: pl.DataFrame, x: str, lines: Sequence[tuple[str, str, str]]) -> None:
    for column, label, colour in lines:
        axes.plot(table[x], table[column], color=colour, label=label)
        half = 1.96 * table[f"{column}_error"].fill_null(0)
        low, high = table[column] - half, table[column] + half
        axes.fill_between(table[x], low, high, color=colour, alpha=0.18, lw=0)


def _k_axis(axes: Axes, ks: list[float]) -> None:
    positive = [k for k in ks if k > 0]
    axes.set_xscale("symlog", linthresh=min(positive, default=1.0))
    axes.set_xticks(ks, [f"{k:g}" for k in ks])
    axes.minorticks_off()
