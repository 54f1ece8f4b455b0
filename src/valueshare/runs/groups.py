"""Agents in groups: what a display, a log or a summary says of many agents at once."""

from dataclasses import fields

import polars as pl

from valueshare.learning.algorithms import algorithm_named
from valueshare.population.settings import AgentSettings

GROUP = ("env", "algorithm", "k")
OWN = tuple(field.name for field in fields(AgentSettings))


def group_columns(agents: pl.DataFrame) -> tuple[str, ...]:
    """What tells groups apart: GROUP, and what differs between agents that share all of it.

    What differs between environments alone, as presets do, is left out.
    """
    values = agents.group_by(*GROUP).agg(pl.col(OWN).n_unique())
    return (*GROUP, *(name for name in OWN if (values[name] > 1).any()))


def group_scores(agents: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """A row a group, in the table's order: its agents, and how they did at their last evaluation.

    `score` is the mean over the agents that have one; null where none does.
    """
    columns = group_columns(agents)
    latest = records.sort("step").group_by("agent").last()
    return (
        agents.select("agent", *columns)
        .join(latest, on="agent", how="left", maintain_order="left")
        .group_by(*columns, maintain_order=True)
        .agg(
            pl.len().alias("agents"),
            pl.col("step").min(),
            pl.col("score").mean(),
            pl.col("diverged_at").is_not_null().sum().alias("diverged"),
        )
    )


def label(row: dict[str, object]) -> str:
    """A group in a few characters: ib-dqn k=4, or ib-dqn k=4 step_size=0.001 in a sweep of it."""
    return " ".join([f"{row['algorithm']} k={row['k']:g}", *own_values(row)])


def own_values(row: dict[str, object]) -> list[str]:
    """What a group has besides algorithm and k: step_size=0.001."""
    unread = () if algorithm_named(str(row["algorithm"])).uses_beta else ("beta",)
    return [f"{name}={row[name]:g}" for name in OWN if name in row and name not in unread]


def shown_score(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"
