"""Comparing learners that were each given their own best step size."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.errors import InvalidInput

Floats = NDArray[np.float64]
RESAMPLES = 10_000


def tuned_increase(
    runs: pl.DataFrame,
    *,
    choose: pl.Expr | None = None,
    score: pl.Expr | None = None,
    both_ways: bool = False,
    resamples: int = RESAMPLES,
) -> pl.DataFrame:
    """The increase of the mean score over the smallest k, each k at its best step size, in percent.

    Takes a row per run and step (`k, step_size, seed, step, diverged, score`). Returns a row per step and k
    (`regime, k, increase_percent, ci95_low, ci95_high, best_step_size, mean_score, diverged_step_sizes`). The best step
    size is the one with the highest mean score among the runs that `choose` keeps; the increase is measured on those
    that `score` keeps. If they are the same runs, as by default, the increase of every k is somewhat too high. With
    `both_ways`, the two sets then change places, and the scores of both turns are taken together: every run is scored
    at a step size that it had no part in choosing (`best_step_size` is that of the first turn), apart from divergence,
    which is judged on all runs: a step size at which any run, of either set, diverged or has no score is no candidate.
    A k that is left with none has nulls.

    The interval is a percentile bootstrap over seeds of 100 (m_k - m_0) / |m_0|, both means resampled, because the runs
    of different k share no random numbers. Where a resampled m_0 can be 0 there is no interval.
    """
    turns = [(choose, score), (score, choose)] if both_ways else [(choose, score)]
    sets = [(_kept(runs, chooses), _kept(runs, scores)) for chooses, scores in turns]
    rows = []
    for regime in runs["step"].unique().sort():
        rng = np.random.default_rng(0)
        now = pl.col("step") == regime
        failed = failed_step_sizes(runs.filter(now))
        best = [best_step_sizes(choosing.filter(now), failed) for choosing, _ in sets]
        ks = best[0]["k"].to_list()
        scored = [rows.filter(now) for _, rows in sets]
        scores = {k: scores_at(k, [chosen_for(k, choice) for choice in best], scored) for k in ks}
        plain = scores[ks[0]]
        for k, step_size, diverged in best[0].iter_rows():
            row = {"regime": regime, "k": k, "best_step_size": step_size, "diverged_step_sizes": diverged}
            own = scores[k]
            if own is not None:
                row["mean_score"] = float(own.mean())
            if own is not None and plain is not None:
                row |= _increase(own, plain, k == ks[0], resamples, rng)
            rows.append(row)
    columns = {"regime": pl.Int64, "k": pl.Float64, "increase_percent": pl.Float64}
    columns |= dict.fromkeys(("ci95_low", "ci95_high", "best_step_size", "mean_score"), pl.Float64)
    return pl.DataFrame(rows, columns | {"diverged_step_sizes": pl.Int64}).sort("regime", "k")


def _kept(runs: pl.DataFrame, which: pl.Expr | None) -> pl.DataFrame:
    kept = runs if which is None else runs.filter(which)
    if kept.is_empty():
        raise InvalidInput("no runs are left to choose step sizes on, or to score them")
    return kept


def failed_step_sizes(runs: pl.DataFrame) -> pl.DataFrame:
    """Columns k, step_size, and `out`: whether any run with them diverged or has no score."""
    failed = pl.col("diverged") | pl.col("score").is_null()
    return runs.group_by("k", "step_size").agg(failed.any().alias("out"))


def best_step_sizes(runs: pl.DataFrame, failed: pl.DataFrame) -> pl.DataFrame:
    """Columns k, step_size (null if all failed), and how many step sizes failed; of equals the smallest is best."""
    means = runs.group_by("k", "step_size").agg(pl.col("score").mean())
    means = means.join(failed, on=["k", "step_size"])
    kept = means.filter(~pl.col("out"))
    best = kept.sort("score", "step_size", descending=[True, False]).unique("k", keep="first")
    out = means.group_by("k").agg(pl.col("out").sum())
    return out.join(best.select("k", "step_size"), on="k", how="left").select("k", "step_size", "out").sort("k")


def chosen_for(k: float, best: pl.DataFrame) -> float | None:
    """The step size of one k in a table of `best_step_sizes`; None if every one failed, or there is no such k."""
    found = best.filter(pl.col("k") == k)["step_size"].to_list()
    return found[0] if found else None


def scores_at(k: float, step_sizes: Sequence[float | None], scored: Sequence[pl.DataFrame]) -> Floats | None:
    """Scores by seed of one k, all turns together, each at its own step size; None if one has none."""
    scores = list[Floats]()
    for step_size, runs in zip(step_sizes, scored, strict=True):
        if step_size is None:
            return None
        own = runs.filter((pl.col("k") == k) & (pl.col("step_size") == step_size)).sort("seed")
        scores.append(own["score"].cast(pl.Float64).to_numpy())
    return np.concatenate(scores)


def _increase(
    scores: Floats, plain: Floats, is_plain: bool, resamples: int, rng: np.random.Generator
) -> dict[str, float | None]:
    names = ("increase_percent", "ci95_low", "ci95_high")
    if is_plain:
        return dict.fromkeys(names, 0.0)
    if plain.mean() == 0:
        return dict.fromkeys(names, None)
    drawn, drawn_plain = (_resampled_means(x, resamples, rng) for x in (scores, plain))
    with np.errstate(divide="ignore", invalid="ignore"):
        increases = 100 * (drawn - drawn_plain) / np.abs(drawn_plain)
    point = 100 * (scores.mean() - plain.mean()) / abs(plain.mean())
    if not np.isfinite(increases).all():  # too few scores but 0 to divide by
        return {"increase_percent": float(point), "ci95_low": None, "ci95_high": None}
    low, high = np.quantile(increases, (0.025, 0.975))
    return dict(zip(names, (float(point), float(low), float(high)), strict=True))


def _resampled_means(scores: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    drawn = rng.integers(len(scores), size=(resamples, len(scores)))
    means: Floats = scores[drawn].mean(axis=1)
    return means
