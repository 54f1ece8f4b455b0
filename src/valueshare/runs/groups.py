"""Agents in groups: what a display, a log or a summary says of many agents at once."""

import polars as pl

GROUP = ("env", "algorithm", "k")


def group_scores(agents: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """A row a group, in the table's order: its agents, and how they did at their last evaluation.

    `score` is the mean over the agents that have one; null where none does.
    """
    latest = records.sort("step").group_by("agent").last()
    return (
        agents.select("agent", *GROUP)
        .join(latest, on="agent", how="left", maintain_order="left")
        .group_by(*GROUP, maintain_order=True)
        .agg(
            pl.len().alias("agents"),
            pl.col("step").min(),
            pl.col("score").mean(),
            pl.col("diverged_at").is_not_null().sum().alias("diverged"),
        )
    )


def label(row: dict[str, object]) -> str:
    """A group in a few characters: ib-dqn k=4."""
    return f"{row['algorithm']} k={row['k']:g}"


def shown_score(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"
