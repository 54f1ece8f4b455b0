"""The report on a tabular study: figures, numbers and a page, from its records."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from valueshare.analysis.tidy import CI95
from valueshare.errors import InvalidInput
from valueshare.experiments.tabular import TabularResult
from valueshare.experiments.tabular_designs import KIND, several_action_sets, title
from valueshare.report.action_sets import FIGURE as ACTION_SETS
from valueshare.report.figure_registry import FIGURES
from valueshare.report.figures.gains import gain_panels
from valueshare.report.figures.style import ORANGE, RED, SeriesStyle
from valueshare.report.figures.tabular import draw_tuned_increase, norm_reduction
from valueshare.report.folder import FigureResult, Report
from valueshare.report.page import elements
from valueshare.report.page.elements import Picture
from valueshare.report.tabular_files import StoredStudy, stored_result
from valueshare.report.tuned_text import HALVES, INTERVALS
from valueshare.result_files import SizeLimit
from valueshare.text import format_number

NORMS = "norms"  # the name of a figure
MADE_WITH = ("valueshare", "commit", "machine", "libraries")
CELL = ("step_reward", "actions", "regime", "k")  # the key of a table's rows; actions where studies differ in them
INCREASE = ("increase_percent", *CI95)
SAME_SEEDS = "step sizes chosen on all seeds"
OTHER_SEEDS = "chosen on the other half"
K_EQUALS_N = pl.col("k") == pl.col("actions")
TWO_REWARDS = (
    "The paper's text has a reward of 0 for every step but the last. With that reward, no "
    "increase stands out here. The paper's figure, over 20 % more episodes within "
    "1,000 timesteps, appears with a reward of -1 per step. Both are shown."
)
SMALLER = (
    "Learning z instead of q keeps what is learned small: |z| < |u| < |q| wherever the mean action-value is not 0. "
    "Norms are averaged over states and seeds; each k runs at the step size that was best at the end."
)
BY_ACTIONS = ("action_copies", "k")  # settings that depend on the number of actions
HOW_TO_READ = (
    HALVES.format(first="k", second="step size"),
    "Every held-out increase moves with the luck of the two choices for the smallest k, which no interval covers.",
    f"{INTERVALS} They are of the ratio of two means.",
    (
        "A run diverged if a TD error went past 1e100 or a norm overflowed. The records mark these runs, "
        "and no average contains them."
    ),
)
TWO_COLUMNS = (
    "Left: the step size of each k is the one that did best on the very seeds that are shown, as in the paper. Right: "
    "it is chosen on the other half of the seeds."
)
COPIES = (
    "The gridworld's four actions are there n / 4 times each. Copies do the same, which the learner does not know: "
    "with k = 0 it learns each of them alone."
)


def tabular_report(
    parts: Sequence[StoredStudy], names: Sequence[str], limit: SizeLimit, *, trusted: bool = False
) -> Report:
    """The report on the records of a study, with the figures of these names; without any, all of them."""
    result, origin = stored_result(parts, limit, trusted=trusted)
    drawn = {figure.name: figure for figure in _figures(result)}
    for name in names:
        if name not in drawn:
            known = "unknown" if name not in FIGURES else "of other results"
            raise InvalidInput(f"the figure {name!r} is {known}: this study has {', '.join(drawn)}")
    sources = [{"kind": KIND, "shard": part.shard and str(part.shard)} for part in parts]
    return Report(
        [drawn[name] for name in dict.fromkeys(names or drawn)],
        lambda pictures: _page(result, origin, pictures),
        tuple(headlines(result)),
        tuple(notes(result)),
        {},
        {"sources": sources, "numbers": summary(result)},
        {"tables/norms.parquet": result.norms},
    )


def headlines(result: TabularResult) -> list[str]:
    """The result in a line per step reward: the largest increase at the second regime, or that of k = n."""
    several = several_action_sets(result.studies)
    increases = (result.held_out if several else result.figure).drop_nulls(INCREASE)
    if increases.is_empty():
        return []
    measure = {"reward": "total reward"}.get(result.studies[0].measured, result.studies[0].measured)
    regimes = increases["regime"].unique().sort()
    regime = regimes[min(1, len(regimes) - 1)]
    lines = []
    for (reward,), rows in increases.filter(pl.col("regime") == regime).group_by("step_reward", maintain_order=True):
        start, reference = f"{_per_step(reward)}{regime:,} timesteps: ", min(rows["k"])
        others = rows.filter(K_EQUALS_N).sort("actions") if several else rows.filter(pl.col("k") != reference)
        if others.is_empty():
            continue
        if several:
            ends = dict.fromkeys((0, others.height - 1))  # with the fewest and the most actions
            texts = [f"{_percent(others, row)} with {others['actions'][row]:,} actions" for row in ends]
            lines.append(f"{start}mean {measure}, k = n over k = 0: {', '.join(texts)}")
        else:
            best = int(others["increase_percent"].arg_max() or 0)
            k, means = others["k"][best], dict(rows.select("k", "mean_score").iter_rows())
            text = f"mean {measure} at best {_percent(others, best)} over that of k = {reference:g}"
            both = f"{format_number(means[k])} against {format_number(means[reference])}"
            edge = others.height > 1 and others["increase_percent"][best] > 0 and k == max(result.figure["k"])
            more = ", the largest k tried: larger ones may be better" if edge else ""
            lines.append(f"{start}{text} ({both}), with k = {k:g}{more}")
    return lines


def notes(result: TabularResult) -> list[str]:
    """How to read the figures."""
    if several_action_sets(result.studies):
        return [COPIES, *HOW_TO_READ]
    return [*([TWO_REWARDS] if len(result.studies) > 1 else []), TWO_COLUMNS, *HOW_TO_READ]


def _percent(table: pl.DataFrame, row: int) -> str:
    value, low, high = table.select(INCREASE).row(row)
    return f"{value:+.1f} % [{low:.1f}, {high:.1f}]"


def _per_step(reward: object) -> str:
    return "" if reward is None else f"{reward:g} per step, "


def _figures(result: TabularResult) -> list[FigureResult]:
    study, measure = result.studies[0], result.studies[0].measured
    if several_action_sets(result.studies):
        return [_drawn_gains(result.held_out, measure)]
    increase = draw_tuned_increase(((SAME_SEEDS, result.figure), (OTHER_SEEDS, result.held_out)), measure=measure)
    caption = (
        f"Increase of the mean {measure} over the smallest k, each k at its best step size. Shaded: 95 % intervals."
    )
    of_norms = "Norms of q, u and z along learning, and at the end against k."
    name = "increase" if study.gridworld_reward is None else "gridworld"
    return [FigureResult(name, increase, caption), FigureResult(NORMS, norm_reduction(result.norms), of_norms)]


def _drawn_gains(increases: pl.DataFrame, measure: str) -> FigureResult:
    """The gain of k = 1 and k = n over k = 0 against n: a row of panels per step reward, a panel per regime."""
    table = increases.rename({"increase_percent": "gain"})
    lines = ((SeriesStyle("k = 1", ORANGE), pl.col("k") == 1), (SeriesStyle("k = n", RED), K_EQUALS_N))
    rows = [
        [
            (f"{_per_step(reward)}{regime:,} timesteps", [(style, of_regime.filter(which)) for style, which in lines])
            for (regime,), of_regime in of_reward.group_by("regime", maintain_order=True)
        ]
        for (reward,), of_reward in table.group_by("step_reward", maintain_order=True)
    ]
    caption = (
        f"Increase of the mean {measure} over k = 0 against the number of actions, each k at its best step size, "
        "chosen on the other half of the seeds. Shaded: 95 % intervals."
    )
    return FigureResult(ACTION_SETS, gain_panels(rows, "actions", f"{measure}: increase\nover k = 0, in %"), caption)


def summary(result: TabularResult) -> dict[str, Any]:
    """The numbers of the figure, as reference JSON."""
    score = pl.col("mean_score").alias(f"mean_{result.studies[0].measured}")
    key = _key(result)
    same, other = (
        rows.select(*key, *INCREASE, "best_step_size", score).to_dicts() for rows in (result.figure, result.held_out)
    )
    return {
        "figure": same,
        "figure_held_out": other,
        "timesteps": result.timesteps,
        "seconds": round(result.seconds, 3),
        "timesteps_per_second": round(result.timesteps / result.seconds),
        "diverged_runs": result.runs.filter("diverged").select(*key[:-2], "k", "step_size", "seed").n_unique(),
    }


def _key(result: TabularResult) -> list[str]:
    return [name for name in CELL if name in result.figure.columns]


def _page(result: TabularResult, origin: dict[str, Any], pictures: Sequence[Picture]) -> str:
    study, key = result.studies[0], _key(result)
    subtitle = (
        f"{result.timesteps:,} timesteps of {study.algorithm} with value-sharing in {result.seconds:.1f} s: "
        f"{result.timesteps / result.seconds:,.0f} timesteps per second."
    )
    held_out = result.held_out.select(*key, *INCREASE)
    rows = result.figure.select(*key, "best_step_size", "mean_score", *INCREASE).join(
        held_out, on=key, nulls_equal=True, maintain_order="left", suffix="_held_out"
    )
    headings = (
        "per step",
        *(["actions"] if "actions" in key else []),
        "timesteps",
        "k",
        "best step size",
        f"mean {study.measured}",
        "increase %",
        "low",
        "high",
        "held out %",
        "low",
        "high",
    )
    settings = study.settings() | {
        "step_reward": list(dict.fromkeys(design.gridworld_reward for design in result.studies))
    }
    if several_action_sets(result.studies):
        settings |= {
            name: list(dict.fromkeys(getattr(design, name) for design in result.studies)) for name in BY_ACTIONS
        }
    about = {name: origin[name] for name in MADE_WITH if name in origin}
    shown, norms = (
        [
            elements.figure(picture.svg, picture.caption, f"figure-{picture.name}", "wide")
            for picture in pictures
            if (picture.name == NORMS) == is_norms
        ]
        for is_norms in (False, True)
    )
    sections = (
        elements.section("The result", *shown, elements.bullets(notes(result))),
        *([elements.section("What the layer does", elements.paragraph(SMALLER), *norms)] if norms else []),
        elements.section("All numbers", elements.table(headings, rows.iter_rows())),
        elements.section(
            "How it was made", elements.code(origin["command"]), elements.settings_table({**settings, **about})
        ),
    )
    return elements.page(title(result.studies), subtitle, sections)
