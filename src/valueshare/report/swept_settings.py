"""Runs in which two settings were swept: their grid, and the best value of one for each value of the other."""

from typing import NamedTuple

import polars as pl

from valueshare.analysis.held_out import ChosenPair, tuned_pair, tuned_scores
from valueshare.analysis.run_values import run_auc
from valueshare.analysis.scales import NORMALISED
from valueshare.analysis.tidy import AGENT_SETTINGS, RUN
from valueshare.analysis.tuned import best_step_sizes, failed_step_sizes
from valueshare.report.data import ReportData
from valueshare.report.figures.heat_map import SettingsMap
from valueshare.report.figures.series import game
from valueshare.report.figures.style import plain_of, split_settings
from valueshare.text import ALGORITHM_NAMES

MOST_VALUES = 40  # of one setting: more are no grid, or none that can be read
ROLES = ("k", "step_size")  # the names of the two settings in the tables of `analysis.tuned`


class Grid(NamedTuple):
    """The runs of one algorithm on one environment, where exactly two settings were swept."""

    env: str
    algorithm: str
    settings: tuple[str, str]  # k first, if it is one of them
    runs: pl.DataFrame  # a row per run: both settings, seed, score (its AUC), diverged
    score: str  # what the score is

    @property
    def title(self) -> str:
        return f"{game(self.env)}, {ALGORITHM_NAMES.get(self.algorithm, self.algorithm)}"

    def in_roles(self) -> pl.DataFrame:
        """The runs with the two settings in the roles of k and of the step size."""
        return self.runs.rename(dict(zip(self.settings, ROLES, strict=True)))


class HeldOutChoice(NamedTuple):
    """The second setting, chosen for each value of the first on half of the seeds and scored on the other half."""

    grid: Grid
    table: pl.DataFrame  # of `tuned_scores`, with the first setting in the role of k
    pair: ChosenPair | None  # None where the first setting is not k, or has one value


def find_grids(data: ReportData) -> list[Grid]:
    """A grid for every environment and algorithm in which exactly two of k and the agents' settings vary."""
    found = [
        _grid(data, own["env"][0], algorithm, own)
        for own in _with_base(data).partition_by("env")
        for algorithm in own["base"].unique().sort()
    ]
    return sorted((grid for grid in found if grid is not None), key=lambda grid: (grid.env, grid.algorithm))


def _grid(data: ReportData, env: str, algorithm: str, rows: pl.DataFrame) -> Grid | None:
    own = rows.filter(pl.col("base") == algorithm)
    if algorithm != plain_of(algorithm) and not (own["k"] == 0).any():  # the same without the layer is its k = 0
        own = pl.concat([rows.filter((pl.col("base") == plain_of(algorithm)) & (pl.col("k") == 0)), own])
    known = {name: pl.col(name).cast(pl.Float64) for name in ("k", *AGENT_SETTINGS) if name in own.columns}
    counts = own.select(value.filter(value.is_finite()).n_unique() for value in known.values()).row(0)
    swept = [name for name, count in zip(known, counts, strict=True) if count > 1]
    if len(swept) != 2 or max(counts) > MOST_VALUES or own["optimizer"].drop_nulls().n_unique() > 1:
        return None
    own = own.filter(pl.all_horizontal(known[name].is_finite() for name in swept))
    column, scored = ("score", data.main) if data.scale is None else (NORMALISED, data.normalised)
    identity = [name for name in RUN if name in own.columns]
    wanted = scored.join(own.select(identity).unique(), on=identity, how="semi", nulls_equal=True)
    diverged = pl.col("diverged_at").is_not_null().any() if "diverged_at" in wanted.columns else pl.lit(False)
    ends = wanted.group_by(identity).agg(diverged=diverged)
    values = run_auc(wanted, column).table.join(ends, on=identity, nulls_equal=True)
    runs = values.select(*(pl.col(name).cast(pl.Float64) for name in swept), "seed", "diverged", score=column)
    return Grid(env, algorithm, (swept[0], swept[1]), runs.sort(*swept, "seed"), data.auc_name)


def rows_at_best_setting(data: ReportData) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The runs of a report, of each grid only those at the best second setting of each first one; and notes."""
    rows, notes = _with_base(data), list[str]()
    for grid in find_grids(data):
        own = (pl.col("env") == grid.env) & pl.col("base").is_in([grid.algorithm, plain_of(grid.algorithm)])
        best = _best(grid).drop_nulls().rename(dict(zip(ROLES, grid.settings, strict=True)))
        kept = rows.filter(own).join(best, on=grid.settings, how="semi")
        if grid.settings[0] == "k":  # one learner for each k again: it needs no setting in its name
            kept = kept.with_columns(algorithm="base")
        rows = pl.concat([rows.filter(~own), kept])
        first, second = (name.replace("_", " ") for name in grid.settings)
        notes.append(f"curves of {grid.title} are those of each {first} at its best {second} over all seeds")
    return rows.drop("base"), tuple(notes)


def _with_base(data: ReportData) -> pl.DataFrame:
    """The runs of a report, with the name of the algorithm without settings."""
    names = {name: split_settings(name)[0] for name in data.main["algorithm"].unique()}
    return data.main.with_columns(base=pl.col("algorithm").replace_strict(names, return_dtype=pl.String))


def _best(grid: Grid) -> pl.DataFrame:
    """The best second setting of each first one, over all seeds."""
    runs = grid.in_roles()
    return best_step_sizes(runs, failed_step_sizes(runs)).select(ROLES)


def settings_map(grid: Grid) -> SettingsMap:
    """The grid as a figure draws it."""
    best = _best(grid).with_columns(best=pl.lit(True))
    cells = (
        grid.in_roles()
        .group_by(ROLES)
        .agg(pl.col("score").mean().alias("mean"), pl.col("diverged").sum())
        .join(best, on=ROLES, how="left")
        .with_columns(pl.col("best").fill_null(False))
        .sort(ROLES)
        .rename(dict(zip(ROLES, grid.settings, strict=True)))
    )
    return SettingsMap(grid.title, grid.settings, cells, f"mean {grid.score}")


def find_tuned(data: ReportData) -> list[HeldOutChoice]:
    """The choices of every grid."""
    return [tuned(grid, data.resamples) for grid in find_grids(data)]


def tuned(grid: Grid, resamples: int) -> HeldOutChoice:
    """The choices of one grid."""
    runs = grid.in_roles()
    pair = tuned_pair(runs, resamples=resamples) if grid.settings[0] == "k" else None
    return HeldOutChoice(grid, tuned_scores(runs, resamples=resamples), pair)
