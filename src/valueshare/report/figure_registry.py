"""Which figures a table of results allows, each with its caption and what it leaves out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from valueshare.analysis.aggregate import mean_intervals
from valueshare.analysis.comparison import performance_profile
from valueshare.analysis.efficiency import sample_efficiency_interval
from valueshare.analysis.importers.results import Results
from valueshare.analysis.run_values import final_scores, run_auc
from valueshare.analysis.scores import BASELINES, human_normalized
from valueshare.analysis.statistics import RESAMPLES
from valueshare.errors import InvalidInput
from valueshare.report import needs
from valueshare.report.data import RMSPROP, SCORE, Study, study_of
from valueshare.report.figures import aggregates, bars, curves, games
from valueshare.report.figures.geometry import geometry
from valueshare.report.figures.series import millions
from valueshare.report.figures.style import RED, Look, house_style
from valueshare.report.synthetic import is_synthetic
from valueshare.text import how_many

MOST_LINES = 9  # in one panel; of more, the paper's choice of k is shown
MOST_BANDED = 6  # panels with intervals
TOP_LEAST, TOP_MOST = 2.0, 100.0  # human-normalised scores up to which profiles go
SMOOTH_FROM = 50  # evaluations: fewer are drawn as they are


class Drawn(NamedTuple):
    """A figure, what it shows, and what it leaves out."""

    name: str
    figure: Figure
    caption: str
    notes: tuple[str, ...] = ()


class Kind(NamedTuple):
    """A figure that some results allow: why not, or how."""

    lacks: Callable[[Study], str]  # what is missing, or ""
    draw: Callable[[Study], Drawn]


def figures_for(
    results: Results, names: Sequence[str] = (), *, resamples: int = RESAMPLES
) -> dict[str, Figure]:
    """The figures that results allow, by name; all of them, or those asked for."""
    return {drawn.name: drawn.figure for drawn in drawn_from(results, names, resamples=resamples)}


def drawn_from(
    results: Results,
    names: Sequence[str] = (),
    *,
    resamples: int = RESAMPLES,
    study: Study | None = None,
) -> list[Drawn]:
    """The figures with captions and notes; a figure asked for that cannot be drawn is refused."""
    study = study_of(results, resamples) if study is None else study
    for name in names:
        if name not in FIGURES:
            raise InvalidInput(f"there is no figure {name!r}: choose of {', '.join(FIGURES)}")
        if reason := FIGURES[name].lacks(study):
            raise InvalidInput(f"the figure {name} needs {reason}: these results have not")
    chosen = names or [name for name, kind in FIGURES.items() if not kind.lacks(study)]
    drawn = [FIGURES[name].draw(study) for name in dict.fromkeys(chosen)]
    if is_synthetic(results):
        for one in drawn:
            _mark(one.figure)
    return drawn


def not_allowed(study: Study) -> dict[str, str]:
    """The figures that results do not allow, each with what it needs."""
    reasons = {name: kind.lacks(study) for name, kind in FIGURES.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def _mark(figure: Figure) -> None:
    """No one shall take a figure of made-up records for a result."""
    words = "synthetic records: no agent was trained"
    # Under the figure where it is measured when saved, else in its lower corner.
    place = "bottom" if figure.get_layout_engine() is None else "top"
    with house_style():
        figure.text(0.995, 0.002, words, ha="right", va=place, fontsize=6, color=RED)


def _geometry(study: Study) -> Drawn:
    caption = "How the layer turns residuals z into action-values q, in the plane of two actions."
    return Drawn("geometry", geometry(), caption)


def _iqm(study: Study) -> Drawn:
    table, notes = study.curves
    caption = (
        f"Interquartile mean of the human-normalised score over {_counted(study.main)}. Shaded: "
        "95 % stratified bootstrap intervals. Dashed: with the mean-expansion layer. Dotted: "
        "where it reaches the best of the same algorithm without it."
    )
    for line in aggregates.efficiency_lines(table, study.who):
        sentence, more = _sooner(study, line)
        caption, notes = f"{caption} {sentence}", (*notes, *more)
    return Drawn("iqm", aggregates.iqm_curves(table, n=study.n), caption, notes)


def _sooner(study: Study, line: aggregates.Line) -> tuple[str, tuple[str, ...]]:
    """IB-DQN(n) reaches the best of DQN at 12.5M [11M, 14M] of DQN's 50M timesteps; and notes."""
    rows = [
        # Where the curve is drawn: it ends where not all games have come.
        v.rows(study.normalised).join(v.rows(study.curves.table), on="step", how="semi")
        for v in (line.sooner, line.plain)
    ]
    found = sample_efficiency_interval(
        pl.concat(rows),
        line.sooner.named(),
        line.plain.named(),
        column=SCORE,
        resamples=study.resamples,
    )
    row = found.table.row(0, named=True)
    low, high = (
        "never" if row[name] is None else millions(row[name]) for name in ("ci95_low", "ci95_high")
    )
    between = "" if row["reached"] is None else f" [{low}, {high}]"
    step = "no step" if row["step"] is None else millions(row["step"])
    sentence = (
        f"{line.sooner.look.label} reaches the best of {line.plain.look.label} at {step}{between} "
        f"of {line.plain.look.label}'s {millions(row['last_step'])} timesteps."
    )
    return sentence, found.notes


def _rmsprop(study: Study) -> Drawn:
    rows = study.table.filter(pl.col("optimizer") == RMSPROP)
    table, notes = study.iqm(rows)
    caption = (
        f"The same with RMSprop and the Huber loss: interquartile mean over {_counted(rows)}, with "
        "95 % stratified bootstrap intervals."
    )
    figure = aggregates.iqm_curves(table, n=study.n, title="RMSprop, Huber loss")
    return Drawn("iqm-rmsprop", figure, caption, notes)


def _profiles(study: Study) -> Drawn:
    finals, missing = final_scores(study.normalised, SCORE)
    top = float(max(TOP_LEAST, min(TOP_MOST, finals[SCORE].drop_nulls().to_numpy().max())))
    thresholds = [*np.linspace(0, 1, 41), *np.geomspace(1, top, 60)[1:]]
    table, notes = performance_profile(finals, thresholds, column=SCORE, resamples=study.resamples)
    caption = (
        f"Performance profiles over {_counted(study.main)}: the share of runs whose "
        "human-normalised score, the mean of the last three evaluations, is above a value. Shaded: "
        "95 % stratified bootstrap intervals, each for its own value. Dashed: with the "
        "mean-expansion layer."
    )
    figure = aggregates.performance_profiles(table, n=study.n)
    return Drawn("performance-profile", figure, caption, (BASELINES, *missing, *notes))


def _by_game(
    name: str, column: str, draw: Callable[[pl.DataFrame, Look, Look], Figure], caption: str
) -> Callable[[Study], Drawn]:
    """A figure of the pair's means over training in every game; the caption has their names."""

    def drawn(study: Study) -> Drawn:
        assert study.pair is not None  # or the figure was refused
        plain, layered = (variant.look for variant in study.pair)
        human = column == SCORE
        table, notes = study.differences(study.normalised if human else study.main, column)
        words = caption.format(plain=plain.label, layered=layered.label)
        notes = (BASELINES, *notes) if human else notes
        return Drawn(name, draw(table, plain, layered), words, notes)

    return drawn


def _sensitivity(study: Study) -> Drawn:
    own = study.sweep
    if study.atari:
        auc, notes = run_auc(human_normalized(own), SCORE)
        figure = curves.sensitivity_by_game(auc.rename({SCORE: "value"}))
        caption = "Human-normalised AUC against k. Shaded: one standard deviation over seeds."
        return Drawn("sensitivity", figure, caption, (BASELINES, *notes))
    auc, notes = run_auc(own)
    by_k = mean_intervals(auc, ["k"], "score", resamples=study.resamples)
    lines = mean_intervals(own, ["k", "step"], "score", resamples=study.resamples)
    caption = (
        f"{study.envs[0]}: AUC against k, and learning curves. Shaded: 95 % intervals over seeds."
    )
    return Drawn("sensitivity", curves.sensitivity(by_k, lines), caption, notes)


def _against_k(name: str, column: str, draw: Callable[[pl.DataFrame], Figure]) -> Kind:
    def drawn(study: Study) -> Drawn:
        means, notes = run_auc(study.sweep.filter(pl.col("step") > 0), column)
        table = mean_intervals(means, ["k"], column, resamples=study.resamples)
        words = column.replace("_", " ")
        caption = f"{study.envs[0]}: {words} against k. Shaded: 95 % intervals over seeds."
        return Drawn(name, draw(table), caption, notes)

    return Kind(lambda s: needs.one_env(s) or needs.several_k(s) or needs.column(s, column), drawn)


def _learning_curves(study: Study) -> Drawn:
    rows, notes = _few(study)
    points = rows["step"].n_unique()
    smoothing = games.SMOOTHING if points >= SMOOTH_FROM else 1
    caption = "Evaluation scores along training, means over seeds"
    caption += f", smoothed with a moving average of {smoothing}." if smoothing > 1 else "."
    bands = None
    if smoothing == 1 and len(study.envs) <= MOST_BANDED:
        by = ["env", "algorithm", "k", "step"]
        bands = mean_intervals(rows, by, "score", resamples=study.resamples)
        caption += " Shaded: 95 % intervals over seeds."
    figure = games.learning_curves(rows, smoothing=smoothing, bands=bands, n=study.n)
    return Drawn("learning-curves", figure, caption, notes)


def _overestimation(study: Study) -> Drawn:
    rows, notes = _few(study)
    if study.pair is not None:  # those that the layer is about, as in the paper
        rows = rows.filter(pl.col("algorithm").is_in([v.algorithm for v in study.pair]))
    rows = rows.filter(pl.col("step") > 0)  # what values are before training says nothing
    caption = (
        "Overestimation along training, means over seeds; translucent lines, where there are, are "
        f"the seeds. Values above {games.CAP:g} are drawn there."
    )
    figure = games.overestimation_curves(rows, n=study.n)
    return Drawn("overestimation-curves", figure, caption, notes)


def _few(study: Study) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The runs whose lines one panel can hold; of many k, the paper's choice."""
    if len(study.who) <= MOST_LINES:
        return study.main, ()
    shown = curves.curves_shown(study.sweep)
    shown = [k for k in shown if k == 0] + [k for k in shown if k > 0][: MOST_LINES - 1]
    kept = study.main.filter((pl.col("algorithm") != study.swept) | pl.col("k").is_in(shown))
    left = len(study.ks) - len(shown)
    return kept, (f"{left} of {len(study.ks)} k are not drawn here: too many lines",)


def _counted(rows: pl.DataFrame) -> str:
    """57 games, 5 seeds."""
    seeds = rows.group_by("env", "algorithm", "k").agg(pl.col("seed").n_unique())["seed"]
    fewest, most = min(seeds), max(seeds)
    many = how_many(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    return f"{how_many(rows['env'].n_unique(), 'game')} with {many}"


FIGURES: dict[str, Kind] = {
    "iqm": Kind(lambda s: needs.atari(s) or needs.several_envs(s), _iqm),
    "performance-profile": Kind(
        lambda s: needs.atari(s) or needs.several_envs(s) or needs.ended(s), _profiles
    ),
    "auc-change": Kind(
        lambda s: needs.atari(s) or needs.several_envs(s) or needs.both(s),
        _by_game(
            *("auc-change", SCORE, bars.score_change),
            "Change of the human-normalised score, averaged over training, from {plain} to "
            "{layered}. The scale is logarithmic beyond ±0.1.",
        ),
    ),
    "overestimation-reduction": Kind(
        lambda s: needs.several_envs(s) or needs.both(s) or needs.column(s, "overestimation"),
        _by_game(
            *("overestimation-reduction", "overestimation", bars.overestimation_reduction),
            "Reduction of the overestimation from {plain} to {layered}, in % of {plain}'s. Above "
            "100 %, values are underestimated.",
        ),
    ),
    "action-gap-increase": Kind(
        lambda s: needs.several_envs(s) or needs.both(s) or needs.column(s, "relative_action_gap"),
        _by_game(
            *("action-gap-increase", "relative_action_gap", bars.action_gap_increase),
            "Increase of the relative action gap from {plain} to {layered}, clipped at "
            f"{bars.GAP_CLIP:g}.",
        ),
    ),
    "sensitivity": Kind(
        lambda s: needs.several_k(s) or (needs.few_games(s) if s.atari else needs.one_env(s)),
        _sensitivity,
    ),
    "overestimation-against-k": _against_k(
        "overestimation-against-k", "overestimation", curves.overestimation_against_k
    ),
    "action-gap-against-k": _against_k(
        "action-gap-against-k", "relative_action_gap", curves.relative_action_gap_against_k
    ),
    "iqm-rmsprop": Kind(lambda s: needs.atari(s) or needs.with_rmsprop(s), _rmsprop),
    "learning-curves": Kind(needs.no_need, _learning_curves),
    "overestimation-curves": Kind(lambda s: needs.column(s, "overestimation"), _overestimation),
    "geometry": Kind(needs.no_need, _geometry),
}
