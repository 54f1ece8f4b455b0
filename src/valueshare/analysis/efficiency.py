"""Sample efficiency: the first evaluation at which one curve reaches another's maximum."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis.comparison import Pair, PairSide
from valueshare.analysis.resampling import MEMORY, resampled
from valueshare.analysis.statistics import RESAMPLES, Statistic, point_estimates
from valueshare.analysis.tidy import (
    Estimate,
    Selection,
    finite,
    group_label,
    require,
    select,
    selection_name,
)
from valueshare.errors import InvalidInput
from valueshare.text import shorten_list

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]


class EfficiencyPoint(NamedTuple):
    """The step at which one curve reaches another's maximum."""

    step: int | None  # the first evaluation at which it does; None if it never does
    best: float  # the other curve's maximum ...
    best_step: int  # ... and where that is, first
    last_step: int  # of the other curve
    fraction: float | None  # step / last_step


def sample_efficiency(
    curves: pl.DataFrame, x: Selection, reference: Selection, *, column: str = "value"
) -> EfficiencyPoint:
    """The first evaluation at which the curve of x is at least the reference's maximum.

    `curves` has a row per curve and step, as `iqm_curves` returns it. If it has a column `games`, only points over the
    most of them count: a point over fewer is another quantity.
    """
    require(curves, "step", column)
    x_curve, reference_curve = (_curve(curves, selection, column) for selection in (x, reference))
    if "games" in curves.columns:
        most = max(*x_curve["games"], *reference_curve["games"])
        x_curve, reference_curve = (rows.filter(pl.col("games") == most) for rows in (x_curve, reference_curve))
        for selection, rows in ((x, x_curve), (reference, reference_curve)):
            if rows.is_empty():
                raise InvalidInput(
                    f"{selection_name(selection)} has no point over all {most} environments: compare others"
                )
    return _reached(*((rows["step"].to_numpy(), rows[column].to_numpy()) for rows in (x_curve, reference_curve)))


def sample_efficiency_interval(
    table: pl.DataFrame,
    x: Selection,
    reference: Selection,
    *,
    statistic: Statistic = "iqm",
    column: str = "score",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The step at which the curve of x reaches the reference's maximum, with a 95 % interval over runs.

    A row of the table is one run at one step. A resample draws whole runs of both sides and computes both curves and
    the step again. Returns one row: `x, y, step, ci95_low, ci95_high, reached, fraction, best, best_step, last_step,
    games, runs_x, runs_y`. `reached` is the share of the resamples in which the maximum is reached; a bound that falls
    among the others is null. The maximum of a resampled curve is higher than that of a smooth one, so the interval is
    biased towards later steps. Runs that lack an evaluation of their side are left out, and noted.
    """
    steps, lines, pair = _complete(table, x, reference, column)
    points = [point_estimates(line, side.sizes, statistic) for line, side in zip(lines, (pair.x, pair.y), strict=True)]
    point = _reached((steps[0], points[0]), (steps[1], points[1]))
    low = high = reached = None
    if pair.varied:
        drawn = _drawn(steps[0], lines, pair, statistic, resamples, seed)
        # No interpolation: a bound is the step of an evaluation, or none.
        ends = np.quantile(drawn, (0.025, 0.975), method="inverted_cdf")
        low, high = (float(end) if np.isfinite(end) else None for end in ends)
        reached = float(np.isfinite(drawn).mean())
    numbers = {"step": point.step, "ci95_low": low, "ci95_high": high, "reached": reached, "fraction": point.fraction}
    more = {"best": point.best, "best_step": point.best_step, "last_step": point.last_step}
    row, notes = pair.estimate({**numbers, **more})
    # Null has a type of its own.
    return Estimate(row.cast({"step": pl.Int64, "reached": pl.Float64, "fraction": pl.Float64}), notes)


def _drawn(steps: Steps, lines: list[Floats], pair: Pair, statistic: Statistic, resamples: int, seed: int) -> Floats:
    """The step in every resample, infinity where the maximum is not reached. Shape: [R]."""
    at_once = max(1, MEMORY // (16 * max(map(len, lines))))
    parts = []
    for index, start in enumerate(range(0, resamples, at_once)):
        many = min(at_once, resamples - start)
        # All evaluations share the draws of a resample: it is runs that are drawn.
        x_curves, reference_curves = (
            resampled(values, side.sizes, statistic, resamples=many, seed=seed, stream=stream)
            for values, side, stream in ((lines[0], pair.x, 2 * index + 1), (lines[1], pair.y, 2 * index + 2))
        )  # [T, many] each
        reaches = x_curves >= reference_curves.max(axis=0)
        parts.append(np.where(reaches.any(axis=0), steps[reaches.argmax(axis=0)], np.inf))
    return np.concatenate(parts)


def _complete(
    table: pl.DataFrame, x: Selection, reference: Selection, column: str
) -> tuple[list[Steps], list[Floats], Pair]:
    """Both sides: their steps [T], the values [T, n] of runs that have all steps, and these runs as a pair."""
    run = ["env", "seed"]
    require(table, *run, "step", column)
    rows = [_curve(table, selection, column, (*run, "step")) for selection in (x, reference)]
    wide = [side.pivot("step", index=run, values=column).sort(run) for side in rows]  # a column per step, in order
    complete = [side.drop_nulls(side.columns[len(run) :]) for side in wide]
    shared = set(complete[0]["env"]) & set(complete[1]["env"])
    names = selection_name(x), selection_name(reference)
    if not shared:
        raise InvalidInput(f"{names[0]} and {names[1]} have no environment with runs that have all evaluations")
    notes, lines, sides = [], [], []
    for name, all_runs, runs in zip(names, wide, complete, strict=True):
        kept = runs.filter(pl.col("env").is_in(shared))
        values = kept.drop(run).to_numpy(order="c").T
        sizes = kept.group_by("env", maintain_order=True).len()["len"].cast(pl.Int64).to_numpy()
        left_out = all_runs.join(kept, on=run, how="anti").select(run).sort(run)
        if not left_out.is_empty():
            runs_left_out = [group_label(row) for row in left_out.to_dicts()]
            notes.append(
                f"{name}: {left_out.height:,} runs lack evaluations or a partner: {shorten_list(runs_left_out)}"
            )
        lines.append(values)
        sides.append(PairSide(values[0], sizes))
    pair = Pair(names, sorted(shared), sides[0], sides[1], tuple(notes))
    return [side["step"].unique().sort().to_numpy() for side in rows], lines, pair


def _reached(curve: tuple[Steps, Floats], reference: tuple[Steps, Floats]) -> EfficiencyPoint:
    """The crossing of two curves, given as steps and values sorted by step."""
    best = float(reference[1].max())
    best_step, last = int(reference[0][reference[1].argmax()]), int(reference[0][-1])
    reaches = curve[1] >= best
    step = int(curve[0][reaches.argmax()]) if reaches.any() else None
    return EfficiencyPoint(step, best, best_step, last, step / last if step is not None and last else None)


def _curve(curves: pl.DataFrame, selection: Selection, column: str, keys: tuple[str, ...] = ("step",)) -> pl.DataFrame:
    """The rows of one algorithm that have a number, in the order of their steps."""
    rows = finite(select(curves, selection), column).drop_nulls(column).sort("step")
    if rows.is_empty():
        raise InvalidInput(f"{selection_name(selection)} has no finite {column}: choose another curve")
    if rows.select(keys).is_duplicated().any():
        raise InvalidInput(f"{selection_name(selection)} is several curves: name its k too")
    return rows
