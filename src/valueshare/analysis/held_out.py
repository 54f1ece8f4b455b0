"""Scores at settings that were chosen on one half of the seeds and scored on the other half."""

from typing import NamedTuple

import numpy as np
import polars as pl

from valueshare.analysis.resampling import bounds, resampled
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import require
from valueshare.analysis.tuned import Floats, best_step_sizes, chosen_for, failed_step_sizes, scores_at

CELL = ("k", "step_size")
CHOICES = ("best_step_size", "first_half_choice", "second_half_choice")
MEAN = ("mean", "ci95_low", "ci95_high")
DIFFERENCE = ("difference", "difference_low", "difference_high")
FROM_BEST = ("from_best", "from_best_low", "from_best_high")


class ChosenPair(NamedTuple):
    """A k above the smallest with its step size, chosen together, against the smallest k with its own."""

    best: tuple[float, float] | None  # k and step size with the highest mean over all seeds
    choices: tuple[tuple[float, float], ...]  # of the first half of the seeds, and of the second
    difference: tuple[float | None, ...]  # of the means on the other halves, with its 95 % interval


def tuned_scores(runs: pl.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pl.DataFrame:
    """The mean score of each k at its best step size, and its difference from that of the smallest k.

    Takes a row per run (`k, step_size, seed, diverged, score`). Returns a row per k:

    - `best_step_size`, the one with the highest mean over all seeds; `first_half_choice` and `second_half_choice`, the
      same over either half of them (the first half are the lower ones of all seeds of the table, so that a seed is in
      the same half everywhere), of the step sizes with runs in both halves;
    - `mean, ci95_low, ci95_high` of the scores of each half at the choice of the other half, and `runs`;
    - `difference, difference_low, difference_high` of this mean from that of the smallest k;
    - `from_best, from_best_low, from_best_high`: its difference from that of the best k, which is the one with the
      highest `mean_at_best`, the mean over all seeds at `best_step_size`;
    - `mean_at_plain`, like `mean`, but at the choices of the smallest k;
    - `failed_step_sizes`: at which a run, of either half, diverged or has no score. They are not candidates.

    A k without candidates has nulls. A k without a step size that has runs in both halves has nulls but for
    `best_step_size` and `mean_at_best`. Intervals are 95 % percentile bootstraps over seeds, independent for each k.
    They are given the choices: that other seeds might have chosen otherwise is not in them.
    """
    require(runs, *CELL, "seed", "diverged", "score")
    seeds = runs["seed"].unique().sort()
    halved = runs.with_columns(lower=pl.col("seed").is_in(seeds.head(len(seeds) // 2).to_list()))
    halves = [halved.filter("lower"), halved.filter(~pl.col("lower"))]
    failed = failed_step_sizes(runs)
    best = best_step_sizes(runs, failed)
    whole = halved.group_by(CELL).agg(lacks=pl.col("lower").n_unique() < 2)  # no run in one of the halves
    usable = failed.join(whole, on=CELL).select(*CELL, out=pl.col("out") | pl.col("lacks"))
    chosen = [best_step_sizes(half, usable) for half in halves]
    ks = best["k"].to_list()
    scores = {k: scores_at(k, [chosen_for(k, one) for one in chosen], halves[::-1]) for k in ks}
    drawn = {
        k: resampled(own[None], np.array([len(own)]), "run_mean", resamples=resamples, seed=seed, stream=stream)[0]
        for stream, (k, own) in enumerate(scores.items())
        if own is not None
    }
    on_all = _means_at(best, runs)
    top = max(on_all, key=lambda k: on_all[k], default=None)  # of equals the smallest
    rows = []
    for k, step_size, out in best.iter_rows():
        row: dict[str, float | None] = {"k": k, "best_step_size": step_size, "failed_step_sizes": out, "runs": 0}
        row["mean_at_best"] = on_all.get(k)
        own, plain = scores[k], scores[ks[0]]
        if own is not None:
            row |= dict(zip(CHOICES[1:], (chosen_for(k, one) for one in chosen), strict=True))
            row |= {"runs": len(own)} | _interval(MEAN, float(own.mean()), drawn[k])
            for names, other in ((DIFFERENCE, ks[0]), (FROM_BEST, top)):
                base = scores.get(other)
                if base is not None:
                    drawn_here = drawn[k] - drawn[other] if k != other else np.zeros(1)
                    row |= _interval(names, float(own.mean() - base.mean()), drawn_here)
        if own is not None and plain is not None:
            at_plain = scores_at(k, [chosen_for(ks[0], one) for one in chosen], halves[::-1])
            complete = at_plain is not None and len(at_plain) == len(own) and not np.isnan(at_plain).any()
            row["mean_at_plain"] = float(at_plain.mean()) if at_plain is not None and complete else None
        rows.append(row)
    columns = dict.fromkeys(("k", *CHOICES, *MEAN, *DIFFERENCE, *FROM_BEST), pl.Float64)
    columns |= dict.fromkeys(("mean_at_best", "mean_at_plain"), pl.Float64)
    return pl.DataFrame(rows, columns | dict.fromkeys(("runs", "failed_step_sizes"), pl.Int64))


def tuned_pair(runs: pl.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> ChosenPair | None:
    """The best k above the smallest, chosen together with its step size; None where there is one k.

    Takes the table of `tuned_scores`. Each half of the seeds chooses one pair of all of them, and the other half scores
    it: so the difference is not too high because the best of many k was taken after the fact.
    """
    cells = runs.select(CELL).unique().sort(CELL)
    if cells["k"].n_unique() < 2:
        return None
    numbered = cells.with_columns(cell=pl.int_range(pl.len()).cast(pl.Float64))
    above = (pl.col("k") > pl.col("k").min()).cast(pl.Float64)
    pairs = runs.join(numbered, on=CELL).with_columns(k=above, step_size="cell")
    row = tuned_scores(pairs, resamples=resamples, seed=seed).row(-1, named=True)
    best, *choices = (None if row[name] is None else cells.row(int(row[name])) for name in CHOICES)
    return ChosenPair(best, tuple(one for one in choices if one is not None), tuple(row[name] for name in DIFFERENCE))


def _means_at(best: pl.DataFrame, runs: pl.DataFrame) -> dict[float, float]:
    """The mean score over all seeds of each k at its best step size, in the order of k; of those that have one."""
    means = runs.join(best.drop_nulls("step_size"), on=CELL).group_by("k").agg(pl.col("score").mean()).sort("k")
    return dict(means.iter_rows())


def _interval(names: tuple[str, ...], value: float, drawn: Floats) -> dict[str, float | None]:
    low, high = bounds(drawn.copy())  # it reorders them
    return dict(zip(names, (value, float(low), float(high)), strict=True))
