"""What a tabular study leaves behind: records, summary, figures and a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.experiments.studies import GRIDWORLD, TabularStudy, title
from valueshare.experiments.tabular import TabularResult
from valueshare.files import write_json, write_whole
from valueshare.records import write_table
from valueshare.report.figures import tabular as figures
from valueshare.report.figures.style import save
from valueshare.report.page import elements
from valueshare.report.tabular_summary import SUMMARY, read_summary
from valueshare.runs.provenance import provenance

SAME_SEEDS = "step sizes chosen on all seeds"
OTHER_SEEDS = "chosen on the other half"
TWO_REWARDS = (
    "The paper's text has a reward of 0 for every step but the last. With that reward, no "
    "increase stands out here. The paper's figure, over 20 % more episodes within "
    "1,000 timesteps, appears with a reward of -1 per step. Both are shown."
)
READING = (
    (
        "Left: the step size of each k is the one that did best on the very seeds that are shown, "
        "as in the paper. Right: each half of the seeds is scored at the step sizes that the other "
        "half chose, so no run has a part in choosing its own. Every increase there moves with the "
        "luck of the smallest k's own two choices, which the bands do not hold."
    ),
    (
        "The bands are 95 % percentile bootstrap intervals over seeds of the ratio of two means, "
        "given the step sizes: that another sample might have chosen others is not in them."
    ),
    (
        "A step size at which any run diverged (a TD error past 1e100) is no candidate; the "
        "records mark those runs, and no average contains them."
    ),
)


def write_results(result: TabularResult, folder: Path, *, command: str) -> None:
    """Fill a results folder from a finished study."""
    measure = result.studies[0].measured
    records = folder / "records"
    records.mkdir()
    # In double precision: a run on its way to 1e100 would be infinite in single.
    write_table(records / "runs.parquet", result.runs)
    write_table(records / "norms.parquet", result.norms)

    origin = provenance(command)
    write_json(folder / "provenance.json", origin)
    write_json(folder / SUMMARY, summary(result))

    name = figure_name(result.studies)
    columns = ((SAME_SEEDS, result.figure), (OTHER_SEEDS, result.held_out))
    drawings = folder / "figures"
    save(figures.tuned_increase(columns, measure=measure), drawings, name)
    save(figures.norm_reduction(result.norms), drawings, "norms")
    html = _page(result, command, origin, drawings)
    write_whole(folder / "report.html", [html.encode()])


def figure_name(studies: Sequence[TabularStudy]) -> str:
    """The name of the main figure, without its ending."""
    return "gridworld" if studies[0].env == GRIDWORLD else "increase"


def headlines(folder: Path) -> list[str]:
    """The result of a folder in a line a case: the largest increase at the second regime."""
    written = read_summary(folder).same_seeds.rows(named=True)
    rows = [row for row in written if None not in (row["ci95_low"], row["ci95_high"])]
    regimes = sorted({row["regime"] for row in rows})
    lines = []
    for case in dict.fromkeys(row["step_reward"] for row in rows):
        regime = regimes[min(1, len(regimes) - 1)]
        own = [row for row in rows if row["step_reward"] == case and row["regime"] == regime]
        plain = min(row["k"] for row in own)
        others = [row for row in own if row["k"] != plain]
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
    name = f"mean_{result.studies[0].measured}"
    return {
        "figure": _rows(result.figure, name),
        "figure_held_out": _rows(result.held_out, name),
        "timesteps": result.timesteps,
        "seconds": round(result.seconds, 3),
        "timesteps_per_second": round(result.timesteps / result.seconds),
        "diverged_runs": int(
            result.runs.filter(pl.col("diverged"))
            .select("step_reward", "k", "step_size", "seed")
            .n_unique()
        ),
        "notes": list(_notes(result)),
    }


def _rows(table: pl.DataFrame, score_name: str) -> list[dict[str, Any]]:
    return (
        table.rename({"mean_score": score_name})
        .select(
            "step_reward",
            "regime",
            "k",
            "increase_percent",
            "ci95_low",
            "ci95_high",
            "best_step_size",
            score_name,
        )
        .to_dicts()
    )


def _notes(result: TabularResult) -> tuple[str, ...]:
    return (TWO_REWARDS, *READING) if len(result.studies) > 1 else READING


def _page(
    result: TabularResult,
    command: str,
    origin: dict[str, Any],
    drawings: Path,
) -> str:
    study = result.studies[0]
    rate = result.timesteps / result.seconds
    lead = (
        f"{result.timesteps:,} timesteps of {study.algorithm} with value-sharing in "
        f"{result.seconds:.1f} s: {rate:,.0f} timesteps a second on {origin['machine']['cores']} "
        f"cores."
    )
    beside = result.held_out.select(
        "step_reward",
        "regime",
        "k",
        pl.col("increase_percent").alias("held_out"),
        pl.col("ci95_low").alias("held_out_low"),
        pl.col("ci95_high").alias("held_out_high"),
    )
    compared = result.figure.join(
        beside, on=["step_reward", "regime", "k"], nulls_equal=True, maintain_order="left"
    ).select(
        "step_reward",
        "regime",
        "k",
        "best_step_size",
        "mean_score",
        "increase_percent",
        "ci95_low",
        "ci95_high",
        "held_out",
        "held_out_low",
        "held_out_high",
    )
    headings = (
        "per step",
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
    sections = (
        elements.section(
            "The result",
            elements.figure(
                drawings / f"{figure_name(result.studies)}.svg",
                f"Increase of the mean {study.measured} over the smallest k, each k at its best "
                "step size. Shaded: 95 % intervals.",
            ),
            elements.bullets(_notes(result)),
        ),
        elements.section(
            "What the layer does",
            elements.paragraph(
                "Learning z instead of q keeps what is learned small: |z| < |u| < |q| wherever the "
                "mean action-value is not 0. Norms are averaged over states and seeds; each k runs "
                "at the step size that was best at the end."
            ),
            elements.figure(
                drawings / "norms.svg", "Norms along learning, and at the end against k."
            ),
        ),
        elements.section("All numbers", elements.table(headings, compared.iter_rows())),
        elements.section(
            "How it was made",
            elements.code(command),
            elements.settings_table(
                study.settings()
                | {"step_reward": [each.case for each in result.studies]}
                | {key: origin[key] for key in ("valueshare", "commit", "machine", "libraries")}
            ),
        ),
    )
    return elements.page(title(result.studies), lead, sections)
