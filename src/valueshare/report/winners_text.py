"""The settings that win as a table of text."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from valueshare.analysis.run_values import LAST
from valueshare.text import align_columns, format_number, interval_text, pluralize

SCORES = {"auc": "AUC (the mean score over all evaluations)", "final": "mean score of the last three evaluations"}
HOW_TO_READ = (
    "Each half of the seeds chooses settings, and the other half is scored at them. The score is the mean over both; "
    "intervals are 95 % over seeds, given the choices, and allow for the correlation of the two halves."
)


def winner_lines(winners: pl.DataFrame, metric: str) -> list[str]:
    """A table per environment, and the choice of all seeds below it."""
    lines = []
    for (env,), env_winners in winners.group_by("env", maintain_order=True):
        rows = env_winners.to_dicts()
        first = rows[0]
        size = f"{pluralize(first['settings'], 'setting')}, {pluralize(first['seeds'], 'seed')}"
        chosen = [f"chosen on {'seed' if seeds.isdigit() else 'seeds'} {seeds}" for seeds in _halves(rows)]
        heads = ("", *chosen, "score on the other seeds")
        score = SCORES[metric]
        if metric == "final" and first["evaluations"] < LAST:
            score = f"mean score of {pluralize(first['evaluations'], 'evaluation')}, as there are no more"
        lines += [f"{env}: {score}; {size}", *align_columns([heads, *map(_cells, rows)])]
        if first["best"] is not None:
            mean = format_number(first["mean_at_best"])
            lines.append(f"best over all seeds: {first['best']}, mean {mean} (optimistic: selected on the same seeds)")
        lines.append("")
    return [*lines, HOW_TO_READ]


def _halves(rows: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """The seeds of both halves; in words where algorithms were run with other seeds."""
    halves = {(row["first_half_seeds"], row["second_half_seeds"]) for row in rows}
    return halves.pop() if len(halves) == 1 else ("of the lower half", "of the upper half")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = row["algorithm"] or "all algorithms"
    if row["mean"] is None:
        return name, "-", "-", "-"
    score = f"{format_number(row['mean'])} (no interval)"
    if row["ci95_low"] is not None:
        score = interval_text(row["mean"], row["ci95_low"], row["ci95_high"])
    return name, row["first_half_choice"], row["second_half_choice"], score
