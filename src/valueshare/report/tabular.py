"""The report of a tabular study: records, summary, figures and a page.

A finished study is reported whole. A folder of results is drawn again from its summary and norms.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.experiments.studies import TabularStudy, several_action_sets, title
from valueshare.experiments.tabular import TabularResult
from valueshare.report import tabular_actions
from valueshare.report.action_sets import FIGURE as ACTION_SETS
from valueshare.report.figure_registry import FIGURES
from valueshare.report.figures.tabular import norm_reduction, tuned_increase
from valueshare.report.folder import Drawn, Report, write_files
from valueshare.report.page.about import made_section
from valueshare.report.page.elements import Picture, bullets, figure, page, paragraph, section, table
from valueshare.report.tabular_files import SUMMARY, read_norms, read_summary
from valueshare.result_files import SizeLimit
from valueshare.runs.provenance import provenance

CELL = ("step_reward", "actions", "regime", "k")  # the key of a table's rows; actions where cases differ in them
INCREASE = ("increase_percent", "ci95_low", "ci95_high")
SAME_SEEDS = "step sizes chosen on all seeds"
OTHER_SEEDS = "chosen on the other half"
TWO_REWARDS = (
    "The paper's text has a reward of 0 for every step but the last. With that reward, no "
    "increase stands out here. The paper's figure, over 20 % more episodes within "
    "1,000 timesteps, appears with a reward of -1 per step. Both are shown."
)
NORMS = (
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


def write_results(result: TabularResult, folder: Path, *, command: str, shards: Sequence[dict[str, Any]] = ()) -> None:
    """Fill a results folder from a finished study; `shards` are the provenance of its shards."""
    origin = provenance(command) | ({"shards": shards} if shards else {})
    name, measure = figure_name(result.studies), result.studies[0].measured
    report = Report(
        _figures(name, result.figure, result.held_out, result.norms, measure),
        {"provenance.json": origin, SUMMARY: summary(result)},
        lambda pictures: _page(result, command, origin, pictures),
        # In double precision: a run on its way to 1e100 would be infinite in single.
        {"records/runs.parquet": result.runs, "records/norms.parquet": result.norms},
    )
    write_files(report, folder)


def redrawn(folder: Path, names: Sequence[str], limit: SizeLimit) -> tuple[list[Drawn], tuple[str, ...]]:
    """The figures of a results folder again, and its notes."""
    stored = read_summary(folder)
    main = ACTION_SETS if "actions" in stored.same_seeds.columns else _by_k_name(stored.same_seeds["step_reward"][0])
    own = (main,) if main == ACTION_SETS else (main, "norms")
    for name in names:
        if name not in own:
            known = "unknown" if name not in FIGURES else "of other results"
            raise InvalidInput(f"the figure {name!r} is {known}: this study has {', '.join(own)}")
    norms = read_norms(folder, limit)
    drawn = _figures(main, stored.same_seeds, stored.other_seeds, norms, stored.measure)
    by_name = {one.name: one for one in drawn}
    return [by_name[name] for name in dict.fromkeys(names or by_name)], stored.notes


def _figures(
    name: str, same_seeds: pl.DataFrame, other_seeds: pl.DataFrame, norms: pl.DataFrame, measure: str
) -> list[Drawn]:
    if name == ACTION_SETS:
        return [tabular_actions.drawn_gains(other_seeds, measure)]
    increase = tuned_increase(((SAME_SEEDS, same_seeds), (OTHER_SEEDS, other_seeds)), measure=measure)
    caption = (
        f"Increase of the mean {measure} over the smallest k, each k at its best step size. Shaded: 95 % intervals."
    )
    of_norms = "Norms of q, u and z along learning, and at the end against k."
    return [Drawn(name, increase, caption), Drawn("norms", norm_reduction(norms), of_norms)]


def figure_name(studies: Sequence[TabularStudy]) -> str:
    """The name of the main figure of these studies, without its ending."""
    return ACTION_SETS if several_action_sets(studies) else _by_k_name(studies[0].case)


def _by_k_name(case: float | None) -> str:
    return "increase" if case is None else "gridworld"


def headlines(folder: Path) -> list[str]:
    """The result of a folder in a line per case: the largest increase at the second regime."""
    stored = read_summary(folder)
    if "actions" in stored.same_seeds.columns:
        return tabular_actions.headlines(stored.other_seeds)
    increases = stored.same_seeds.drop_nulls(INCREASE[1:])
    regimes = increases["regime"].unique().sort()
    lines = []
    for rows in increases.partition_by("step_reward", maintain_order=True):
        case, regime = rows["step_reward"][0], regimes[min(1, len(regimes) - 1)]
        own = rows.filter(pl.col("regime") == regime)
        plain = min(own["k"])
        others = own.filter(pl.col("k") != plain).rows(named=True)
        if not others:
            continue
        best = max(others, key=lambda row: row["increase_percent"])
        interval = f"[{best['ci95_low']:.1f}, {best['ci95_high']:.1f}]"
        lines.append(
            ("" if case is None else f"{case:g} per step, ")
            + f"{regime:,} timesteps: at best {best['increase_percent']:+.1f} % {interval} "
            f"over k = {plain:g}, with k = {best['k']:g}"
        )
    return lines


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
        "notes": _notes(result),
    }


def _key(result: TabularResult) -> list[str]:
    return [name for name in CELL if name in result.figure.columns]


def _notes(result: TabularResult) -> list[str]:
    if several_action_sets(result.studies):
        return [*tabular_actions.NOTES, *READING[1:]]
    return [TWO_REWARDS, *READING] if len(result.studies) > 1 else [*READING]


def _page(result: TabularResult, command: str, origin: dict[str, Any], pictures: Sequence[Picture]) -> str:
    study, key, (increase, *norms) = result.studies[0], _key(result), pictures
    lead = (
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
        section("The result", figure(increase.svg, increase.caption), bullets(_notes(result))),
        *(section("What the layer does", paragraph(NORMS), figure(one.svg, one.caption)) for one in norms),
        section("All numbers", table(headings, rows.iter_rows())),
        made_section(command, settings, origin),
    )
    return page(title(result.studies), lead, sections)
