"""Runs in which two settings were swept: their grid as a map, and the best value of one for each value of the other."""

from dataclasses import replace
from typing import NamedTuple

import polars as pl
from matplotlib.figure import Figure

from valueshare.analysis.learner_names import LearnerName, rename_learners
from valueshare.analysis.run_values import at_shared_steps, run_auc, with_divergence
from valueshare.analysis.scales import NORMALIZED
from valueshare.analysis.tidy import AGENT_SETTINGS, RUN_COLUMNS, VARIANT
from valueshare.analysis.tuned import ChosenPair, best_settings, tuned_pair, tuned_scores
from valueshare.report.data import ReportData, cached_with_data
from valueshare.report.figures.heat_map import SettingsMap, settings_maps
from valueshare.report.figures.series import game
from valueshare.report.figures.variants import Variant
from valueshare.text import plain_numbers, pluralize

MAX_MAPS = 12  # in one figure
MAX_VALUES = 40  # of one setting: more are not a grid, or none that can be read
CAPTION = (
    "Mean score (AUC) of every combination of two swept settings. Outlined: the best of each value of the first "
    "setting, over all of these seeds. A cross: some agents diverged, and the combination is not a candidate. Hatched: "
    "no score. Where the colour bar ends in an arrow, lower scores have its last colour."
)


class Grid(NamedTuple):
    """The runs of one algorithm on one environment, where exactly two settings were swept."""

    env: str
    algorithm: str
    algorithms: tuple[str, ...]  # whose runs they are: the algorithm, and the same without the layer if it is its k = 0
    settings: tuple[str, str]  # k first, if it is one of them
    runs: pl.DataFrame  # a row per run: both settings, seed, score (its AUC), diverged
    score: str  # the meaning of the score

    @property
    def title(self) -> str:
        return f"{game(self.env)}, {LearnerName.parse(self.algorithm).label(None)}"

    @property
    def names(self) -> tuple[str, str]:
        """The two settings in words."""
        first, second = (name.replace("_", " ") for name in self.settings)
        return first, second


class HeldOutChoice(NamedTuple):
    """The second setting, chosen for each value of the first on half of the seeds and scored on the other half."""

    grid: Grid
    table: pl.DataFrame  # of `tuned_scores`: a row per value of the first setting
    pair: ChosenPair | None  # None where the first setting is not k, or has one value


@cached_with_data
def find_grids(data: ReportData) -> list[Grid]:
    """A grid for every environment and algorithm in which exactly two of k and the agents' settings vary."""
    grids = [
        _grid(data, env_rows["env"][0], algorithm, env_rows)
        for env_rows in _with_base(data).partition_by("env")
        for algorithm in env_rows["base"].unique().sort()
    ]
    return sorted((grid for grid in grids if grid is not None), key=lambda grid: (grid.env, grid.algorithm))


def _grid(data: ReportData, env: str, algorithm: str, rows: pl.DataFrame) -> Grid | None:
    rows = rows.with_columns(k="k_number")
    kept, algorithms = rows.filter(pl.col("base") == algorithm), [algorithm]
    without_layer = str(LearnerName.parse(algorithm).without_layer)
    if algorithm != without_layer and not (kept["k"] == 0).any():  # the same without the layer is its k = 0
        kept = pl.concat([rows.filter((pl.col("base") == without_layer) & (pl.col("k") == 0)), kept])
        algorithms.append(without_layer)
    known = {name: pl.col(name).cast(pl.Float64) for name in ("k", *AGENT_SETTINGS) if name in kept.columns}
    counts = kept.select(value.filter(value.is_finite()).n_unique() for value in known.values()).row(0)
    swept = [name for name, count in zip(known, counts, strict=True) if count > 1]
    if len(swept) != 2 or max(counts) > MAX_VALUES or kept["optimizer"].drop_nulls().n_unique() > 1:
        return None
    kept = kept.filter(pl.all_horizontal(known[name].is_finite() for name in swept))
    column, scored = ("score", data.main) if data.scale is None else (NORMALIZED, data.normalized)
    identity = [name for name in RUN_COLUMNS if name in kept.columns]
    scored, wanted = scored.with_columns(k="k_number"), kept.select(identity).unique()
    evaluations = scored.join(wanted, on=identity, how="semi", nulls_equal=True)
    values = with_divergence(run_auc(at_shared_steps(evaluations), column).table, evaluations)
    runs = values.select(*(pl.col(name).cast(pl.Float64) for name in swept), "seed", "diverged", score=column)
    return Grid(env, algorithm, tuple(algorithms), (swept[0], swept[1]), runs.sort(*swept, "seed"), data.auc_name)


@cached_with_data
def at_best_setting(data: ReportData) -> tuple[ReportData, tuple[str, ...]]:
    """The results with each grid reduced to the best second setting of each first one; and notes."""
    rows, notes = _with_base(data), list[str]()
    for grid in find_grids(data):
        best, (first, second) = best_settings(grid.runs, *grid.settings), grid.names
        in_grid = (pl.col("env") == grid.env) & pl.col("base").is_in(grid.algorithms)
        columns = ["k_number" if name == "k" else name for name in grid.settings]
        kept = rows.filter(in_grid).join(best, left_on=columns, right_on=grid.settings, how="semi")
        if grid.settings[0] == "k":  # one learner for each k again: it needs no setting in its name
            kept = kept.with_columns(algorithm="base")
        rows = pl.concat([rows.filter(~in_grid), kept])
        notes.append(f"figures of {grid.title} show each {first} at its best {second} over all seeds")
        if left_out := sorted(set(grid.runs[grid.settings[0]]) - set(best[grid.settings[0]])):
            values = ", ".join(plain_numbers(left_out))
            why = f"at every {second} a run diverged or has no score"
            notes.append(f"figures of {grid.title} leave out {first} = {values}: {why}")
    return replace(data, table=rows.drop("base"), full_data=data), tuple(notes)


def _with_base(data: ReportData) -> pl.DataFrame:
    """The runs of a report, with the name of their algorithm without settings."""
    return data.main.with_columns(base=rename_learners(data.main, lambda name: name.without_settings))


def settings_map(grid: Grid) -> SettingsMap:
    """The grid as a figure draws it."""
    best = best_settings(grid.runs, *grid.settings).with_columns(best=pl.lit(True))
    means = grid.runs.group_by(grid.settings).agg(pl.col("score").mean().alias("mean"), pl.col("diverged").sum())
    cells = means.join(best, on=grid.settings, how="left").with_columns(pl.col("best").fill_null(False))
    return SettingsMap(grid.title, grid.settings, cells.sort(grid.settings), f"mean {grid.score}")


def content(data: ReportData) -> tuple[Figure, str, tuple[str, ...]]:
    """Figure, caption and notes: a map for every environment and algorithm with two swept settings, up to twelve."""
    grids = find_grids(data)
    left = len(grids) - MAX_MAPS
    notes = [f"{pluralize(left, 'map')} of swept settings not drawn: too many for one figure"] if left > 0 else []
    for grid in grids:
        counts = grid.runs.group_by(grid.settings).len()["len"].to_list()
        if min(counts) < max(counts):
            notes.append(f"{grid.title}: combinations of settings have {min(counts)} to {max(counts)} runs")
        if missing := grid.runs["score"].null_count():
            notes.append(f"{grid.title}: {pluralize(missing, 'run')} without a score, whose settings are not chosen")
    return settings_maps([settings_map(grid) for grid in grids[:MAX_MAPS]]), CAPTION, tuple(notes)


def has_scores(data: ReportData) -> bool:
    """Whether two settings were swept somewhere, and a run there has a score."""
    return any(grid.runs["score"].is_not_null().any() for grid in find_grids(data))


@cached_with_data
def find_tuned(data: ReportData) -> list[HeldOutChoice]:
    """The choices of every grid."""
    choices = []
    for grid in find_grids(data):
        first, second = grid.settings
        pair = tuned_pair(grid.runs, second, resamples=data.resamples) if first == "k" else None
        choices.append(HeldOutChoice(grid, tuned_scores(grid.runs, first, second, resamples=data.resamples), pair))
    return choices


def tuned_variants(data: ReportData) -> list[Variant]:
    """The best and the smallest value of the first grid's first setting, each at its best second setting."""
    if not (choices := find_tuned(data)):
        return []
    grid, table = choices[0].grid, choices[0].table.drop_nulls("best")
    best = table[1:].sort("mean_at_best", descending=True, maintain_order=True)[:1]
    rows = _with_base(data).filter(pl.col("env") == grid.env, pl.col("base").is_in(grid.algorithms))
    shown = list[Variant]()
    for row in pl.concat([best, table[:1]]).to_dicts():
        values = row[grid.settings[0]], row["best"]
        columns = ("k_number" if name == "k" else name for name in grid.settings)
        at = (pl.col(column).cast(pl.Float64) == value for column, value in zip(columns, values, strict=True))
        key = rows.filter(*at).select(VARIANT).row(0)
        shown += [variant for variant in data.variants if (variant.algorithm, variant.k) == key]
    return shown
