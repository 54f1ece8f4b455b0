"""The settings that win: chosen on half of the seeds, and scored on the other half."""

from collections.abc import Mapping
from typing import Any, Literal

import polars as pl

from valueshare.algorithm_info import has_layer, unread_settings
from valueshare.analysis.learner_names import LearnerName
from valueshare.analysis.run_values import at_shared_steps, final_scores, run_auc, with_divergence
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import AGENT_SETTINGS, group_label, require
from valueshare.analysis.tuned import CHOICES, MEAN, tuned_scores
from valueshare.errors import InvalidInput
from valueshare.text import pluralize, shorten_list

Metric = Literal["auc", "final"]
METRICS = {"auc": run_auc, "final": final_scores}
# Fewer are too few for advice. Of made-up scores without any difference (3 k, 2 step sizes), 44 % of the intervals of
# `tuned_pair` exclude 0 with 2 seeds, 17 % with 4, 12 % with 6, 10 % with 10, and 6 % with 20 and with 100.
FEW_SEEDS = 10
HALVES = ("first_half_seeds", "second_half_seeds")


def winning_settings(table: pl.DataFrame, metric: Metric = "auc", *, resamples: int = RESAMPLES) -> pl.DataFrame:
    """The settings with the highest mean score in each environment, of all algorithms together and of each of them.

    Takes tidy results: a row per run and evaluation. The score of a run is its AUC, the mean over its evaluations, or
    the mean of its last three ("final"); where evaluation intervals differ, over those that all runs have. Returns a
    row per environment and algorithm (null: all of them):

    - `first_half_choice, second_half_choice`: the settings with the highest mean on the lower half of the seeds, and on
      the upper half; `first_half_seeds, second_half_seeds` are these seeds, like 0-7;
    - `mean, ci95_low, ci95_high`: each half scored at the choice of the other half, with a 95 % interval over seeds,
      given the choices; no interval where a half has fewer than 3 seeds;
    - `best, mean_at_best`: the choice of all seeds, and its mean over them. It is too high: these seeds chose it;
    - `seeds`, `settings`, how many, and `failed`, of how many settings an agent diverged or has no score: they are no
      candidates; `fewest_seeds` of any setting: each is compared by the mean of those that it has;
    - `evaluations`: of how many the score of a run is the mean.
    """
    if metric not in METRICS:
        raise InvalidInput(f"`metric = {metric!r}`: write one of {', '.join(METRICS)}")
    require(table, "env", "algorithm", "k", "seed", "step", "score")
    columns = [name for name in ("algorithm", "k", *AGENT_SETTINGS, "optimizer") if name in table.columns]
    runs = with_divergence(METRICS[metric](at_shared_steps(table)).table, table)
    by_env = runs.partition_by("env", maintain_order=True)
    rows = [row for env_runs in by_env for row in _rows(env_runs, columns, resamples)]
    texts, numbers = dict.fromkeys(("env", "algorithm", *CHOICES, *HALVES), pl.String), dict.fromkeys(MEAN, pl.Float64)
    counts = dict.fromkeys(("seeds", "fewest_seeds", "settings", "failed", "evaluations"), pl.Int64)
    return pl.DataFrame(rows, {**texts, **numbers, "mean_at_best": pl.Float64, **counts})


def _rows(runs: pl.DataFrame, columns: list[str], resamples: int) -> list[dict[str, Any]]:
    """The rows of one environment."""
    combinations = runs.select(columns).unique(maintain_order=True).sort(columns, nulls_last=True)
    swept = [name for name in columns[2:] if combinations[name].n_unique() > 1]
    labels = [_label(row, swept) for row in combinations.to_dicts()]
    numbered = runs.join(combinations.with_row_index("setting"), on=columns, nulls_equal=True)
    algorithms = combinations["algorithm"].unique().sort().to_list()
    groups: list[str | None] = [None, *algorithms] if len(algorithms) > 1 else [*algorithms]
    rows = []
    for algorithm in groups:
        group_runs = numbered if algorithm is None else numbered.filter(pl.col("algorithm") == algorithm)
        scored = group_runs.select("setting", "seed", "diverged", "score", group=pl.lit(0))
        row = tuned_scores(scored, "group", "setting", resamples=resamples).row(0, named=True)
        choices = {name: None if row[name] is None else labels[row[name]] for name in CHOICES}
        kept = {name: row[name] for name in (*MEAN, "mean_at_best", "failed")}
        seeds = group_runs["seed"].unique().sort().to_list()
        half = len(seeds) // 2  # as `tuned_scores` splits them
        choices |= dict(zip(HALVES, (_seed_text(seeds[:half]), _seed_text(seeds[half:])), strict=True))
        counts = {"seeds": len(seeds), "settings": group_runs["setting"].n_unique()}
        counts["fewest_seeds"] = min(group_runs.group_by("setting").agg(pl.col("seed").n_unique())["seed"].to_list())
        counts["evaluations"] = runs.select((pl.col("points") + pl.col("missing")).max()).item()
        rows.append({"env": runs["env"][0], "algorithm": algorithm, **choices, **kept, **counts})
    return rows


def _seed_text(seeds: list[int]) -> str:
    """0-7, or 0, 2, 5 where seeds are missing between the first and the last."""
    if len(seeds) > 1 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]}-{seeds[-1]}"
    return shorten_list([str(seed) for seed in seeds])


def _label(row: Mapping[str, Any], swept: list[str]) -> str:
    """ib-dqn k=4 step_size=0.001; settings that do not vary are left out."""
    algorithm = LearnerName.parse(str(row["algorithm"])).algorithm
    unread = unread_settings(algorithm)
    shown = ["k"] if has_layer(algorithm) or row["k"] else []
    shown += [name for name in swept if row[name] is not None and name not in unread]
    return group_label({name: row[name] for name in ("algorithm", *shown)})


def check_halves(winners: pl.DataFrame) -> list[str]:
    """Refuse results with nothing to choose, or with one seed; notes on few seeds and on settings without a score."""
    if winners["settings"].max() == 1:
        raise InvalidInput(
            "there is one combination of settings, so nothing to choose: train several, such as values of `k`"
        )
    seeds = winners["seeds"].max()
    if not isinstance(seeds, int):
        raise InvalidInput("there are no scores to choose by yet: wait for the first evaluation")
    if seeds < 2:
        raise InvalidInput(
            f"there is one seed: choosing on one half of the seeds and scoring on the other needs at least 2, and "
            f"{FEW_SEEDS} for advice; write `seeds = {FEW_SEEDS}`"
        )
    notes = []
    by_env = winners.group_by("env", maintain_order=True).agg(pl.col("seeds").first())
    few = by_env.filter(pl.col("seeds") < FEW_SEEDS)
    for env, count in few.iter_rows() if by_env["seeds"].n_unique() > 1 else few.head(1).iter_rows():
        where = f"{env}: " if by_env["seeds"].n_unique() > 1 else ""
        verb = "is" if count == 1 else "are"
        notes.append(f"{where}{pluralize(count, 'seed')} {verb} too few for advice: run at least {FEW_SEEDS}")
    for env, env_winners in winners.group_by("env", maintain_order=True):
        row = env_winners.row(0, named=True)
        if row["fewest_seeds"] < row["seeds"]:
            counts = f"{row['fewest_seeds']} to {row['seeds']} seeds"
            notes.append(f"{env[0]}: settings have {counts}, and are compared by the mean of those that each has")
        if row["failed"]:
            notes.append(
                f"{env[0]}: {row['failed']} of {pluralize(row['settings'], 'setting')} are not candidates, because an "
                "agent diverged or lacks a score"
            )
    return notes
