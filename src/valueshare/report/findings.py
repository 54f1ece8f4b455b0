"""Findings: which algorithm scores higher, by how much and how surely, in sentences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from valueshare.algorithm_info import K_IS_N, has_layer, other_name_at_zero
from valueshare.analysis.comparison import game_differences, probability_of_improvement, shared_evaluations
from valueshare.analysis.held_out import FEW_SEEDS
from valueshare.analysis.intervals import difference_interval
from valueshare.analysis.run_values import run_auc
from valueshare.analysis.scales import NORMALIZED
from valueshare.analysis.tidy import CI95, MIN_SEEDS
from valueshare.errors import InvalidInput
from valueshare.report.data import ReportData
from valueshare.report.figures.series import game
from valueshare.report.figures.variants import Variant, baseline_variant
from valueshare.report.interval import Interval, format_interval, probability_text
from valueshare.report.swept_settings import find_grids
from valueshare.text import exact, format_number, pluralize, shorten_list

HOW_TO_READ = (
    "A run counts with its AUC: the mean of its evaluation scores over training.",
    (
        "Intervals are 95 % bootstrap intervals over seeds, each for its own comparison. About 1 in 20 comparisons of "
        "equal algorithms would show a difference by chance. With few seeds intervals are too narrow, and it is more: "
        f"on one environment 1 in 5 with {MIN_SEEDS} seeds each, 1 in 8 with 5, and 1 in 15 with 20. Fewer than "
        f"{MIN_SEEDS} have no interval."
    ),
)
# Why two algorithms cannot be compared, after their names.
NO_SHARED_EVALUATION = "have no evaluation at the same step of the same environment"
NO_COMPLETE_RUN = "cannot be compared: no run of one has all evaluations that both have"


class Comparison(NamedTuple):
    """One algorithm against another, on all environments that both have."""

    x: Variant
    y: Variant
    envs: pl.DataFrame  # of `game_differences`: a row per environment
    difference: Interval | None  # of the statistic; None where environments share no scale
    values: tuple[float, float] | None  # x and y
    improvement: Interval  # the probability that a run of x beats one of y
    quantity: str  # the quantity that is compared
    normalized: bool  # whether it is on a scale that all environments share
    notes: tuple[str, ...]

    @property
    def direction(self) -> int:
        """1: x is higher; -1: lower; 0: no clear difference."""
        if self.difference is not None:
            return self.difference.sign_relative_to(0.0)
        return self.improvement.sign_relative_to(0.5)

    @property
    def difference_text(self) -> str:
        """The difference, with at least as many decimals as the larger of the scores that it compares."""
        if self.difference is None:
            return "–"
        digits = format_number(max(self.values, key=abs)).partition(".")[2] if self.values else ""
        return format_interval(self.difference, least_decimals=len(digits) if digits.isdecimal() else 0)

    @property
    def fewest_seeds(self) -> int:
        """The fewest runs of x or y on any environment."""
        return int(min(*self.envs["runs_x"], *self.envs["runs_y"]))

    @property
    def most_seeds(self) -> int:
        return int(max(*self.envs["runs_x"], *self.envs["runs_y"]))

    @property
    def enough_seeds(self) -> int:
        """Seeds from which intervals can be trusted; with several environments, half as many per environment."""
        return FEW_SEEDS if self.envs.height == 1 else FEW_SEEDS // 2

    @property
    def has_few_seeds(self) -> bool:
        """Whether they are too few for a conclusion."""
        return self.fewest_seeds < self.enough_seeds


class Verdict(NamedTuple):
    """Every comparison, and sentences on those that cannot be made."""

    comparisons: Sequence[Comparison]
    failed_comparisons: Sequence[str] = ()
    requested: bool = False  # by name, not the default ones
    apart: bool = False  # several algorithms, of which no two share an environment

    @property
    def sentences(self) -> list[str]:
        """The result in a few sentences: the largest clear gain, or loss, and how many there are of each."""
        if not self.comparisons:
            nothing = "No two algorithms have runs on the same environment, so there is nothing to compare."
            alone = "There is one algorithm, and nothing to compare it with."
            return list(self.failed_comparisons) or [nothing if self.apart else alone]
        if len(self.comparisons) == 1:
            only = self.comparisons[0]
            return [
                f"In these runs, {sentence_with_numbers(only)}" if only.has_few_seeds else sentence_with_numbers(only)
            ]
        higher, lower, unclear = (
            [comparison for comparison in self.comparisons if comparison.direction == side] for side in (1, -1, 0)
        )
        first = "No comparison shows a difference."
        if higher or lower:
            rank, size = ("largest", _difference) if self._has_one_scale else ("clearest", _probability)
            trusted = ([one for one in side if not one.has_few_seeds] for side in (higher, lower))
            top = max(next(filter(None, (*trusted, higher, lower))), key=size)
            kind = "difference in these runs" if top.has_few_seeds else "gain" if top.direction > 0 else "loss"
            first = f"The {rank} {kind}: {sentence_with_numbers(top)}"
        against = {comparison.y.style.label for comparison in self.comparisons}
        one = len(against) == 1
        kinds = (("higher", "than", higher), ("lower", "than", lower), ("unclear", "against", unclear))
        counts = [
            f"{word} {'once' if len(comparisons) == 1 else f'{len(comparisons)} times'} "
            f"({shorten_list([c.x.style.label if one else _pair_name(c, between) for c in comparisons], 8)})"
            for word, between, comparisons in kinds
            if comparisons
        ]
        whom = f" with {against.pop()}" if one else ""
        return [first, f"Of {len(self.comparisons)} comparisons{whom}: {'; '.join(counts)}."]

    @property
    def _has_one_scale(self) -> bool:
        """Whether one difference can be larger than another: all are normalized, or of one environment."""
        envs = {env for comparison in self.comparisons for env in comparison.envs["env"]}
        return len(envs) == 1 or all(comparison.normalized for comparison in self.comparisons)

    @property
    def has_one_seed(self) -> bool:
        """Whether everything that is compared has a single seed."""
        return bool(self.comparisons) and all(comparison.most_seeds == 1 for comparison in self.comparisons)

    @property
    def few_seeds(self) -> list[str]:
        """A warning of the comparison with the fewest seeds, if they are few."""
        few = [comparison for comparison in self.comparisons if comparison.has_few_seeds]
        if not few:
            return []
        comparison = min(few, key=lambda comparison: comparison.fewest_seeds)
        return [few_seeds_text(comparison.fewest_seeds, comparison.enough_seeds)]


def few_seeds_text(seeds: int, enough: int = FEW_SEEDS) -> str:
    """The sentence with which every verdict of few seeds begins."""
    return f"Too few seeds ({seeds}) for a conclusion: run at least {enough}."


def compare_all(data: ReportData, compare: Sequence[str] = ()) -> Verdict:
    """The comparisons of `compare`, or the default ones."""
    chosen = pairs(data, compare)
    results = [(pair, compare_pair(data, pair)) for pair in chosen]
    failed = dict[str, list[str]]()  # names of pairs, by why they cannot be compared
    for (x, y), result in results:
        if isinstance(result, str):
            failed.setdefault(result, []).append(f"{x.style.label} and {y.style.label}")
    return Verdict(
        [result for _, result in results if isinstance(result, Comparison)],
        [_failed_comparison(names, reason) for reason, names in failed.items()],
        requested=bool(compare),
        apart=len(data.variants) > 1 and all(len(others) == 1 for others in _with_common_environment(data).values()),
    )


def _failed_comparison(names: Sequence[str], reason: str) -> str:
    """The first pair that cannot be compared for a reason, and how many more there are."""
    more = len(names) - 1
    return f"{names[0]} {reason}" + (f"; nor can {pluralize(more, 'more pair')} be compared" if more else "") + "."


def pairs(data: ReportData, compare: Sequence[str] = ()) -> list[tuple[Variant, Variant]]:
    """The pairs to compare: those of `compare`, like "ib-dqn:4,dqn", or the layer against none.

    Without any, every algorithm with the layer is compared with the same without it, and every other with the first
    that has the same settings in its name, or with the first of all; only of those with runs on one of its
    environments. Where k and another setting were swept, the map compares the values of that setting.
    """
    if compare:
        return [_pair(data, text) for text in compare]
    mapped = {name for grid in find_grids(data) if grid.settings[0] == "k" for name in grid.algorithms}
    found = []
    for variant, others in _with_common_environment(data).items():
        if variant != others[0]:
            found.append((variant, baseline_variant(variant, others) or _first_like(variant, others)))
    return [(x, y) for x, y in found if not (str(x.name.without_settings) in mapped and _same_learner(x, y))]


def _with_common_environment(data: ReportData) -> dict[Variant, list[Variant]]:
    """The variants, itself included, that have runs on an environment of each."""
    envs = {variant: set(variant.rows(data.main)["env"].unique()) for variant in data.variants}
    return {variant: [other for other in envs if envs[variant] & envs[other]] for variant in envs}


def _first_like(variant: Variant, variants: Sequence[Variant]) -> Variant:
    """The first variant with the same settings, as far as both read them; without another one, the first of all."""
    alike = [v for v in variants if v.name.is_like(variant.name)]
    return alike[0] if any(variant.name[1:]) and alike[0] != variant else variants[0]


def _same_learner(x: Variant, y: Variant) -> bool:
    """Whether both are one algorithm with one k, so that only other settings differ; DQN is IB-DQN with k = 0."""
    return x.name.without_settings.without_layer == y.name.without_settings.without_layer and x.k == y.k


def compare_pair(data: ReportData, pair: tuple[Variant, Variant]) -> Comparison | str:
    """One comparison, or why there is none: what follows the names of both in a sentence."""
    x, y = pair
    selections = x.selection(), y.selection()
    column, table = ("score", data.main) if data.scale is None else (NORMALIZED, data.normalized)
    rows, cut = shared_evaluations(table, *selections, column)
    if rows.is_empty():
        return NO_SHARED_EVALUATION
    runs, notes = run_auc(rows, column)
    options: dict[str, Any] = {"column": column, "resamples": data.resamples}
    try:
        chance, more = probability_of_improvement(runs, *selections, **options)
        envs, _ = game_differences(runs, *selections, **options)
    except InvalidInput:
        return NO_COMPLETE_RUN
    seeds = pl.min_horizontal("runs_x", "runs_y")
    envs = envs.with_columns(pl.when(seeds >= MIN_SEEDS).then(pl.col(name)).alias(name) for name in CI95)
    few = envs.filter(seeds >= MIN_SEEDS).is_empty()
    difference, values, what = None, None, "AUC"
    if data.scale is not None or envs.height == 1:
        many = envs.height > 1
        statistic = "iqm" if many else "run_mean"
        row = difference_interval(runs, *selections, statistic, **options).table.row(0, named=True)
        difference = _unless_few(few, *(row[name] for name in ("difference", *CI95)))
        values = row["value_x"], row["value_y"]
        what = f"{'IQM of the' if many else 'mean'} {data.auc_name}"
    improvement = _unless_few(few, *chance.select("value", *CI95).row(0))
    first = [] if data.scale is None else [data.scale.note]
    notes = tuple(dict.fromkeys([*first, *cut, *notes, *more]))
    return Comparison(x, y, envs, difference, values, improvement, what, data.scale is not None, notes)


def _unless_few(few: bool, value: float, low: float | None, high: float | None) -> Interval:
    return Interval(value, None, None) if few else Interval(value, low, high)


def sentence(comparison: Comparison) -> str:
    """IB-DQN(4) scores higher than DQN. Of too few seeds, it is of their runs alone: it scored higher."""
    scores = "scored" if comparison.has_few_seeds else "scores"
    verbs = {1: f"{scores} higher than", -1: f"{scores} lower than", 0: "is not clearly different from"}
    return f"{comparison.x.style.label} {verbs[comparison.direction]} {comparison.y.style.label}."


def sentence_with_numbers(comparison: Comparison) -> str:
    """A comparison in a sentence with its interval."""
    envs, improvement = comparison.envs, comparison.improvement
    text = sentence(comparison)[:-1]
    if comparison.difference is not None and comparison.values is not None:
        x, y = map(format_number, comparison.values)
        text += f": {comparison.quantity} {x} against {y}, a difference of {comparison.difference_text}"
    if improvement.low is not None:  # of single runs it says nothing
        text += f"; probability of improvement {probability_text(improvement)}"
    if envs.height == 1:
        text += f", on {game(envs['env'][0])}"
    elif envs["ci95_low"].is_null().all():
        text += f", on {envs.height} environments"
    else:
        up, down = clear_differences(comparison)
        text += f"; of {envs.height} environments it is clearly higher on {up} and clearly lower on {down}"
    return f"{text}."


def clear_differences(comparison: Comparison) -> tuple[int, int]:
    """On how many environments the interval lies above 0, and below."""
    low, high = (comparison.envs[name].cast(pl.Float64) for name in CI95)  # all null has no type
    return int((low > 0).sum()), int((high < 0).sum())


def _difference(comparison: Comparison) -> float:
    return abs(comparison.difference.value) if comparison.difference else 0.0


def _probability(comparison: Comparison) -> float:
    """Distance of the probability of improvement from 0.5."""
    return abs(comparison.improvement.value - 0.5)


def _pair_name(comparison: Comparison, between: str) -> str:
    """IB-DQN(4) than DQN with step size 0.1: both names, but settings and a run that both have once."""
    x, y = comparison.x, comparison.y
    first = x.style.label.removesuffix(x.name.label_end) if x.name[1:] == y.name[1:] else x.style.label
    return f"{first} {between} {y.style.label}"


def _pair(data: ReportData, text: str) -> tuple[Variant, Variant]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2:
        raise InvalidInput(f"`compare = {text}`: write two, like ib-dqn:4,dqn")
    x, y = (_variant(data, name) for name in names)
    if x == y:
        raise InvalidInput(f"`compare = {text}`: both names are of the same algorithm; write two different ones")
    return x, y


def _variant(data: ReportData, text: str) -> Variant:
    """The variant of a name, ib-dqn:4, or of a label, IB-DQN(4). k may be omitted if there is one; dqn is ib-dqn:0."""
    algorithm, _, k = text.partition(":")
    matches = [v for v in data.variants if v.style.label == text]
    matches = matches or [v for v in data.variants if v.algorithm == algorithm and (not k or _equals(k, v.k, data))]
    if not matches and (_equals(k, 0.0, data) if k else not has_layer(algorithm)):
        matches = [v for v in data.variants if v.k == 0 and v.algorithm == other_name_at_zero(algorithm)]
    if len(matches) != 1:
        known = ", ".join(f"{v.algorithm}:{'n' if v.k == K_IS_N else exact(v.k)}" for v in data.variants)
        problem = "matches several algorithms" if matches else "is not in these results"
        raise InvalidInput(f"{text} {problem}: write one of {known}")
    return matches[0]


def _equals(text: str, number: float, data: ReportData) -> bool:
    if text.lower() == "n":
        return number in (K_IS_N, data.actions)
    try:
        return float(text) == number
    except ValueError:  # no number
        return False
