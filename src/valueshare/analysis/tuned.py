"""Learners at their best settings, which are chosen on the seeds that are scored, or on the other half of the seeds.

The learners are the values of one column, `group`, like k; `setting` is the column of what is chosen for each of them,
like the step size. A setting at which any run diverged or has no score is not a candidate.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis.resampling import bounds, resampled
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import CI95, MIN_SEEDS, require

Floats = NDArray[np.float64]
INCREASE_RESAMPLES = 10_000
WIDENING = math.sqrt(1.36)  # see `_interval`
CHOICES = ("best", "first_half_choice", "second_half_choice")
MEAN = ("mean", *CI95)
DIFFERENCE = ("difference", "difference_low", "difference_high")
FROM_BEST = ("from_best", "from_best_low", "from_best_high")
ENDS = (*MEAN[1:], *DIFFERENCE[1:], *FROM_BEST[1:])  # of intervals
FAILED = pl.col("diverged") | pl.col("score").is_null()


class ChosenPair(NamedTuple):
    """A k above the smallest with its setting, chosen together, against the smallest k with its own."""

    best: tuple[float, float] | None  # k and setting with the highest mean over all seeds
    choices: tuple[tuple[float, float], ...]  # of the first half of the seeds, and of the second
    difference: tuple[float, float | None, float | None] | tuple[None, None, None]  # on the other halves, with interval


def tuned_increase(runs: pl.DataFrame, *, held_out: bool = False, resamples: int = INCREASE_RESAMPLES) -> pl.DataFrame:
    """The increase of the mean score over the smallest k, each k at its best step size, in percent.

    Takes a row per run and step (`k, step_size, seed, step, diverged, score`). Returns a row per step and k
    (`regime, k, increase_percent, ci95_low, ci95_high, best_step_size, mean_score, diverged_step_sizes`). The best step
    size is the one with the highest mean score. Chosen on the seeds that are scored, it makes the increase of every k
    somewhat too high. With `held_out`, each half of the seeds is scored at the choice of the other half
    (`best_step_size` is that of the first half). A k without candidates has nulls.

    The interval is a percentile bootstrap over seeds of 100 (m_k - m_0) / |m_0|, both means resampled, because the runs
    of different k share no random numbers. With `held_out` it is widened, as that of `tuned_scores`. Where a resampled
    m_0 can be 0 there is no interval.
    """
    rows = []
    for (regime,), step_runs in runs.partition_by("step", as_dict=True).items():
        halved = _in_halves(step_runs)
        choices = held_out_choices(halved, "k", "step_size") if held_out else best_settings(step_runs, "k", "step_size")
        best = dict((choices.filter(~pl.col("lower")) if held_out else choices).select("k", "step_size").iter_rows())
        crossed = _with_a_choice(halved, "k", "step_size") if held_out else ()
        scores = _scores_at(halved, choices, "k")
        failed = _failed_settings(step_runs, "k", "step_size")
        smallest = min(failed)
        drawn = _drawn_means(scores, failed, resamples, seed=0)
        for k, diverged in failed.items():
            row = {"regime": regime, "k": k, "best_step_size": best.get(k), "diverged_step_sizes": diverged}
            if k in scores:
                row["mean_score"] = float(scores[k].mean())
                if smallest in scores:
                    row |= _increase(scores, drawn, k, smallest, crossed)
            rows.append(row)
    columns = {"regime": pl.Int64, "k": pl.Float64, "increase_percent": pl.Float64}
    columns |= dict.fromkeys((*CI95, "best_step_size", "mean_score"), pl.Float64)
    return pl.DataFrame(rows, columns | {"diverged_step_sizes": pl.Int64}).sort("regime", "k")


def tuned_scores(
    runs: pl.DataFrame, group: str = "k", setting: str = "step_size", *, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """The mean score of each group at its best setting, and its difference from that of the smallest group.

    Takes a row per run (`group, setting, seed, diverged, score`). Returns a row per group:

    - `best`, the setting with the highest mean over all seeds; `first_half_choice` and `second_half_choice`, the same
      over either half of them (the first half are the lower ones of all seeds of the table, so that a seed is in the
      same half everywhere), of the settings with runs in both halves;
    - `mean, ci95_low, ci95_high` of the scores of each half at the choice of the other half, and `runs`;
    - `difference, difference_low, difference_high` of this mean from that of the smallest group;
    - `from_best, from_best_low, from_best_high`: its difference from that of the best group, which is the one with the
      highest `mean_at_best`, the mean over all seeds at `best`;
    - `mean_at_reference`, like `mean`, but at the choices of the smallest group;
    - `failed`: the number of settings at which a run, of either half, diverged or has no score.

    A group without candidates has nulls. A group without a setting that has runs in both halves has nulls but for
    `best` and `mean_at_best`. Intervals are 95 % percentile bootstraps over seeds, independent for each group, and
    wider by a factor of 1.17 where a group, or one of two that are compared, had several settings to choose from. They
    are given the choices: that other seeds might have chosen better or worse settings is not in them. Where a half has
    fewer than 3 seeds there are none.
    """
    require(runs, group, setting, "seed", "diverged", "score")
    halved = _in_halves(runs)
    best, choices = best_settings(runs, group, setting), held_out_choices(halved, group, setting)
    failed = _failed_settings(runs, group, setting)
    smallest = min(failed)
    crossed = _with_a_choice(halved, group, setting)
    scores = _scores_at(halved, choices, group)
    at_reference = _scores_at(halved, choices.filter(pl.col(group) == smallest).drop(group), group)
    on_all = {value: float(group_scores.mean()) for value, group_scores in _scores_at(runs, best, group).items()}
    top = max(on_all, key=lambda value: on_all[value], default=None)  # of equals the smallest
    drawn = _drawn_means(scores, failed, resamples, seed)
    rows = []
    for value, count in failed.items():
        row: dict[str, float | None] = {group: value, "failed": count, "runs": 0, "mean_at_best": on_all.get(value)}
        group_scores = scores.get(value)
        if group_scores is not None:
            mean = float(group_scores.mean())
            row |= {"runs": len(group_scores)} | _interval(MEAN, mean, drawn[value], crossed=value in crossed)
            for names, other in ((DIFFERENCE, smallest), (FROM_BEST, top)):
                if other in scores:
                    drawn_difference = drawn[value] - drawn[other] if value != other else np.zeros(1)
                    either = value in crossed or other in crossed
                    row |= _interval(names, mean - float(scores[other].mean()), drawn_difference, crossed=either)
            reference = at_reference.get(value, group_scores[:0])
            complete = len(reference) == len(group_scores) and not np.isnan(reference).any()
            row["mean_at_reference"] = float(reference.mean()) if complete else None
        rows.append(row)
    numbers = dict.fromkeys((*MEAN, *DIFFERENCE, *FROM_BEST, "mean_at_best", "mean_at_reference"), pl.Float64)
    counts = dict.fromkeys(("runs", "failed"), pl.Int64)
    table = pl.DataFrame(rows, {group: runs.schema[group], **numbers, **counts})
    chosen = (best, choices.filter(~pl.col("lower")), choices.filter("lower"))
    for name, choices_of_seeds in zip(CHOICES, chosen, strict=True):
        table = table.join(
            choices_of_seeds.select(group, pl.col(setting).alias(name)), on=group, how="left", maintain_order="left"
        )
    if runs["seed"].n_unique() // 2 < MIN_SEEDS:
        table = table.with_columns(pl.lit(None, pl.Float64).alias(name) for name in ENDS)
    return table.select(group, *CHOICES, *numbers, *counts)


def tuned_pair(runs: pl.DataFrame, setting: str = "step_size", *, resamples: int = RESAMPLES) -> ChosenPair | None:
    """The best k above the smallest, chosen together with its setting; None where there is one k.

    Takes the table of `tuned_scores`. Each half of the seeds chooses one pair of all of them, and the other half scores
    it: so the difference is not too high because the best of many k was taken after the fact.
    """
    pairs = runs.select("k", setting).unique().sort("k", setting)
    if pairs["k"].n_unique() < 2:
        return None
    numbered = runs.join(pairs.with_row_index("pair"), on=["k", setting])
    above = numbered.with_columns(above=pl.col("k") > pl.col("k").min())
    row = tuned_scores(above, "above", "pair", resamples=resamples).row(-1, named=True)
    best, *choices = (None if row[name] is None else pairs.row(row[name]) for name in CHOICES)
    return ChosenPair(
        best, tuple(choice for choice in choices if choice is not None), tuple(row[name] for name in DIFFERENCE)
    )


def best_settings(runs: pl.DataFrame, group: str, setting: str) -> pl.DataFrame:
    """The setting of each group with the highest mean score, of equals the smallest; for groups with candidates."""
    return _highest(_candidates(runs, group, setting), group, setting)


def held_out_choices(halved: pl.DataFrame, group: str, setting: str) -> pl.DataFrame:
    """`group, lower, setting`: the setting at which a half is scored, which the other half has chosen."""
    in_both = _in_both_halves(halved, group, setting)
    tables = [
        _highest(in_both.filter(pl.col("lower") != scored), group, setting).with_columns(lower=pl.lit(scored))
        for scored in (False, True)
    ]
    return pl.concat(tables).select(group, "lower", setting)


def _in_halves(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs with a column `lower`: whether a seed is in the lower half of all seeds."""
    seeds = runs["seed"].unique().sort()
    return runs.with_columns(lower=pl.col("seed").is_in(seeds.head(len(seeds) // 2).to_list()))


def _in_both_halves(halved: pl.DataFrame, group: str, setting: str) -> pl.DataFrame:
    """The runs of candidates that have some in either half."""
    return _candidates(halved, group, setting).filter(pl.col("lower").n_unique().over(group, setting) == 2)


def _with_a_choice(halved: pl.DataFrame, group: str, setting: str) -> set[float]:
    """The groups with several settings to choose from."""
    return set(_in_both_halves(halved, group, setting).filter(pl.col(setting).n_unique().over(group) > 1)[group])


def _candidates(runs: pl.DataFrame, group: str, setting: str) -> pl.DataFrame:
    return runs.filter(~FAILED.any().over(group, setting))


def _highest(runs: pl.DataFrame, group: str, setting: str) -> pl.DataFrame:
    means = runs.group_by(group, setting).agg(pl.col("score").mean())
    ranked = means.sort("score", setting, descending=[True, False])
    return ranked.unique(group, keep="first", maintain_order=True).select(group, setting).sort(group)


def _failed_settings(runs: pl.DataFrame, group: str, setting: str) -> dict[float, int]:
    """How many settings of each group are not candidates, in the order of groups."""
    cells = runs.group_by(group, setting).agg(FAILED.any().alias("failed"))
    return dict(cells.group_by(group).agg(pl.col("failed").sum()).sort(group).iter_rows())


def _scores_at(runs: pl.DataFrame, choices: pl.DataFrame, group: str) -> dict[float, Floats]:
    """The scores of each group at its choices, in the order of halves and seeds; of those that have any."""
    chosen = runs.join(choices, on=choices.columns).sort(*choices.columns, "seed")
    parts = chosen.sort(group, maintain_order=True).partition_by(group, as_dict=True)
    return {name: group_runs["score"].cast(pl.Float64).to_numpy() for (name,), group_runs in parts.items()}


def _interval(names: tuple[str, ...], value: float, drawn: Floats, *, crossed: bool) -> dict[str, float | None]:
    """A value with its percentile interval, which is widened if two halves were scored at the choices of each other.

    The means S_A and S_B of the halves, of J settings each, choose c_A and c_B; the value is (S_B(c_A) + S_A(c_B)) / 2.
    Cov(S_B(c_A), S_A(c_B)) is the sum of M_ij M_ji, M_ij = E[S(i) 1{c = j}]. For J equal settings of independent normal
    S with variance 1 and m = E[max S], M_ii = m / J and M_ij = -m / (J (J - 1)). So it is m² / (J - 1) <= 0.36 (J = 3).
    Given the choices it is no larger if their means differ, and smaller if they share random numbers.
    """
    interval = [float(bound) for bound in bounds(drawn.copy())]  # it reorders them
    if crossed:
        interval = [value + WIDENING * (bound - value) for bound in interval]
    return dict(zip(names, (value, *interval), strict=True))


def _drawn_means(
    scores: Mapping[float, Floats], order: Iterable[float], resamples: int, seed: int
) -> dict[float, Floats]:
    """The means of resampled scores of each group, [R]; a stream of random numbers for each place in the order."""
    return {
        name: resampled(row[None], np.array([len(row)]), "run_mean", resamples=resamples, seed=seed, stream=stream)[0]
        for stream, name in enumerate(order)
        if (row := scores.get(name)) is not None
    }


def _increase(
    scores: Mapping[float, Floats],
    drawn: Mapping[float, Floats],
    k: float,
    smallest: float,
    crossed: Collection[float],
) -> dict[str, float | None]:
    """The increase over the smallest k in percent, and its interval where no resampled mean of the smallest is 0."""
    names = ("increase_percent", *CI95)
    if k == smallest:
        return dict.fromkeys(names, 0.0)
    mean, reference = float(scores[k].mean()), float(scores[smallest].mean())
    if reference == 0:
        return dict.fromkeys(names, None)
    point = 100 * (mean - reference) / abs(reference)
    if (drawn[smallest] == 0).any():
        return dict(zip(names, (point, None, None), strict=True))
    increases = 100 * (drawn[k] - drawn[smallest]) / np.abs(drawn[smallest])
    return _interval(names, point, increases, crossed=k in crossed or smallest in crossed)
