"""The report on environments that differ in the number of their actions alone: the gain of each learner against n.

Made of a run folder, finished or not. Every learner has its best step size, chosen on half of the seeds and scored on
the other half.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.analysis.held_out import tuned_scores
from valueshare.analysis.importers.formats import Imported, read_run_folder
from valueshare.analysis.importers.results import Results, Source
from valueshare.analysis.run_values import run_auc
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import RUN
from valueshare.envs.action_bins import BinnedName, split_bins
from valueshare.errors import InvalidInput
from valueshare.report.data import ReportData, report_data
from valueshare.report.figures.action_sets import Line, Panel, gain_against_actions
from valueshare.report.figures.series import with_k
from valueshare.report.figures.style import look, place
from valueshare.report.findings import Interval, written
from valueshare.report.folder import Drawn, Report, write_files
from valueshare.report.page.about import deviations
from valueshare.report.page.elements import Picture, section, table
from valueshare.report.page.study import study_page
from valueshare.result_files import OWN_LIMIT, SizeLimit
from valueshare.text import how_many

FIGURE = "gain-against-actions"
PLAIN = "dqn"
CAPTION = (
    "Difference of the mean AUC from that of DQN against the number of actions, every learner at its best step size, "
    "chosen on the other half of the seeds. Shaded: 95 % intervals over seeds."
)
NOTES = (
    "AUC is the mean of an agent's evaluation scores over training, the one before training too.",
    (
        "Each half of the seeds chooses the step size with the highest mean AUC, for every learner and number of "
        "actions; the other half is scored at it. So no run has a part in choosing its own step size, apart from "
        "divergence, which is judged on all seeds: a step size at which any run diverged or has no score is no "
        "candidate."
    ),
    (
        "Intervals are 95 % percentile bootstrap intervals over seeds, given the step sizes; agents of different "
        "learners are resampled independently."
    ),
)

ENGINES = (
    "LunarLander's main engine is off up to 0 and its side engines within ±0.5, so several bins do the same: part of "
    "what more bins add are copies of actions."
)


class Gains(NamedTuple):
    """The learners of every environment: columns `env, actions, algorithm, k` and those of `tuned_scores`."""

    table: pl.DataFrame
    notes: tuple[str, ...]

    @property
    def panel(self) -> Panel:
        """A line per learner; IB-DQN(n) is one learner, whatever n is."""
        lines: dict[str, Line] = {}
        for row in self.table.filter(pl.col("algorithm") != PLAIN).rows(named=True):
            own = look(row["algorithm"], row["k"], row["actions"])
            names = {"gain": "difference", "ci95_low": "difference_low", "ci95_high": "difference_high"}
            types = {"actions": pl.Int64} | dict.fromkeys(names, pl.Float64)
            values = {"actions": row["actions"]} | {name: row[column] for name, column in names.items()}
            before = lines[own.label].table if own.label in lines else pl.DataFrame(schema=types)
            lines[own.label] = Line(own, pl.concat([before, pl.DataFrame([values], schema=types)]))
        return Panel("each at its best step size", list(lines.values()))


def has_action_sets(data: ReportData) -> bool:
    """Whether results are of one environment with different bins of its actions, with DQN in all of them.

    Every run has a step size, and runs differ in no other setting.
    """
    return _are_action_sets(data.main.with_columns(_base_names()))


def content(data: ReportData) -> tuple[Any, str, tuple[str, ...]]:
    """Figure, caption and notes, for a report on any results that `has_action_sets`."""
    found = gains(data.main.with_columns(_base_names()), data.resamples)
    return _drawn(found).figure, CAPTION, (*NOTES, *found.notes)


def gains(rows: pl.DataFrame, resamples: int = RESAMPLES) -> Gains:
    """The held-out scores of every learner and environment, and their differences from DQN's."""
    diverged = pl.col("diverged_at").is_not_null().any() if "diverged_at" in rows.columns else pl.lit(False)
    auc, notes = run_auc(rows)
    run = list(_RUN)
    scores = auc.select(*run, "score").join(rows.group_by(run).agg(diverged=diverged), on=run)
    bins = {env: split_bins(env) for env in scores["env"].unique()}
    tables = []
    for env in sorted(bins, key=lambda name: bins[name].actions or 0):
        own = scores.filter(pl.col("env") == env)
        learners = sorted(own.select("algorithm", "k").unique().rows(), key=lambda who: (who[0] != PLAIN, place(*who)))
        # `tuned_scores` compares with the smallest k: learners are numbered in its place, DQN is 0.
        known = pl.DataFrame(learners, ["algorithm", "k"], orient="row").with_row_index("learner")
        numbered = own.join(known, on=["algorithm", "k"]).with_columns(k=pl.col("learner").cast(pl.Float64))
        chosen = tuned_scores(numbered, resamples=resamples).with_columns(learner=pl.col("k").cast(pl.UInt32)).drop("k")
        actions = pl.lit(bins[env].actions, pl.Int64)
        named = known.join(chosen, on="learner").with_columns(_end_of_grid(own["step_size"]).alias("end"))
        tables.append(named.select(pl.lit(env).alias("env"), actions.alias("actions"), *_COLUMNS))
    of_env = [ENGINES] if any(name.env_id.startswith("LunarLanderContinuous-") for name in bins.values()) else []
    return Gains(pl.concat(tables), (*of_env, *notes))


def write_actions_report(run_folder: Path, out: Path | None = None, *, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Write figures/, summary.json and report.html; returns the summary."""
    run = read_run_folder(run_folder, SizeLimit(OWN_LIMIT))
    rows = with_k(run.table)
    if not _are_action_sets(rows):
        raise InvalidInput(
            f"{run_folder} has no environments that differ in the bins of their actions, with DQN in all: runs that "
            "differ in nothing else but algorithm, k, step size and seed"
        )
    found = gains(rows, resamples)
    summary = {"verdict": sentences(found), "learners": found.table.to_dicts(), "notes": [*NOTES, *found.notes]}
    report = Report([_drawn(found)], {"summary.json": summary}, lambda pictures: _page(run, found, summary, pictures))
    write_files(report, run_folder if out is None else out)
    return summary


def sentences(found: Gains) -> list[str]:
    """A line per number of actions: DQN's AUC, and the difference of every other learner from it."""
    lines = []
    for own in found.table.partition_by("actions", maintain_order=True):
        plain, *others = own.rows(named=True)
        if plain["mean"] is None:
            lines.append(f"{plain['actions']} actions: DQN has no step size that can be scored.")
            continue
        words = [
            f"{_label(row)} {written(Interval(*(row[name] for name in _DIFFERENCE)))}"
            for row in others
            if row["difference"] is not None
        ]
        score = written(Interval(plain["mean"], plain["ci95_low"], plain["ci95_high"]), sign=False)
        lines.append(f"{plain['actions']} actions: AUC of DQN {score}; against it: {', '.join(words) or 'nothing'}.")
    return [*lines, *_edges(found)]


_RUN = ("env", "algorithm", "k", "step_size", "seed")  # all in which the runs may differ
_DIFFERENCE = ("difference", "difference_low", "difference_high")
_COLUMNS = (
    *("algorithm", "k", "best_step_size", "first_half_choice", "second_half_choice"),
    *("mean", "ci95_low", "ci95_high", *_DIFFERENCE, "runs", "failed_step_sizes", "end"),
)
_HEADINGS = (
    *("environment", "actions", "algorithm", "k", "best step size", "chosen by the first half", "by the second half"),
    *("AUC on the other half", "low", "high", "difference from DQN", "low", "high", "agents", "step sizes left out"),
    "end of the grid",
)


def _edges(found: Gains) -> list[str]:
    """A warning where a best step size is the first or last that was tried: a better one may lie beyond."""
    return [
        f"The best step size of {_label(row)} with {row['actions']} actions is the {row['end']} that was tried: "
        "search beyond it."
        for row in found.table.drop_nulls("end").rows(named=True)
    ]


def _end_of_grid(step_sizes: pl.Series) -> pl.Expr:
    """Whether a best step size is the smallest or the largest of several that were tried."""
    tried = step_sizes.unique().sort().to_list()
    if len(tried) < 3:
        return pl.lit(None, pl.String)  # there is nothing but ends
    best = pl.col("best_step_size")
    return pl.when(best == tried[0]).then(pl.lit("smallest")).when(best == tried[-1]).then(pl.lit("largest"))


def _label(row: dict[str, Any]) -> str:
    return look(row["algorithm"], row["k"], row["actions"]).label


def _drawn(found: Gains) -> Drawn:
    return Drawn(FIGURE, gain_against_actions([[found.panel]], "AUC: difference from DQN"), CAPTION)


def _base_names() -> pl.Expr:
    """Algorithms without the step sizes that a report writes after their names; other settings stay."""
    return pl.col("algorithm").str.replace(r" step_size=\S+$", "")


def _are_action_sets(rows: pl.DataFrame) -> bool:
    """Whether the rows are such results; algorithms are named without their settings."""
    names = {env: _bins_of(env) for env in rows["env"].unique()}
    with_dqn = set(rows.filter(pl.col("algorithm") == PLAIN)["env"])
    others = [name for name in RUN if name in rows.columns and name not in (*_RUN, "optimizer")]
    optimizers = set(rows["optimizer"].drop_nulls()) if "optimizer" in rows.columns else set()  # unknown: may be any
    return (
        len({name.env_id for name in names.values()}) == 1
        and len({name.actions for name in names.values()}) == len(names) > 1
        and all(name.bins for name in names.values())
        and with_dqn == names.keys()
        and "step_size" in rows.columns
        and not rows["step_size"].has_nulls()
        and all(rows[name].n_unique() == 1 for name in others)
        and len(optimizers) < 2
        and not rows.select(*_RUN, "step").is_duplicated().any()
    )


def _bins_of(env: str) -> BinnedName:
    """The parts of a name in results, which may be any: one that is none of ours has no bins."""
    try:
        return split_bins(env)
    except InvalidInput:
        return BinnedName(env)


def _page(run: Imported, found: Gains, summary: dict[str, Any], pictures: Sequence[Picture]) -> str:
    results = Results(run.table, (), (Source("", run.kind, 0, run.config, run.provenance),))
    names = {split_bins(env).env_id for env in found.table["env"]}
    agents = run.table.select("agent").n_unique()
    return study_page(
        run,
        report_data(results),
        f"{', '.join(names)}: value-sharing with more and more actions",
        f"{how_many(agents, 'agent')} with {', '.join(map(str, found.table['actions'].unique().sort()))} actions.",
        verdict=summary["verdict"],
        pictures=pictures,
        notes=summary["notes"],
        tables=[section("All numbers", table(_HEADINGS, found.table.iter_rows()))],
        deviations=deviations(results),
    )
