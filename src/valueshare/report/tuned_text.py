"""Two swept settings in words: which value of one suits each value of the other, and how to choose both."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from valueshare.analysis.held_out import FEW_SEEDS
from valueshare.analysis.tuned import CHOICES, DIFFERENCE, FROM_BEST, MEAN
from valueshare.report.findings import few_seeds_text
from valueshare.report.interval import Interval, format_interval
from valueshare.report.swept_settings import HeldOutChoice
from valueshare.text import plain_number, plain_numbers

HALVES = (
    "Each half of the seeds chooses, for each {first}, the {second} with the highest mean score; the other half is "
    "scored at it. So no run has a part in choosing its own {second}, apart from divergence, which is judged on all "
    "seeds: a {second} at which any run diverged or has no score is not a candidate."
)
INTERVALS = (
    "Intervals are 95 % percentile bootstrap intervals over seeds, given the choices: that other seeds might have "
    "chosen otherwise is not in them. Where the halves choose for each other, their scores are correlated, and "
    "intervals are wider by a factor of 1.17."
)


def reading(choice: HeldOutChoice) -> list[str]:
    """How to read the table and the sentences."""
    first, second = choice.grid.names
    return [HALVES.format(first=first, second=second), INTERVALS]


def verdict(choices: Sequence[HeldOutChoice]) -> list[str]:
    """The sentences of every map, with its name where there are several."""
    several = len(choices) > 1
    return [f"{choice.grid.title}: {line}" if several else line for choice in choices for line in sentences(choice)]


def sentences(choice: HeldOutChoice) -> list[str]:
    """Whether sharing value helps with settings of its own, by how much, and how to choose both settings."""
    table, second = choice.table, choice.grid.names[1]
    if table["best"].is_null().all():
        return [f"Every {second} has agents that diverged or have no score: nothing can be chosen."]
    lines = []
    if table["mean"].is_null().all():
        lines.append(f"No {second} has seeds in both halves, to choose on one and to score on the other.")
    elif choice.grid.settings[0] == "k":
        lines += [*_pair(choice), *_by_k(choice)]
    if has_few_seeds(choice):
        seeds = choice.grid.runs["seed"].n_unique()
        return [few_seeds_text(seeds), *lines, f"{_best_combination(choice)}.", *_agreement(choice)]
    return [*lines, _how_to_choose(choice), *_agreement(choice), *_edges(choice)]


def has_few_seeds(choice: HeldOutChoice) -> bool:
    """Whether a grid has too few seeds for a conclusion."""
    return choice.grid.runs["seed"].n_unique() < FEW_SEEDS


def end_of_grid(best: float | None, tried: pl.Series) -> str | None:
    """Whether a best value is the smallest or the largest of three or more that were tried: a better may lie beyond."""
    values = tried.unique().sort().to_list()
    return {values[0]: "smallest", values[-1]: "largest"}.get(best) if len(values) > 2 else None


def _pair(choice: HeldOutChoice) -> list[str]:
    """Whether some k above the smallest is better, where the same seeds choose and do not score."""
    pair, second = choice.pair, choice.grid.names[1]
    if pair is None or pair.difference[0] is None:
        return []
    difference = Interval(*pair.difference)
    reference = plain_number(choice.table["k"][0])
    verbs = {1: "scores higher than", -1: "scores lower than", 0: "shows no clear difference from"}
    chosen = [f"k = {plain_number(k)} with {plain_number(value)}" for k, value in dict.fromkeys(pair.choices)]
    halves = f"both halves chose {chosen[0]}" if len(chosen) == 1 else f"the halves chose {' and '.join(chosen)}"
    text = (
        f"k > {reference}, chosen with its {second} on half of the seeds and scored on the other half, "
        f"{verbs[difference.sign_relative_to(0.0)]} k = {reference} at its own best {second}: a difference of the mean "
        f"{choice.grid.score} of {format_interval(difference)} ({halves})."
    )
    return [text]


def _by_k(choice: HeldOutChoice) -> list[str]:
    """k = 1, 2 and 4 score higher than k = 0, each at its own best step size."""
    reference, *others = choice.table.to_dicts()
    headings = {1: "higher", -1: "lower", 0: "no clear difference"}
    sides = _sides(choice, others, DIFFERENCE)
    parts = [f"{heading}: {sides[side]}" for side, heading in headings.items() if side in sides]
    score = Interval.of(reference, MEAN)
    if score is None or not parts:
        return []
    start = f"Each k at its own best {choice.grid.names[1]}, against k = {plain_number(reference['k'])} "
    return [f"{start}({choice.grid.score} {format_interval(score, sign=False)}): {'; '.join(parts)}."]


def _how_to_choose(choice: HeldOutChoice) -> str:
    """One sentence: the best pair, what does as well, and how the second setting goes with the first."""
    (first, second), (name, _) = choice.grid.names, choice.grid.settings
    best, table = _best_row(choice), choice.table.drop_nulls("best").to_dicts()
    text = f"To choose both: {_best_combination(choice)}"
    if best["mean"] is None and any(row["mean"] is not None for row in table):
        text += f", but no {second} with seeds in both halves"
    sides = _sides(choice, [row for row in table if row[name] != best[name]], FROM_BEST)
    for side, phrase in {0: "no clear difference from it", 1: "higher than it on the other halves"}.items():
        if side in sides:
            text += f"; {phrase}, each at its own best {second}: {sides[side]}"
    if len(table) == 1:
        return f"{text}."
    values = [row["best"] for row in table]
    low, high = plain_numbers([min(values), max(values)])
    if low == high:
        return f"{text}; the best {second} is {low} for every {first}: keep it when {first} changes."
    if trend := _trend(table):
        start, end = (
            f"{plain_number(row['best'])} at {first} = {plain_number(row[name])}" for row in (table[0], table[-1])
        )
        verb, size = ("grows", "larger") if trend > 0 else ("falls", "smaller")
        return f"{text}; the best {second} {verb} from {start} to {end}: make it {size} when {first} grows."
    return f"{text}; the best {second} lies between {low} and {high} without a clear trend: search it for each {first}."


def _trend(table: Sequence[Mapping[str, Any]]) -> int:
    """1 if the second setting only grows with the first, -1 if it only falls: chosen on all seeds, and on each half."""
    chosen = [[row[name] for row in table if row[name] is not None] for name in CHOICES]
    for sign in (1, -1):
        if all(sign * v[-1] > sign * v[0] and all(sign * b >= sign * a for a, b in pairwise(v)) for v in chosen if v):
            return sign
    return 0


def _agreement(choice: HeldOutChoice) -> list[str]:
    chosen = choice.table.drop_nulls("first_half_choice")
    same = (chosen["first_half_choice"] == chosen["second_half_choice"]).sum()
    first, second = choice.grid.names
    text = f"The halves of the seeds chose the same {second} for {same} of {chosen.height} values of {first}."
    return [text] if chosen.height else []


def _edges(choice: HeldOutChoice) -> list[str]:
    """A warning where a best value is the first or last that was tried: a better one may lie beyond."""
    (first, second), name = choice.grid.settings, choice.grid.names[1]
    ends: dict[str | None, list[float]] = {}
    for value, best in choice.table.select(first, "best").iter_rows():
        tried = choice.grid.runs.filter(pl.col(first) == value)[second]
        ends.setdefault(end_of_grid(best, tried), []).append(value)
    return [
        f"The best {name} of {_listed(choice, ends[word])} is the {word} that was tried: search beyond it."
        for word in ("smallest", "largest")
        if word in ends
    ]


def _best_row(choice: HeldOutChoice) -> dict[str, Any]:
    """The value of the first setting with the highest mean over all seeds, at its best value of the second."""
    return max(choice.table.drop_nulls("best").to_dicts(), key=lambda row: row["mean_at_best"])


def _best_combination(choice: HeldOutChoice) -> str:
    (first, second), best = choice.grid.names, _best_row(choice)
    values = plain_number(best[choice.grid.settings[0]]), plain_number(best["best"])
    return f"{first} = {values[0]} with {second} {values[1]} has the highest mean over all seeds"


def _sides(choice: HeldOutChoice, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[int, str]:
    """The first settings by whether the interval of these names lies above 0 (1), below it (-1), or holds it (0)."""
    sides: dict[int, list[float]] = {}
    for row in rows:
        if (difference := Interval.of(row, names)) is not None:
            sides.setdefault(difference.sign_relative_to(0.0), []).append(row[choice.grid.settings[0]])
    return {side: _listed(choice, values) for side, values in sides.items()}


def _listed(choice: HeldOutChoice, values: Sequence[float]) -> str:
    """k = 1, 2 and 64: values of the first setting."""
    *before, last = plain_numbers(values)
    return f"{choice.grid.names[0]} = {' and '.join(filter(None, [', '.join(before), last]))}"
