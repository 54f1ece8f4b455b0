"""Figures of tabular studies: the increase over the smallest k, and norms along learning."""

from collections.abc import Sequence

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from valueshare.analysis.tidy import CI95
from valueshare.report.figures.gains import Panel, gain_panels
from valueshare.report.figures.style import BLUE, GREEN, RED, SeriesStyle, rc_style, symlog_k_axis

CASE = "step_reward"


def draw_tuned_increase(columns: Sequence[tuple[str, pl.DataFrame]], *, measure: str = "episodes") -> Figure:
    """The gridworld figure: increase over the smallest k against k, a line per regime.

    One column per (title, table) pair, one row per case (step reward); the tables are those of
    `valueshare.analysis.tuned.tuned_increase`.
    """
    first = columns[0][1]
    regimes = sorted(first["regime"].unique())
    shades = mpl.colormaps["viridis"]([0.85 * i / max(1, len(regimes) - 1) for i in range(len(regimes))])
    styles = [
        SeriesStyle(f"{regime:,} timesteps", to_hex(shade)) for regime, shade in zip(regimes, shades, strict=True)
    ]

    def panel(case: float | None, title: str, table: pl.DataFrame) -> Panel:
        case_rows = table.filter(pl.col(CASE).eq_missing(case)).rename({"increase_percent": "gain"})
        lines = [(style, case_rows.filter(regime=regime)) for regime, style in zip(regimes, styles, strict=True)]
        return title if case is None else f"{case:g} per step · {title}", lines

    rows = [[panel(case, *column) for column in columns] for case in first[CASE].unique(maintain_order=True)]
    return gain_panels(rows, "k", f"{measure}: increase over\nk = {min(first['k']):g}, in %")


def norm_reduction(norms: pl.DataFrame) -> Figure:
    """Norms of action-values q, baseline-residual vectors u and residuals z along learning.

    One row per case, a column for each of three values of k, and in the last column the norms at the end against k.
    Bands are 95 % bootstrap intervals over seeds.
    """
    cases = norms[CASE].unique(maintain_order=True).to_list()
    ks = norms["k"].unique().sort().to_list()
    positive = [k for k in ks if k > 0] or ks
    picks = sorted({positive[round(share * (len(positive) - 1))] for share in (0, 0.5, 1)})
    lines = (("norm_q", "|q|", BLUE), ("norm_u", "|u|", GREEN), ("norm_z", "|z|", RED))
    with rc_style():
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
            symlog_k_axis(row[-1], ks[:1] + ks[1::2] if len(ks) > 6 else ks)  # a narrow panel
            row[-1].set(title=f"{prefix}at the end", xlabel="k (symlog)")
            row[0].set_ylabel("mean norm over states")
            row[0].set_ylim(bottom=0)
        grid[0, -1].legend(loc="lower left")
    return figure


def _norm_lines(axes: Axes, table: pl.DataFrame, x: str, lines: Sequence[tuple[str, str, str]]) -> None:
    for column, label, colour in lines:
        axes.plot(table[x], table[column], color=colour, label=label)
        low, high = (table[f"{column}_{end}"] for end in CI95)
        axes.fill_between(table[x], low, high, color=colour, alpha=0.18, lw=0)
