"""The report on environments that differ in the number of their actions alone: the gain of each learner against n.

Every learner has its best step size, chosen on half of the seeds and scored on the other half.
"""

from typing import Any

import polars as pl

from valueshare.analysis.learner_names import LearnerName, rename_learners
from valueshare.analysis.run_values import run_auc, with_divergence
from valueshare.analysis.statistics import RESAMPLES
from valueshare.analysis.tidy import RUN_COLUMNS, VARIANT, Estimate
from valueshare.analysis.tuned import CHOICES, DIFFERENCE, MEAN, tuned_scores
from valueshare.envs.action_bins import BinnedName, split_bins
from valueshare.errors import InvalidInput
from valueshare.report.data import ReportData, cached_with_data
from valueshare.report.figures.gains import gain_panels
from valueshare.report.figures.style import paper_order, series_style
from valueshare.report.interval import Interval, format_interval
from valueshare.report.tuned_text import HALVES, INTERVALS, end_of_grid

FIGURE = "gain-against-actions"
DQN = "dqn"
CAPTION = (
    "Difference of the mean AUC from that of DQN against the number of actions, every learner at its best step size, "
    "chosen on the other half of the seeds. Shaded: 95 % intervals over seeds."
)
NOTES = (
    "AUC, the score, is the mean of an agent's evaluation scores over training, the one before training too.",
    HALVES.format(first="learner and number of actions", second="step size"),
    f"{INTERVALS} Agents of different learners are resampled independently.",
)

ENGINES = (
    "LunarLander's main engine is off up to 0 and its side engines within ±0.5, so several bins do the same: part of "
    "what more bins add are copies of actions."
)

_RUN = ("env", "algorithm", "k", "step_size", "seed")  # all in which the runs may differ
_CHOSEN = ("best_step_size", *CHOICES[1:], *MEAN, *DIFFERENCE, "runs", "failed_step_sizes", "end")


def has_action_sets(data: ReportData) -> bool:
    """Whether results are of one environment with different bins of its actions, with DQN in all of them.

    Every run has a step size, and runs differ in no other setting.
    """
    rows = _without_step_sizes(data)
    names = {env: _bins_of(env) for env in rows["env"].unique()}
    with_dqn = set(rows.filter(pl.col("algorithm") == DQN)["env"])
    others = [name for name in RUN_COLUMNS if name in rows.columns and name not in (*_RUN, "optimizer")]
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


def content(data: ReportData) -> tuple[Any, str, tuple[str, ...]]:
    """Figure, caption and notes, for a report on any results that `has_action_sets`."""
    estimate = gains_of(data)
    return _figure(estimate.table), CAPTION, (*NOTES, *estimate.notes)


def verdict(data: ReportData) -> list[str]:
    """The sentences of results that `has_action_sets`; none of others."""
    return sentences(gains_of(data).table) if has_action_sets(data) else []


@cached_with_data
def gains_of(data: ReportData) -> Estimate:
    """The gains of the results of a report."""
    return gains(_without_step_sizes(data).with_columns(k="k_number"), data.resamples)


def gains(rows: pl.DataFrame, resamples: int = RESAMPLES) -> Estimate:
    """The held-out scores of every learner and environment, and their differences from DQN's.

    Columns: `env, actions, algorithm, k`, those of `tuned_scores`, and `end`: whether the best step size is the
    smallest or the largest that was tried.
    """
    auc, notes = run_auc(rows)
    scores = with_divergence(auc, rows).select(*_RUN, "score", "diverged")
    bins = {env: split_bins(env) for env in scores["env"].unique()}
    tables = []
    for env in sorted(bins, key=lambda name: bins[name].actions or 0):
        env_scores = scores.filter(pl.col("env") == env)
        learners = sorted(
            env_scores.select("algorithm", "k").unique().rows(),
            key=lambda learner: (learner[0] != DQN, paper_order(*learner)),
        )
        # All are compared with the smallest number, which is that of DQN.
        known = pl.DataFrame(learners, ["algorithm", "k"], orient="row").with_row_index("learner")
        chosen = tuned_scores(env_scores.join(known, on=["algorithm", "k"]), "learner", resamples=resamples)
        ends = [end_of_grid(best, env_scores["step_size"]) for best in chosen["best"]]
        named = known.join(chosen, on="learner").rename({"best": "best_step_size", "failed": "failed_step_sizes"})
        of_env = {"env": pl.lit(env), "actions": pl.lit(bins[env].actions, pl.Int64)}
        tables.append(named.with_columns(**of_env, end=pl.Series(ends, dtype=pl.String)))
    lunar = any(name.env_id.startswith("LunarLanderContinuous-") for name in bins.values())
    table = pl.concat(tables).select("env", "actions", *VARIANT, *_CHOSEN)
    return Estimate(table, (ENGINES, *notes) if lunar else notes)


def sentences(table: pl.DataFrame) -> list[str]:
    """A line per number of actions: DQN's AUC, and the difference of every other learner from it."""
    lines = []
    for learners in table.partition_by("actions", maintain_order=True):
        dqn, *others = learners.rows(named=True)
        score = Interval.of(dqn, MEAN)
        if score is None:
            lines.append(f"{dqn['actions']} actions: DQN has no step size that can be scored.")
            continue
        differences = ((row, Interval.of(row, DIFFERENCE)) for row in others)
        texts = [
            f"{_label(row)} {format_interval(difference)}" for row, difference in differences if difference is not None
        ]
        start = f"{dqn['actions']} actions: AUC of DQN {format_interval(score, sign=False)}; against it: "
        lines.append(f"{start}{', '.join(texts) or 'nothing'}.")
    edges = [
        f"The best step size of {_label(row)} with {row['actions']} actions is the {row['end']} that was tried: "
        "search beyond it."
        for row in table.drop_nulls("end").rows(named=True)
    ]
    return [*lines, *edges]


def _label(row: dict[str, Any]) -> str:
    return LearnerName.parse(row["algorithm"]).label(row["k"], row["actions"])


def _figure(table: pl.DataFrame) -> Any:
    """A line per learner; IB-DQN(n) is one learner, whatever n is."""
    others = table.filter(pl.col("algorithm") != DQN)
    styles = [series_style(*row) for row in others.select("algorithm", "k", "actions").iter_rows()]
    by_label = {style.label: style for style in styles}
    lines = others.select(
        "actions",
        pl.Series("label", [style.label for style in styles], pl.String),
        **dict(zip(("gain", *MEAN[1:]), DIFFERENCE, strict=True)),
    )
    by_learner = [(by_label[line["label"][0]], line) for line in lines.partition_by("label", maintain_order=True)]
    return gain_panels([[("each at its best step size", by_learner)]], "actions", "AUC: difference from DQN")


def _without_step_sizes(data: ReportData) -> pl.DataFrame:
    """The runs of a report without step sizes in the names of learners; other settings stay."""

    def change(name: LearnerName) -> LearnerName:
        return name._replace(settings=tuple(text for text in name.settings if not text.startswith("step_size=")))

    return data.main.with_columns(algorithm=rename_learners(data.main, change))


def _bins_of(env: str) -> BinnedName:
    """The parts of an environment's name in results; names of other programs have no bins."""
    try:
        return split_bins(env)
    except InvalidInput:
        return BinnedName(env)
