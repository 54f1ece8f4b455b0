"""The report of the LunarLander sweep over k: does the paper's claim on k hold?"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from valueshare.analysis.aggregate import mean_intervals
from valueshare.analysis.run_values import run_auc
from valueshare.experiments.lunarlander import ENV
from valueshare.report.figures import curves
from valueshare.report.folder import Drawn
from valueshare.report.page.elements import section, table
from valueshare.report.study import AUC, read_study, run_deviations, score_rows, write_study
from valueshare.text import how_many


class Claim(NamedTuple):
    """A statement of the paper on the AUC of some k, against k = 0."""

    ks: str  # which k, in words
    key: str  # the same, in summary.json
    low: float
    high: float
    side: Literal["above", "below"]


CLAIMS = (
    Claim("k from 1 to 32", "k_1_to_32", 1.0, 32.0, "above"),
    Claim("k from 4,096", "k_from_4096", 4_096.0, math.inf, "below"),
)
NOTES = (  # on how to read the numbers
    AUC,
    (
        "Intervals are 95 % percentile bootstrap intervals over seeds of the mean. 'Above' and 'below' mean that two "
        "intervals do not overlap."
    ),
    (
        "All k share one step size, as in the paper: smaller step sizes should suit larger k, so this shows k at a "
        "fixed step size and not k at its best."
    ),
    (
        "Overestimation is the action-value minus the discounted return that followed, on the scale of the training "
        "rewards, over finished evaluation episodes after training began."
    ),
    (
        "An agent that diverged is frozen and continues to be evaluated: its scores count, because leaving them out "
        "would make the mean of that k too high."
    ),
)
BY_K = {  # tables by k, and their headings
    "auc": "AUC",
    "overestimation": "Overestimation",
    "relative_action_gap": "Relative action gap",
}


HEADINGS = ("k", "mean", "low", "high", "agents", "left out")
Tables = dict[
    str, pl.DataFrame
]  # auc, overestimation, relative_action_gap, diverged by k; curves by k and step; scores


def write_sweep_report(run_folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Write figures/, summary.json, scores.parquet and report.html; returns the summary."""
    run = read_study(run_folder)
    tables = tabulate(run.agents, run.table)
    summary = summarise(tables, run_deviations(run))
    by_k = "AUC against k, and learning curves. Shaded: 95 % intervals over seeds."
    scale = "Overestimation against k, on the scale of the training rewards."
    gap = curves.against_k(tables["relative_action_gap"], "relative_action_gap")
    drawn = [
        Drawn("sensitivity", curves.sensitivity(tables["auc"], tables["curves"]), by_k),
        Drawn("auc", curves.against_k(tables["auc"], "score")),
        Drawn("learning-curves", curves.learning_curves(tables["curves"])),
        Drawn("overestimation", curves.against_k(tables["overestimation"], "overestimation"), scale),
        Drawn("relative-action-gap", gap, "Relative action gap against k."),
    ]
    agents, ks = summary["left_out"]["agents"], tables["auc"].height
    sections = [
        section(heading, table(HEADINGS, tables[name].iter_rows(), name=name.replace("_", "-")))
        for name, heading in BY_K.items()
    ]
    return write_study(
        run,
        out,
        summary,
        drawn,
        title=f"{ENV}: sensitivity to k",
        lead=f"{how_many(agents, 'agent')}, {how_many(summary['steps'], 'step')} each: IB-DQN with "
        f"{how_many(ks, 'value')} of k.",
        sections=[*sections, section("Diverged agents", table(("k", "agents"), tables["diverged"].iter_rows()))],
        deviations=summary["deviations"],
        tables={"scores.parquet": tables["scores"]},
    )


def tabulate(agents: pl.DataFrame, evaluations: pl.DataFrame) -> Tables:
    """Means over training of each agent, then means and intervals over seeds for each k.

    Agents without any record count as left out, so an unfinished run shows what it lacks.
    """
    trained = evaluations.filter(pl.col("step") > 0)
    seeds = agents.select(pl.col("k").cast(pl.Float64), pl.col("seed").cast(pl.Int64))

    def by_k(rows: pl.DataFrame, column: str) -> pl.DataFrame:
        means = run_auc(rows, column).table
        return mean_intervals(seeds.join(means, on=["k", "seed"], how="left"), ["k"], column)

    broken = evaluations.group_by("agent", "k").agg(pl.col("diverged_at").is_not_null().any())
    return {
        "auc": by_k(evaluations, "score"),
        "overestimation": by_k(trained, "overestimation"),
        "relative_action_gap": by_k(trained, "relative_action_gap"),
        "curves": mean_intervals(evaluations, ["k", "step"], "score"),
        "scores": score_rows(evaluations),
        "diverged": broken.group_by("k").agg(pl.col("diverged_at").sum().alias("diverged")).sort("k"),
    }


def summarise(tables: Tables, departures: Sequence[str] = ()) -> dict[str, Any]:
    """The numbers and the verdict, as plain JSON; `departures` are deviations from the paper."""
    sides = dict(zip(("above", "below"), compared(tables["auc"]), strict=True))
    rows = {row["k"]: row for row in tables["auc"].to_dicts()}
    without = sum(tables["auc"]["left_out"])
    left_out = {
        "agents": sum(tables["auc"]["agents"]) + without,
        "agents_without_auc": without,
        "agents_diverged": sum(tables["diverged"]["diverged"]),
        "evaluations": tables["scores"].height,
        "evaluations_without_finished_episode": tables["scores"]["score"].null_count(),
    }
    verdict, found = ["There is no interval for k = 0, so nothing can be compared with it."], {}
    comparable = rows.get(0.0, {}).get("ci95_low") is not None
    if comparable:
        verdict = [f"k = 0 (DQN) has an AUC of {_with_interval(rows[0.0])}."]
    for claim in CLAIMS:
        ks = [k for k in rows if claim.low <= k <= claim.high]
        held = [k for k in ks if k in sides[claim.side]]
        found[f"{claim.key}_{claim.side}_plain"] = held
        found[f"{claim.key}_not_{claim.side}_plain"] = [k for k in ks if k not in held]
        if comparable:
            verdict.append(_sentence(claim, ks, held, rows))
    return {
        "verdict": [*verdict, _left_out(left_out)],
        **found,
        "left_out": left_out,
        "diverged_by_k": tables["diverged"].to_dicts(),
        "steps": tables["curves"]["step"].max(),
        "evaluation_points": tables["curves"]["step"].n_unique(),
        **{name: tables[name].to_dicts() for name in (*BY_K, "curves")},
        "deviations": [*departures],
        "notes": [*NOTES],
    }


def compared(auc: pl.DataFrame) -> tuple[list[float], list[float]]:
    """The k whose interval lies above that of k = 0, and those below it."""
    plain = auc.filter((pl.col("k") == 0) & pl.col("ci95_low").is_not_null())
    if plain.is_empty():
        return [], []
    others = auc.filter(pl.col("k") > 0)
    above = others.filter(pl.col("ci95_low") > plain["ci95_high"][0])
    below = others.filter(pl.col("ci95_high") < plain["ci95_low"][0])
    return above["k"].to_list(), below["k"].to_list()


def _sentence(claim: Claim, ks: list[float], held: list[float], rows: dict[float, dict[str, Any]]) -> str:
    """Whether a claim holds: for which k of those that were run."""
    if not ks:
        return f"No {claim.ks} was run."
    if not held:
        return f"Of {claim.ks}, none of {_joined(ks)} is {claim.side} k = 0."
    pick, extreme = (max, "best") if claim.side == "above" else (min, "worst")
    k = pick(held, key=lambda k: rows[k]["mean"])
    return (
        f"Of {claim.ks}, {len(held)} of {len(ks)} are {claim.side} k = 0 ({_joined(held)}); "
        f"the {extreme} is k = {k:g} with {_with_interval(rows[k])}."
    )


def _left_out(counts: dict[str, int]) -> str:
    return (
        f"{counts['agents_without_auc']:,} of {counts['agents']:,} agents have no AUC (a missing evaluation) and are "
        f"left out; {counts['evaluations_without_finished_episode']:,} of {counts['evaluations']:,} evaluations "
        f"finished no episode; {how_many(counts['agents_diverged'], 'agent')} diverged (frozen, counted all the same)."
    )


def _with_interval(row: dict[str, Any]) -> str:
    return f"{row['mean']:.1f} [{row['ci95_low']:.1f}, {row['ci95_high']:.1f}]"


def _joined(ks: list[float]) -> str:
    return ", ".join(f"{k:g}" for k in ks)
