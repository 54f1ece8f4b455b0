"""The report of a tabular study: records, summary, figures and a page.

A finished study is reported whole. A folder of results is drawn again from its records.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.experiments.studies import TabularStudy, several_action_sets, title
from valueshare.experiments.tabular import TabularResult
from valueshare.report.action_sets import FIGURE as ACTION_SETS
from valueshare.report.figure_registry import FIGURES
from valueshare.report.figures.action_sets import Line, Panel, gain_against_actions
from valueshare.report.figures.style import ORANGE, RED, Look
from valueshare.report.figures.tabular import norm_reduction, tuned_increase
from valueshare.report.folder import Drawn, write_files
from valueshare.report.page.about import made_section
from valueshare.report.page.elements import Picture, bullets, figure, page, paragraph, section, table
from valueshare.report.tabular_files import NORMS, RUNS, SUMMARY, stored_result
from valueshare.result_files import SizeLimit
from valueshare.runs.provenance import provenance

CELL = ("step_reward", "actions", "regime", "k")  # the key of a table's rows; actions where studies differ in them
INCREASE = ("increase_percent", "ci95_low", "ci95_high")
SAME_SEEDS = "step sizes chosen on all seeds"
OTHER_SEEDS = "chosen on the other half"
K_IS_N = pl.col("k") == pl.col("actions")
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
READING = (
    (
        "Left: the step size of each k is the one that did best on the very seeds that are shown, "
        "as in the paper. Right: each half of the seeds is scored at the step sizes that the other "
        "half chose, so no run has a part in choosing its own, apart from divergence, which is judged "
        "on all seeds: a step size at which any run diverged is no candidate. Every increase there moves "
        "with the luck of the smallest k's own two choices, which the bands do not hold."
    ),
    (
        "The bands are 95 % percentile bootstrap intervals over seeds of the ratio of two means, "
        "given the step sizes: that another sample might have chosen others is not in them."
    ),
    (
        "A run diverged if a TD error went past 1e100 or a norm overflowed. The records mark these runs, "
        "and no average contains them."
    ),
)
ACTIONS_READING = (
    (
        "The gridworld's four actions are there n / 4 times each. Copies do the same, which the learner does not know: "
        "with k = 0 it learns each of them alone."
    ),
    (
        "Each half of the seeds is scored at the step sizes that the other half chose, so no run has a part in "
        "choosing its own, apart from divergence, which is judged on all seeds: a step size at which any run diverged "
        "is no candidate. Every increase moves with the luck of the two choices for k = 0, which the bands do not hold."
    ),
    *READING[1:],
)


def write_results(result: TabularResult, folder: Path, *, command: str, shards: Sequence[dict[str, Any]] = ()) -> None:
    """Fill a results folder from a finished study; `shards` are the provenance of its shards."""
    origin = provenance(command) | ({"shards": shards} if shards else {})
    write_files(
        folder,
        _figures(result),
        {"provenance.json": origin, SUMMARY: summary(result)},
        lambda pictures: _page(result, command, origin, pictures),
        # In double precision: a run on its way to 1e100 would be infinite in single.
        tables={RUNS: result.runs, NORMS: result.norms},
    )


def redrawn(folder: Path, names: Sequence[str], limit: SizeLimit) -> tuple[list[Drawn], list[str]]:
    """The figures of a results folder again, and its notes."""
    result = stored_result(folder, limit)
    drawn = {one.name: one for one in _figures(result)}
    for name in names:
        if name not in drawn:
            known = "unknown" if name not in FIGURES else "of other results"
            raise InvalidInput(f"the figure {name!r} is {known}: this study has {', '.join(drawn)}")
    return [drawn[name] for name in dict.fromkeys(names or drawn)], notes(result)


def figure_name(studies: Sequence[TabularStudy]) -> str:
    """The name of the main figure of these studies, without its ending."""
    by_k = "increase" if studies[0].case is None else "gridworld"
    return ACTION_SETS if several_action_sets(studies) else by_k


def headlines(result: TabularResult) -> list[str]:
    """The result in a line per step reward: the largest increase at the second regime, or that of k = n."""
    several = several_action_sets(result.studies)
    increases = (result.held_out if several else result.figure).drop_nulls(INCREASE)
    if increases.is_empty():
        return []
    regimes = increases["regime"].unique().sort()
    regime = regimes[min(1, len(regimes) - 1)]
    lines = []
    for (reward,), own in increases.filter(pl.col("regime") == regime).group_by("step_reward", maintain_order=True):
        start, plain = f"{_per_step(reward)}{regime:,} timesteps: ", min(own["k"])
        others = own.filter(K_IS_N).sort("actions") if several else own.filter(pl.col("k") != plain)
        if others.is_empty():
            continue
        if several:
            ends = dict.fromkeys((0, others.height - 1))  # with the fewest and the most actions
            words = [f"{_percent(others, row)} with {others['actions'][row]:,} actions" for row in ends]
            lines.append(f"{start}k = n over k = 0 {', '.join(words)}")
        else:
            best = int(others["increase_percent"].arg_max() or 0)
            lines.append(f"{start}at best {_percent(others, best)} over k = {plain:g}, with k = {others['k'][best]:g}")
    return lines


def notes(result: TabularResult) -> list[str]:
    """How to read the figures."""
    if several_action_sets(result.studies):
        return [*ACTIONS_READING]
    return [TWO_REWARDS, *READING] if len(result.studies) > 1 else [*READING]


def _percent(table: pl.DataFrame, row: int) -> str:
    value, low, high = table.select(INCREASE).row(row)
    return f"{value:+.1f} % [{low:.1f}, {high:.1f}]"


def _per_step(reward: object) -> str:
    return "" if reward is None else f"{reward:g} per step, "


def _figures(result: TabularResult) -> list[Drawn]:
    name, measure = figure_name(result.studies), result.studies[0].measured
    if name == ACTION_SETS:
        return [_drawn_gains(result.held_out, measure)]
    increase = tuned_increase(((SAME_SEEDS, result.figure), (OTHER_SEEDS, result.held_out)), measure=measure)
    caption = (
        f"Increase of the mean {measure} over the smallest k, each k at its best step size. Shaded: 95 % intervals."
    )
    of_norms = "Norms of q, u and z along learning, and at the end against k."
    return [Drawn(name, increase, caption), Drawn("norms", norm_reduction(result.norms), of_norms)]


def _drawn_gains(increases: pl.DataFrame, measure: str) -> Drawn:
    """The gain of k = 1 and k = n over k = 0 against n: a row of panels per step reward, a panel per regime."""
    table = increases.rename({"increase_percent": "gain"})
    lines = ((Look("k = 1", ORANGE), pl.col("k") == 1), (Look("k = n", RED), K_IS_N))
    rows = [
        [
            Panel(f"{_per_step(reward)}{regime:,} timesteps", [Line(look, own.filter(which)) for look, which in lines])
            for (regime,), own in of_reward.group_by("regime", maintain_order=True)
        ]
        for (reward,), of_reward in table.group_by("step_reward", maintain_order=True)
    ]
    caption = (
        f"Increase of the mean {measure} over k = 0 against the number of actions, each k at its best step size, "
        "chosen on the other half of the seeds. Shaded: 95 % intervals."
    )
    return Drawn(ACTION_SETS, gain_against_actions(rows, f"{measure}: increase\nover k = 0, in %"), caption)


def summary(result: TabularResult) -> dict[str, Any]:
    """The numbers of the figure, as plain JSON."""
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
        "notes": notes(result),
    }


def _key(result: TabularResult) -> list[str]:
    return [name for name in CELL if name in result.figure.columns]


def _page(result: TabularResult, command: str, origin: dict[str, Any], pictures: Sequence[Picture]) -> str:
    study, key, (increase, *norms) = result.studies[0], _key(result), pictures
    subtitle = (
        f"{result.timesteps:,} timesteps of {study.algorithm} with value-sharing in {result.seconds:.1f} s: "
        f"{result.timesteps / result.seconds:,.0f} timesteps per second on {origin['machine']['cores']} cores."
    )
    held_out = result.held_out.select(*key, *INCREASE)
    rows = result.figure.select(*key, "best_step_size", "mean_score", *INCREASE).join(
        held_out, on=key, nulls_equal=True, maintain_order="left", suffix="_held_out"
    )
    headings = (
        *("per step", *(["actions"] if "actions" in key else []), "timesteps", "k"),
        *("best step size", f"mean {study.measured}"),
        *("increase %", "low", "high", "held out %", "low", "high"),
    )
    settings = study.settings() | {"step_reward": list(dict.fromkeys(each.case for each in result.studies))}
    if several_action_sets(result.studies):
        settings |= {name: list(dict.fromkeys(getattr(each, name) for each in result.studies)) for name in BY_ACTIONS}
    sections = (
        section("The result", figure(increase.svg, increase.caption), bullets(notes(result))),
        *(section("What the layer does", paragraph(SMALLER), figure(one.svg, one.caption)) for one in norms),
        section("All numbers", table(headings, rows.iter_rows())),
        made_section(command, settings, origin),
    )
    return page(title(result.studies), subtitle, sections)
