"""Comparing learners that were each given their own best step size."""

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
    resamples: int = RESAMPLES,
) -> pl.DataFrame:
    """The increase of the mean score over the smallest k, each k at its best step size, in percent.

    Takes a row a run and moment (`k, step_size, seed, step, diverged, score`) and answers a row a
    moment and k (`regime, k, increase_percent, ci95_low, ci95_high, best_step_size, mean_score,
    diverged_step_sizes`). The best step size is the one with the highest mean score among the runs
    that `choose` keeps; the increase is measured on those that `score` keeps. If they are the same
    runs, as by default, the increase of every k is somewhat flattered. A step size at which any
    run diverged is not a candidate; a k that is left with none has nulls.

    The interval is a percentile bootstrap over seeds of 100 (m_k - m_0) / |m_0|, both means
    resampled, because the runs of different k share no random numbers.
    """
    picked = runs.filter(choose) if choose is not None else runs
    scored = runs.filter(score) if score is not None else runs
    if picked.is_empty() or scored.is_empty():
        raise InvalidInput("no runs are left to choose step sizes on, or to score them")
    rows = []
    for (regime,), at_regime in scored.group_by("step", maintain_order=True):
        rng = np.random.default_rng(0)
        best = _best_step_sizes(picked.filter(pl.col("step") == regime))
        scores = {
            k: _scores(at_regime, k, step_size)
            for k, step_size, _ in best.iter_rows()
            if step_size is not None
        }
        plain = best["k"].min()
        for k, step_size, diverged in best.iter_rows():
            row = {"regime": regime, "k": k, "best_step_size": step_size}
            row["diverged_step_sizes"] = diverged
            if k in scores and plain in scores:
                row["mean_score"] = float(scores[k].mean())
                row |= _increase(scores[k], scores[plain], k == plain, resamples, rng)
            rows.append(row)
    columns = {"regime": pl.Int64, "k": pl.Float64, "increase_percent": pl.Float64}
    columns |= dict.fromkeys(("ci95_low", "ci95_high", "best_step_size", "mean_score"), pl.Float64)
    return pl.DataFrame(rows, columns | {"diverged_step_sizes": pl.Int64}).sort("regime", "k")


def _best_step_sizes(runs: pl.DataFrame) -> pl.DataFrame:
    """Columns k, step_size (null if all diverged), and how many step sizes diverged."""
    means = runs.group_by("k", "step_size").agg(
        pl.col("score").mean(), pl.col("diverged").any().alias("out")
    )
    kept = means.filter(~pl.col("out"))
    best = kept.sort("score", "step_size", descending=[True, False]).unique("k", keep="first")
    out = means.group_by("k").agg(pl.col("out").sum())
    return (
        out.join(best.select("k", "step_size"), on="k", how="left")
        .select("k", "step_size", "out")
        .sort("k")
    )


def _scores(runs: pl.DataFrame, k: float, step_size: float) -> Floats:
    """Scores by seed; a run that diverged among those that were not chosen on counts as 0."""
    own = runs.filter((pl.col("k") == k) & (pl.col("step_size") == step_size)).sort("seed")
    return own["score"].fill_null(0).cast(pl.Float64).to_numpy()


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
    low, high = np.quantile(increases[np.isfinite(increases)], (0.025, 0.975))
    point = 100 * (scores.mean() - plain.mean()) / abs(plain.mean())
    return dict(zip(names, (float(point), float(low), float(high)), strict=True))


def _resampled_means(scores: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    drawn = rng.integers(len(scores), size=(resamples, len(scores)))
    means: Floats = scores[drawn].mean(axis=1)
    return means
