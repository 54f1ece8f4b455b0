"""The figures of reports: their requirements, and how they are drawn."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from valueshare.analysis.comparison import performance_profile
from valueshare.analysis.efficiency import sample_efficiency_interval
from valueshare.analysis.intervals import mean_intervals
from valueshare.analysis.learner_names import LearnerName
from valueshare.analysis.run_values import final_scores, run_auc
from valueshare.analysis.scales import NORMALIZED
from valueshare.analysis.tidy import CI95
from valueshare.errors import InvalidInput
from valueshare.report import action_sets, swept_settings
from valueshare.report.data import RMSPROP, ReportData
from valueshare.report.figures import aggregates, bars, curves, games
from valueshare.report.figures.geometry import geometry
from valueshare.report.figures.series import seed_count
from valueshare.report.figures.style import RED, SeriesStyle, rc_style
from valueshare.report.folder import FigureResult
from valueshare.text import either, format_steps, pluralize

MAX_GAMES = 10  # with a line each in one panel
MAX_LINES = 9  # in one panel; of more, the paper's choice of k is shown
MAX_BANDED = 6  # panels with intervals
MIN_TOP, MAX_TOP = 2.0, 100.0  # normalized scores up to which profiles go
SMOOTH_FROM = 50  # evaluations: fewer are not smoothed

GEOMETRY = "How the layer turns residuals z into action-values q, in the plane of two actions."
Content = tuple[Figure, str, tuple[str, ...]]  # figure, caption, notes


class Requirement(NamedTuple):
    """A condition on results, with its text."""

    text: str
    met: Callable[[ReportData], bool]


def has_column(column: str) -> Requirement:
    return Requirement(f"the column {column}", lambda data: data.has(column))


ATARI = Requirement("human-normalized scores (Atari games only)", lambda data: data.is_atari)
SCALE = Requirement(
    "normalized scores (Atari games only, or MinAtar games that DQN learned)", lambda data: data.scale is not None
)
ONE_ENV = Requirement("one environment", lambda data: len(data.envs) == 1)
SEVERAL_ENVS = Requirement("several environments", lambda data: len(data.envs) > 1)
SEVERAL_K = Requirement("an algorithm with at least three k", lambda data: len(data.ks) > 2)
PAIR = Requirement("an algorithm with the layer and the same without", lambda data: data.pair is not None)
FINAL = Requirement(
    "runs that have their last evaluations", lambda data: final_scores(data.main).table["score"].is_not_null().any()
)
WITH_RMSPROP = Requirement(
    "runs with RMSprop beside others", lambda data: {RMSPROP} < set(data.table["optimizer"].unique())
)
ACTION_SETS = Requirement(
    "DQN, step sizes, and only the bins of their actions that differ", action_sets.has_action_sets
)
ONE_PANEL = Requirement(f"at most {MAX_GAMES} games in one panel", lambda data: len(data.envs) <= MAX_GAMES)
SCALE_OR_ONE_ENV = Requirement(f"{SCALE.text}, or one environment", lambda data: SCALE.met(data) or ONE_ENV.met(data))
TWO_SETTINGS = Requirement(
    "an algorithm with exactly two swept settings, like k and the step size", swept_settings.has_scores
)


class FigureKind(NamedTuple):
    """A figure that some results allow."""

    draw: Callable[[ReportData], Content]
    needs: tuple[Requirement, ...] = ()
    every_setting: bool = False  # drawn of all runs; others, where two settings were swept, of the best of one

    def lacks(self, data: ReportData) -> str:
        """The first need that is not met, or nothing."""
        return next((need.text for need in self.needs if not need.met(data)), "")


def draw_figures(data: ReportData, names: Sequence[str] = ()) -> list[FigureResult]:
    """The figures with captions and notes; a figure asked for that cannot be drawn is refused."""
    if unknown := [repr(name) for name in names if name not in FIGURES]:
        raise InvalidInput(f"there is no figure {either(unknown)}: choose one of {', '.join(FIGURES)}")
    if reasons := [f"{name} needs {reason}" for name in names if (reason := FIGURES[name].lacks(data))]:
        raise InvalidInput(f"these results do not allow all of these figures: {'; '.join(reasons)}")
    chosen = names or [name for name, kind in FIGURES.items() if not kind.lacks(data)]
    drawn = []
    for name in dict.fromkeys(chosen):
        shown, tuning_notes = _results_shown(data, FIGURES[name])
        figure, caption, notes = FIGURES[name].draw(shown)
        drawn.append(FigureResult(name, figure, caption, (*tuning_notes, *notes)))
    if data.is_synthetic:
        for result in drawn:
            _mark_synthetic(result.figure)
    return drawn


def _results_shown(data: ReportData, kind: FigureKind) -> tuple[ReportData, tuple[str, ...]]:
    """The results that a figure is drawn from, and notes: each k at its best setting, unless it needs all settings."""
    if kind.every_setting or len(data.variants) <= MAX_LINES:
        return data, ()
    tuned, notes = swept_settings.at_best_setting(data)
    return (data, ()) if tuned.main.is_empty() or kind.lacks(tuned) else (tuned, notes)


def unmet_needs(data: ReportData) -> dict[str, str]:
    """The figures that results do not allow, each with its first unmet need."""
    return {name: reason for name, kind in FIGURES.items() if (reason := kind.lacks(data))}


def _mark_synthetic(figure: Figure) -> None:
    """Watermark figures of synthetic data."""
    text = "synthetic records: no agent was trained"
    with rc_style():
        figure.draw_without_rendering()
        below = figure.get_tightbbox().y0 / figure.get_figheight()  # all that is drawn; the saved part includes it
        figure.text(0.995, min(0.0, below), text, ha="right", va="top", fontsize=6, color=RED)


def _iqm(data: ReportData) -> Content:
    assert data.scale is not None  # or the figure was refused
    table, notes = data.curves
    caption = (
        f"Interquartile mean of the {data.scale.word} score over {_counted(data.main)}. Shaded: "
        "95 % stratified bootstrap intervals. Dashed: with the mean-expansion layer. Dotted: "
        "where it reaches the best of the same algorithm without it."
    )
    for line in aggregates.efficiency_lines(table, data.variants):
        sentence, more = _efficiency(data, line)
        caption, notes = f"{caption} {sentence}", (*notes, *more)
    return aggregates.draw_iqm_curves(table, n=data.label_actions, word=data.scale.word), caption, notes


def _efficiency(data: ReportData, line: aggregates.Line) -> tuple[str, tuple[str, ...]]:
    """IB-DQN(n) reaches the best of DQN at 12.5M [11M, 14M] of DQN's 50M timesteps; and notes."""
    rows = [
        # Where the curve is drawn: it ends where games are missing.
        v.rows(data.normalized).join(v.rows(data.curves.table), on="step", how="semi")
        for v in (line.sooner, line.reference)
    ]
    sides = line.sooner.selection(), line.reference.selection()
    interval = sample_efficiency_interval(pl.concat(rows), *sides, column=NORMALIZED, resamples=data.resamples)
    row = interval.table.row(0, named=True)
    low, high = ("never" if row[name] is None else format_steps(row[name]) for name in CI95)
    between = "" if row["reached"] is None else f" [{low}, {high}]"
    step = "no step" if row["step"] is None else format_steps(row["step"])
    sentence = (
        f"{line.sooner.style.label} reaches the best of {line.reference.style.label} at {step}{between} "
        f"of {line.reference.style.label}'s {format_steps(row['last_step'])} timesteps."
    )
    return sentence, interval.notes


def _rmsprop(data: ReportData) -> Content:
    rows = data.table.filter(pl.col("optimizer") == RMSPROP)
    table, notes = data.iqm(rows)
    caption = (
        f"The same with RMSprop and the Huber loss: interquartile mean over {_counted(rows)}, with "
        "95 % stratified bootstrap intervals."
    )
    return aggregates.draw_iqm_curves(table, n=data.label_actions, title="RMSprop, Huber loss"), caption, notes


def _profiles(data: ReportData) -> Content:
    assert data.scale is not None
    finals, missing = final_scores(data.normalized, NORMALIZED)
    top = float(max(MIN_TOP, min(MAX_TOP, finals[NORMALIZED].drop_nulls().to_numpy().max())))
    thresholds = [*np.linspace(0, 1, 41), *np.geomspace(1, top, 60)[1:]]
    table, notes = performance_profile(finals, thresholds, column=NORMALIZED, resamples=data.resamples)
    caption = (
        f"Performance profiles over {_counted(data.main)}: the share of runs whose {data.scale.word} score, the mean "
        "of the last three evaluations, is above a value. Shaded: 95 % stratified bootstrap intervals, each for its "
        "own value. Dashed: with the mean-expansion layer."
    )
    figure = aggregates.performance_profiles(table, n=data.label_actions, word=data.scale.word)
    return figure, caption, (data.scale.note, *missing, *notes)


def _by_game(
    column: str, draw: Callable[[pl.DataFrame, SeriesStyle, SeriesStyle], Figure], caption: str
) -> Callable[[ReportData], Content]:
    """A figure of the pair's means over training in every game; the caption has their names."""

    def content(data: ReportData) -> Content:
        assert data.pair is not None  # or the figure was refused
        reference, layered = (variant.style for variant in data.pair)
        table, notes = data.differences(column)
        if column == "overestimation" and (others := table.filter(pl.col("mean_y") <= 0)["env"].to_list()):
            notes = (
                *notes,
                f"{reference.label} does not overestimate in {', '.join(others)}: bars there are no reductions.",
            )
        return draw(table, reference, layered), caption.format(reference=reference.label, layered=layered.label), notes

    return content


def _score_change(data: ReportData) -> Content:
    assert data.pair is not None
    assert data.scale is not None
    reference, layered = (variant.style for variant in data.pair)
    table, notes = data.differences(NORMALIZED)
    caption = (
        f"Change of the {data.scale.word} score, averaged over training, from {reference.label} to {layered.label}. "
        "The scale is logarithmic beyond ±0.1."
    )
    return bars.score_change(table, reference, layered, data.scale.word), caption, (data.scale.note, *notes)


def _sensitivity(data: ReportData) -> Content:
    if data.scale is not None:
        auc, notes = run_auc(data.normalize(data.sweep), NORMALIZED)
        figure = curves.sensitivity_by_game(auc.rename({NORMALIZED: "value"}), data.scale.word)
        caption = f"{data.scale.word} AUC against k. Shaded: one standard deviation over seeds."
        return figure, caption[0].upper() + caption[1:], (data.scale.note, *notes)
    by_k, notes = data.by_k("score")
    lines = mean_intervals(data.sweep, ["k", "step"], "score", resamples=data.resamples)
    caption = f"{_sweep_name(data)}: AUC against k, and learning curves. Shaded: 95 % intervals over seeds."
    return curves.sensitivity(by_k, lines), caption, notes


def _against_k(column: str) -> FigureKind:
    def content(data: ReportData) -> Content:
        table, notes = data.by_k(column)
        text = column.replace("_", " ")
        caption = f"{_sweep_name(data)}: {text} against k. Shaded: 95 % intervals over seeds."
        return curves.against_k(table, column), caption, notes

    return FigureKind(content, (ONE_ENV, SEVERAL_K, has_column(column)))


def _learning_curves(data: ReportData) -> Content:
    rows, notes = _few_lines(data)
    smoothing = games.SMOOTHING if rows["step"].n_unique() >= SMOOTH_FROM else 1
    caption = "Evaluation scores along training, means over seeds"
    caption += f", smoothed with a moving average of {smoothing}." if smoothing > 1 else "."
    bands = None
    if smoothing == 1 and len(data.envs) <= MAX_BANDED:
        by = ["env", "algorithm", "k", "step"]
        bands = mean_intervals(rows, by, "score", resamples=data.resamples)
        caption += " Shaded: 95 % intervals over seeds."
    return games.learning_curves(rows, smoothing=smoothing, bands=bands, n=data.label_actions), caption, notes


def _overestimation(data: ReportData) -> Content:
    rows, notes = _few_lines(data)
    rows = rows.filter(pl.col("step") > 0)  # values before training mean nothing
    pair = [] if data.pair is None else [v.algorithm for v in data.pair]
    of_pair = rows.filter(pl.col("algorithm").is_in(pair))  # those that the layer is about, as in the paper
    rows = of_pair if of_pair["overestimation"].is_not_null().any() else rows
    each_seed, most = games.overestimation_drawn(rows)
    caption = f"Overestimation along training, means over seeds{'; translucent: single seeds' * each_seed}."
    if most > games.CAP:
        caption += f" Values above {games.CAP:g} are drawn there."
    return games.overestimation_curves(rows, n=data.label_actions), caption, notes


def _few_lines(data: ReportData) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The runs whose lines one panel can hold: of many k, the paper's choice."""
    if len(data.variants) <= MAX_LINES:
        return data.main, ()
    shown = curves.curves_shown(data.sweep)
    shown = [k for k in shown if k == 0] + [k for k in shown if k > 0][: MAX_LINES - 1]
    swept = LearnerName.parse(data.swept).without_settings
    names = [v.algorithm for v in data.variants if v.name.without_settings == swept]
    left = len(data.ks) - len(shown)
    kept = data.main.filter(~pl.col("algorithm").is_in(names) | pl.col("k").is_in(shown))
    return kept, (f"{left} of {len(data.ks)} k are not drawn here: too many lines",) if left else ()


def _sweep_name(data: ReportData) -> str:
    """The environment of the sweep over k, and its other settings and run where there are several: one is shown."""
    name = LearnerName.parse(data.swept)
    return ", ".join([data.envs[0], *name.details])


def _counted(rows: pl.DataFrame) -> str:
    """57 games with 5 seeds."""
    return f"{pluralize(rows['env'].n_unique(), 'game')} with {seed_count(rows)}"


FIGURES: dict[str, FigureKind] = {
    "iqm": FigureKind(_iqm, (SCALE, SEVERAL_ENVS)),
    "performance-profile": FigureKind(_profiles, (SCALE, SEVERAL_ENVS, FINAL)),
    "auc-change": FigureKind(_score_change, (SCALE, SEVERAL_ENVS, PAIR)),
    "overestimation-reduction": FigureKind(
        _by_game(
            "overestimation",
            bars.overestimation_reduction,
            "Reduction of the overestimation from {reference} to {layered}, in % of {reference}'s. Above "
            "100 %, values are underestimated.",
        ),
        (SEVERAL_ENVS, PAIR, has_column("overestimation")),
    ),
    "action-gap-increase": FigureKind(
        _by_game(
            "relative_action_gap",
            bars.action_gap_increase,
            "Increase of the relative action gap from {reference} to {layered}.",
        ),
        (SEVERAL_ENVS, PAIR, has_column("relative_action_gap")),
    ),
    "sensitivity": FigureKind(_sensitivity, (SEVERAL_K, SCALE_OR_ONE_ENV, ONE_PANEL)),
    "settings-map": FigureKind(swept_settings.content, (TWO_SETTINGS,), every_setting=True),
    "overestimation-against-k": _against_k("overestimation"),
    "action-gap-against-k": _against_k("relative_action_gap"),
    "iqm-rmsprop": FigureKind(_rmsprop, (ATARI, WITH_RMSPROP), every_setting=True),
    action_sets.FIGURE: FigureKind(action_sets.content, (ACTION_SETS,), every_setting=True),
    "learning-curves": FigureKind(_learning_curves),
    "overestimation-curves": FigureKind(_overestimation, (has_column("overestimation"),)),
    "geometry": FigureKind(lambda _: (geometry(), GEOMETRY, ()), every_setting=True),
}
