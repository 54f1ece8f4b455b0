"""Variants: agents that differ in their seeds alone, as displays and summaries show them."""

from typing import Any

import polars as pl

from valueshare.algorithm_info import unread_settings
from valueshare.analysis.held_out import FEW_SEEDS
from valueshare.analysis.intervals import mean_intervals
from valueshare.population.settings import PER_AGENT
from valueshare.text import FINAL_SCORE, LAST_SCORE, format_number, interval_text, pluralize

COMPARED = ("env", "algorithm", "k")


def variant_columns(agents: pl.DataFrame) -> tuple[str, ...]:
    """The columns that tell variants apart: COMPARED, and settings that differ where all of COMPARED is the same."""
    values = agents.group_by(*COMPARED).agg(pl.col(PER_AGENT).n_unique())
    return (*COMPARED, *(name for name in PER_AGENT if (values[name] > 1).any()))


def variant_scores(agents: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """One row per variant, in the table's order: its agents and their last evaluation.

    `score` is the mean over the `scored` agents that have a score there, or null; of unequal steps, `step` is the
    smallest and `last_step` the largest.
    """
    columns = variant_columns(agents)
    latest = records.sort("step").group_by("agent").last()
    return (
        agents.select("agent", *columns)
        .join(latest, on="agent", how="left", maintain_order="left")
        .group_by(*columns, maintain_order=True)
        .agg(
            pl.len().alias("agents"),
            pl.col("step").min(),
            pl.col("step").max().alias("last_step"),
            pl.col("score").mean(),
            pl.col("score").count().alias("scored"),
            pl.col("diverged_at").is_not_null().sum().alias("diverged"),
        )
    )


def summary(agents: pl.DataFrame, records: pl.DataFrame) -> list[str]:
    """The end of a run in words: the score of each variant in its last evaluation, and how many agents diverged."""
    variants = variant_scores(agents, records)
    lines = [
        f"{row['env']} {label(row)}: {LAST_SCORE} {shown_score(row['score'])} ({_counted(row)})"
        for row in variants.to_dicts()
    ]
    end = "no agent diverged"
    if diverged := variants["diverged"].sum():
        end = f"{diverged:,} of {agents.height:,} agents diverged and were frozen: try a smaller --step-size or --k"
    return [*lines, end, f"in reports, the final score is the {FINAL_SCORE}"]


def _counted(row: dict[str, Any]) -> str:
    """The agents whose scores are averaged, and when: step 100, mean of 2 agents."""
    agents = pluralize(row["agents"], "agent")
    counted = agents if row["scored"] == row["agents"] else f"{row['scored']:,} of {agents}"
    return f"{_steps(row)}, mean of {counted}"


def _steps(row: dict[str, Any]) -> str:
    """The steps for which agents have learned: step 100, or steps 100 to 200."""
    first, last = row["step"], row["last_step"]
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def evaluation_lines(agents: pl.DataFrame, episodes: pl.DataFrame) -> list[str]:
    """One line per variant: the mean over its agents, each of its episodes, with a 95 % interval; and their step.

    A note follows where an interval is of few agents.
    """
    columns = variant_columns(agents)
    scores = episodes.group_by("agent").agg(pl.col("score").mean(), pl.len().alias("episodes"), pl.col("step").max())
    table = agents.select("agent", *columns).join(scores, on="agent", maintain_order="left")
    count = pluralize(int(scores["episodes"].max()), "episode")  # type: ignore[arg-type]
    order = table.group_by(columns, maintain_order=True).agg(
        pl.col("step").min(), pl.col("step").max().alias("last_step")
    )
    lines, fewest = [], FEW_SEEDS
    for row in order.join(mean_intervals(table, columns, "score"), on=columns, maintain_order="left").to_dicts():
        if row["ci95_low"] is None:
            text = f"{format_number(row['mean'])} (no interval)"
        else:
            text = interval_text(row["mean"], row["ci95_low"], row["ci95_high"])
            fewest = min(fewest, row["agents"])
        agents_text = pluralize(row["agents"], "agent")
        lines.append(f"{row['env']} {label(row)}: mean score {text}, {_steps(row)}, {agents_text}, {count} each")
    if fewest < FEW_SEEDS:
        lines.append(f"note: intervals of {fewest} agents are too narrow: train at least {FEW_SEEDS} seeds")
    return lines


def label(row: dict[str, object]) -> str:
    """The name of a variant: ib-dqn k=4, or ib-dqn k=4 step_size=0.001 in a sweep of it; iqn, which has no k."""
    k = shown_k(row)
    return " ".join([str(row["algorithm"]), *([f"k={k}"] if k else []), *variant_settings(row)])


def shown_k(row: dict[str, object]) -> str:
    """The k of a variant; empty where its algorithm has none."""
    return "" if "k" in unread_settings(str(row["algorithm"])) else f"{row['k']:g}"


def variant_settings(row: dict[str, object]) -> list[str]:
    """Settings of a variant besides algorithm and k: step_size=0.001."""
    unread = unread_settings(str(row["algorithm"]))
    return [f"{name}={row[name]:g}" for name in PER_AGENT if name in row and name not in unread]


def shown_score(score: float | None) -> str:
    return "-" if score is None else format_number(score)
