"""Two swept settings in words: which value of one suits each value of the other, and how to choose both."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from valueshare.report.findings import Interval, number, written
from valueshare.report.swept_settings import HeldOutChoice
from valueshare.text import plain_number, plain_numbers

TREND = 0.5  # of rank correlation: from here on the best values are said to fall or to grow, if their ends agree
READING = (
    (
        "Each half of the seeds chooses, for each {first}, the {second} with the highest mean score; the other half is "
        "scored at it. So no run has a part in choosing its own {second}, apart from divergence, which is judged on "
        "all seeds: a {second} at which any run diverged or has no score is no candidate."
    ),
    (
        "Intervals are 95 % percentile bootstrap intervals over seeds, given the choices: that other seeds might have "
        "chosen otherwise is not in them."
    ),
)
HEADINGS = (
    *("{first}", "best {second}", "chosen by the first half", "by the second half"),
    *("score on the other half", "difference from {first} = {plain}"),
    *("score at the {second} of {first} = {plain}", "agents", "{second}: left out"),
)


def reading(found: HeldOutChoice) -> list[str]:
    """How to read the table and the sentences."""
    return [text.format(**_names(found)) for text in READING]


def headings(found: HeldOutChoice) -> list[str]:
    """The headings of the table of choices."""
    names = _names(found) | {"plain": plain_number(found.table["k"][0])}
    return [text.format(**names) for text in HEADINGS]


def verdict(found: Sequence[HeldOutChoice]) -> list[str]:
    """The sentences of every map, with its name where there are several."""
    several = len(found) > 1
    return [f"{one.grid.title}: {line}" if several else line for one in found for line in sentences(one)]


def sentences(found: HeldOutChoice) -> list[str]:
    """Whether sharing value helps with settings of its own, by how much, and how to choose both settings."""
    table = found.table.to_dicts()
    if all(row["best_step_size"] is None for row in table):
        return [f"Every {_names(found)['second']} has agents that diverged or have no score: nothing can be chosen."]
    lines = []
    if all(row["mean"] is None for row in table):
        lines.append(
            f"No {_names(found)['second']} has seeds in both halves, to choose on one and to score on the other."
        )
    elif found.grid.settings[0] == "k":
        lines += [*_pair(found), *_by_k(found)]
    return [*lines, _how_to_choose(found), *_at_plain(found), *_agreement(found), *_edges(found)]


def _pair(found: HeldOutChoice) -> list[str]:
    """Whether some k above the smallest is better, where the same seeds choose and do not score."""
    pair, second = found.pair, _names(found)["second"]
    if pair is None or pair.difference[0] is None:
        return []
    plain = plain_number(found.table["k"][0])
    difference = Interval(*pair.difference)  # type: ignore[arg-type]
    words = {1: "scores higher than", -1: "scores lower than", 0: "shows no clear difference from"}
    chosen = [f"k = {plain_number(k)} with {plain_number(value)}" for k, value in dict.fromkeys(pair.choices)]
    who = f"both halves chose {chosen[0]}" if len(chosen) == 1 else f"the halves chose {' and '.join(chosen)}"
    text = (
        f"k > {plain}, chosen with its {second} on half of the seeds and scored on the other half, "
        f"{words[difference.clear_of(0.0)]} k = {plain} at its own best {second}: a difference of the mean "
        f"{found.grid.score} of {written(difference)} ({who})."
    )
    return [text]


def _by_k(found: HeldOutChoice) -> list[str]:
    """k = 1, 2 and 4 score higher than k = 0, each at its own best step size."""
    plain, *others = found.table.to_dicts()
    sides: dict[int, list[float]] = {1: [], -1: [], 0: []}
    for row in others:
        if row["difference"] is not None:
            interval = Interval(row["difference"], row["difference_low"], row["difference_high"])
            sides[interval.clear_of(0.0)].append(row["k"])
    words = {1: "higher: {}", -1: "lower: {}", 0: "no clear difference: {}"}
    parts = [words[side].format(_listed(found, ks)) for side, ks in sides.items() if ks]
    start = f"Each k at its own best {_names(found)['second']}, against k = {plain_number(plain['k'])} "
    return [f"{start}({found.grid.score} {_scored(plain)}): {'; '.join(parts)}."] if parts else []


def _how_to_choose(found: HeldOutChoice) -> str:
    """One sentence: the best pair, what does as well, and how the second setting goes with the first."""
    first, second = _names(found).values()
    table = [row for row in found.table.to_dicts() if row["best_step_size"] is not None]
    best = _best_row(found)
    text = (
        f"To choose both: {first} = {plain_number(best['k'])} with {second} {plain_number(best['best_step_size'])} has "
        "the highest mean over all seeds"
    )
    if best["mean"] is None and any(row["mean"] is not None for row in table):
        text += f", but no {second} with seeds in both halves"
    words = {0: "no clear difference from it", 1: "higher than it on the other halves"}
    for side, ks in _against_best([row for row in table if row["k"] != best["k"]]).items():
        text += f"; {words[side]}, each at its own best {second}: {_listed(found, ks)}"
    values = [row["best_step_size"] for row in table]
    low, high = plain_numbers([min(values), max(values)])
    ends = f"from {plain_number(values[0])} at {first} = {plain_number(table[0]['k'])} to "
    ends += f"{plain_number(values[-1])} at {first} = {plain_number(table[-1]['k'])}"
    trend = rank_correlation(values)
    if len(table) == 1:
        return f"{text}."
    if low == high:
        return f"{text}; the best {second} is {low} for every {first}: keep it when {first} changes."
    if trend <= -TREND and values[-1] < values[0]:
        return f"{text}; the best {second} falls {ends}: make it smaller when {first} grows."
    if trend >= TREND and values[-1] > values[0]:
        return f"{text}; the best {second} grows {ends}: make it larger when {first} grows."
    return f"{text}; the best {second} lies between {low} and {high} without a trend: search it for each {first}."


def _at_plain(found: HeldOutChoice) -> list[str]:
    """What the best k loses without a step size of its own."""
    best, plain = _best_row(found), found.table.row(0, named=True)
    if best["mean_at_plain"] is None or best["k"] == plain["k"]:
        return []
    first, second = _names(found).values()
    where = f"At the {second} chosen for {first} = {plain_number(plain['k'])}, {first} = {plain_number(best['k'])}"
    if best["mean_at_plain"] == best["mean"]:
        return [f"{where} scores the same: it is its own best one."]
    return [f"{where} scores {number(best['mean_at_plain'])} instead of {number(best['mean'])}."]


def _agreement(found: HeldOutChoice) -> list[str]:
    chosen = [row for row in found.table.to_dicts() if row["first_half_choice"] is not None]
    same = sum(row["first_half_choice"] == row["second_half_choice"] for row in chosen)
    first, second = _names(found).values()
    text = f"The halves of the seeds chose the same {second} for {same} of {len(chosen)} values of {first}."
    return [text] if chosen else []


def _edges(found: HeldOutChoice) -> list[str]:
    """A warning where a best value is the first or last that was tried: a better one may lie beyond."""
    second = _names(found)["second"]
    lines = []
    tried = found.grid.in_roles()
    if tried["step_size"].n_unique() < 3:
        return []  # there is nothing but edges
    for word, end in (("smallest", min), ("largest", max)):
        at = [
            k
            for k, best in found.table.select("k", "best_step_size").iter_rows()
            if best is not None and best == end(tried.filter(k=k)["step_size"])
        ]
        if at:
            lines.append(f"The best {second} of {_listed(found, at)} is the {word} that was tried: search beyond it.")
    return lines


def rank_correlation(values: Sequence[float]) -> float:
    """Goodman and Kruskal's gamma of a list with its order: -1 where it only falls, 1 where it only grows.

    Of all pairs with different values: (those that grow - those that fall) / (both). 0 where all are equal.
    """
    signs = [(later > earlier) - (later < earlier) for earlier, later in combinations(values, 2)]
    unequal = sum(sign != 0 for sign in signs)
    return sum(signs) / unequal if unequal else 0.0


def _best_row(found: HeldOutChoice) -> dict[str, Any]:
    """The value of the first setting with the highest mean over all seeds, at its best value of the second."""
    table = [row for row in found.table.to_dicts() if row["best_step_size"] is not None]
    return max(table, key=lambda row: row["mean_at_best"])


def _against_best(others: Sequence[dict[str, Any]]) -> dict[int, list[float]]:
    """The first settings by whether the interval of their difference from the best holds 0 (0) or lies above it (1)."""
    sides: dict[int, list[float]] = {}
    for row in others:
        if row["from_best"] is not None:
            interval = Interval(row["from_best"], row["from_best_low"], row["from_best_high"])
            sides.setdefault(interval.clear_of(0.0), []).append(row["k"])
    return {side: sides[side] for side in (0, 1) if side in sides}


def _names(found: HeldOutChoice) -> dict[str, str]:
    first, second = (name.replace("_", " ") for name in found.grid.settings)
    return {"first": first, "second": second}


def _scored(row: dict[str, Any]) -> str:
    return written(Interval(row["mean"], row["ci95_low"], row["ci95_high"]), sign=False)


def _listed(found: HeldOutChoice, values: Sequence[float]) -> str:
    """k = 1, 2 and 8 to 64: values of the first setting, those next to each other in the grid as a range."""
    tried, runs = found.table["k"].to_list(), list[list[float]]()
    for value in values:
        if runs and tried.index(value) == tried.index(runs[-1][-1]) + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    names = dict(zip(tried, plain_numbers(tried), strict=True))
    texts = [
        text
        for run in runs
        for text in ([f"{names[run[0]]} to {names[run[-1]]}"] if len(run) > 2 else [names[value] for value in run])
    ]
    return f"{_names(found)['first']} = " + " and ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)
