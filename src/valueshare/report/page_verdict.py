"""The verdict: who scores higher, by how much, and how sure one can be, in sentences."""

from collections.abc import Sequence
from math import floor, log10
from typing import NamedTuple

import polars as pl

from valueshare.analysis.comparison import game_differences, probability_of_improvement
from valueshare.analysis.intervals import difference_interval
from valueshare.analysis.run_values import run_auc
from valueshare.analysis.scores import BASELINES
from valueshare.analysis.tidy import listed
from valueshare.errors import InvalidInput
from valueshare.report.series import Variant, game, millions, plain_variant
from valueshare.report.study import SCORE, Study

READING = (
    "A run counts with its AUC: the mean of its evaluation scores over training.",
    (
        "Intervals are 95 % bootstrap intervals over seeds, each for its own comparison: of twenty "
        "comparisons of equals, one is expected to look like a difference."
    ),
)
HUMAN = "human-normalised AUC"


class Interval(NamedTuple):
    """A number and its 95 % interval, if there is one."""

    value: float
    low: float | None
    high: float | None

    def clear_of(self, other: float) -> int:
        """1 if all of the interval lies above a number, -1 if below, 0 if neither can be said."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > other) - (self.high < other)


class Comparison(NamedTuple):
    """One algorithm against another, on all environments that both have."""

    x: Variant
    y: Variant
    envs: pl.DataFrame  # of `game_differences`: a row an environment
    difference: Interval | None  # of the statistic; None where environments share no scale
    values: tuple[float, float] | None  # x and y
    improvement: Interval  # the probability that a run of x beats one of y
    what: str  # what the difference is of
    notes: tuple[str, ...]

    @property
    def direction(self) -> int:
        """1: x is higher; -1: lower; 0: they cannot be told apart."""
        if self.difference is not None:
            return self.difference.clear_of(0.0)
        return self.improvement.clear_of(0.5)


def asked_pairs(study: Study, asked: Sequence[str] = ()) -> list[tuple[Variant, Variant]]:
    """The comparisons: those asked for, as "ib-dqn:4,dqn", or the layer against none.

    Left out, every algorithm with the layer is compared with the same without it, and every other
    with the first one.
    """
    if asked:
        return [_pair(study.who, text) for text in asked]
    pairs = []
    for variant in study.who[1:]:
        other = plain_variant(variant, study.who) or study.who[0]
        pairs.append((variant, other))
    return pairs


def compare(study: Study, pair: tuple[Variant, Variant]) -> Comparison | str:
    """One comparison, or a sentence on why there is none."""
    x, y = pair
    table = study.normalised if study.atari else study.main
    column = SCORE if study.atari else "score"
    rows, cut = _as_far_as_both(pl.concat([v.rows(table) for v in pair]), pair, column)
    if rows.is_empty():
        return f"{x.look.label} and {y.look.label} have no environment in common yet."
    runs, notes = run_auc(rows, column)
    sides, how = (x.named(), y.named()), {"column": column, "resamples": study.resamples}
    try:
        chance, more = probability_of_improvement(runs, *sides, **how)  # type: ignore[arg-type]
        envs, _ = game_differences(runs, *sides, **how)  # type: ignore[arg-type]
    except InvalidInput:
        return f"{x.look.label} and {y.look.label} have no runs to compare yet."
    difference, values, what = None, None, "AUC"
    if study.atari or envs.height == 1:
        many = envs.height > 1
        statistic = "iqm" if many else "run_mean"
        row = difference_interval(runs, *sides, statistic, **how).table.row(0, named=True)  # type: ignore[arg-type]
        difference = Interval(row["difference"], row["ci95_low"], row["ci95_high"])
        values = row["value_x"], row["value_y"]
        what = f"{'IQM of the' if many else 'mean'} {HUMAN if study.atari else 'AUC'}"
    odds = chance.row(0, named=True)
    improvement = Interval(odds["value"], odds["ci95_low"], odds["ci95_high"])
    extra = (BASELINES,) if study.atari else ()
    return Comparison(x, y, envs, difference, values, improvement, what,
                      tuple(dict.fromkeys([*extra, *cut, *notes, *more])))  # fmt: skip


def sentence(found: Comparison) -> str:
    """IB-DQN(4) scores higher than DQN."""
    words = {1: "scores higher than", -1: "scores lower than", 0: "cannot be told from"}
    return f"{found.x.look.label} {words[found.direction]} {found.y.look.label}."


def headlines(found: Sequence[Comparison]) -> list[str]:
    """The result in a few sentences: the largest clear gain, or loss, and how many there are."""
    if not found:
        return ["There is one algorithm, and nothing to compare it with."]
    if len(found) == 1:
        return [in_numbers(found[0])]
    higher = [one for one in found if one.direction > 0]
    lower = [one for one in found if one.direction < 0]
    first = "No comparison shows a difference."
    if higher or lower:
        largest = max(higher, key=_size) if higher else min(lower, key=_size)
        first = f"The largest {'gain' if higher else 'loss'}: {in_numbers(largest)}"
    return [first, _counted(found, higher, lower)]


def in_numbers(found: Comparison) -> str:
    """A comparison in a sentence with its interval."""
    parts = [sentence(found)[:-1]]
    if found.difference is not None and found.values is not None:
        x, y = found.values
        parts.append(
            f": {found.what} {number(x)} against {number(y)}, "
            f"a difference of {written(found.difference)}"
        )
    parts.append(f"; a run of it is the better one with probability {odds(found.improvement)}")
    if found.envs.height > 1:
        up, down = sides(found)
        parts.append(
            f"; of {found.envs.height} environments it is clearly higher on {up} and clearly "
            f"lower on {down}"
        )
    elif found.envs.height:
        parts.append(f", on {game(found.envs['env'][0])}")
    return "".join(parts) + "."


def sides(found: Comparison) -> tuple[int, int]:
    """On how many environments the interval lies above 0, and below."""
    low, high = (found.envs[name].to_list() for name in ("ci95_low", "ci95_high"))
    return sum(v is not None and v > 0 for v in low), sum(v is not None and v < 0 for v in high)


def number(value: float) -> str:
    """Four digits at most, with a real minus."""
    size = abs(value)
    text = f"{value:,.0f}" if size >= 1_000 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"
    return text.replace("-", "−")


def written(interval: Interval, *, sign: bool = True) -> str:
    """+50 [24, 76]: as many decimals as the interval's width is worth, two digits of it."""
    value, low, high = interval
    plus = "+" if sign and value > 0 else ""
    if low is None or high is None:
        return f"{plus}{number(value)} (one seed: no interval)"
    width = high - low
    decimals = min(12, max(0, 1 - floor(log10(width)))) if width > 0 else 2
    texts = (f"{x:,.{decimals}f}".replace("-", "−") for x in interval)
    middle, below, above = texts
    return f"{plus}{middle} [{below}, {above}]"


def odds(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _size(found: Comparison) -> float:
    return found.difference.value if found.difference else found.improvement.value


def _counted(
    found: Sequence[Comparison], higher: Sequence[Comparison], lower: Sequence[Comparison]
) -> str:
    unclear = [one for one in found if one.direction == 0]
    parts = [
        f"{word} {len(some)} times ({_names(some)})".replace(" 1 times", " once")
        for word, some in (("higher", higher), ("lower", lower), ("unclear", unclear))
        if some
    ]
    against = {one.y.look.label for one in found}
    whom = f" with {next(iter(against))}" if len(against) == 1 else ""
    return f"Of {len(found)} comparisons{whom}: {'; '.join(parts)}."


def _names(some: Sequence[Comparison]) -> str:
    """Labels, or the k alone where only they differ."""
    if len(some) > 1 and len({one.x.algorithm for one in some}) == 1:
        return f"k = {', '.join(f'{one.x.k:g}' for one in some)}"
    return listed([one.x.look.label for one in some], 8)


def _as_far_as_both(
    rows: pl.DataFrame, pair: tuple[Variant, Variant], column: str
) -> tuple[pl.DataFrame, list[str]]:
    """On every environment, the steps that both have come to; what is cut is said.

    A run under way trains one population after the other, so one may be far ahead.
    """
    known = rows.filter(pl.col(column).cast(pl.Float64).is_finite())
    lasts = [v.rows(known).group_by("env").agg(pl.col("step").max().alias("last")) for v in pair]
    both = (
        lasts[0]
        .join(lasts[1], on="env")
        .with_columns(
            common=pl.min_horizontal("last", "last_right"),
            farthest=pl.max_horizontal("last", "last_right"),
        )
    )
    short = both.filter(pl.col("common") < pl.col("farthest")).sort("env")
    notes = []
    if not short.is_empty():
        where = [f"{game(env)} {millions(step)}" for env, step in short.select("env", "common")
                 .iter_rows()]  # fmt: skip
        names = " and ".join(v.look.label for v in pair)
        notes.append(f"{names} are compared as far as both have come: {listed(where)} timesteps.")
    kept = rows.join(both.select("env", "common"), on="env", maintain_order="left")
    return kept.filter(pl.col("step") <= pl.col("common")).drop("common"), notes


def _pair(who: Sequence[Variant], text: str) -> tuple[Variant, Variant]:
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2:
        raise InvalidInput(f"--compare {text}: write two, like ib-dqn:4,dqn")
    return _variant(who, names[0]), _variant(who, names[1])


def _variant(who: Sequence[Variant], text: str) -> Variant:
    """By algorithm and k, ib-dqn:4, or by label, IB-DQN(4); k may be left out where it is one."""
    algorithm, _, k = text.partition(":")
    found = [v for v in who if v.look.label == text]
    found = found or [v for v in who if v.algorithm == algorithm and (not k or f"{v.k:g}" == k)]
    if len(found) != 1:
        known = ", ".join(f"{v.algorithm}:{v.k:g}" for v in who)
        problem = "is several" if found else "is not in these results"
        raise InvalidInput(f"{text} {problem}: write one of {known}")
    return found[0]
