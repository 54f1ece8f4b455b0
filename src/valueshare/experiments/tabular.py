"""Running tabular studies: their sweeps as tidy tables, and comparisons of k."""

import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from valueshare.analysis.intervals import mean_intervals
from valueshare.analysis.tidy import CI95
from valueshare.analysis.tuned import INCREASE_RESAMPLES, tuned_increase
from valueshare.errors import InvalidInput
from valueshare.experiments.tabular_designs import GRIDWORLD, TabularStudy, several_action_sets
from valueshare.progress_bar import shown_progress
from valueshare.runs.launcher_options import LauncherOptions, Shard
from valueshare.schema import validate_as
from valueshare.tabular.mdp import FiniteMDP, copied_actions, gridworld
from valueshare.tabular.sweep import sweep

CURVE_POINTS = 60
TASK_STEP_SIZES = 16  # of a cluster's task: tenths of a second for the paper's figure


@dataclass(frozen=True)
class TabularResult:
    """The results of studies that differ in their environment alone.

    Every table has the column `step_reward`, and `actions` if the studies differ in it.
    """

    studies: tuple[TabularStudy, ...]
    runs: pl.DataFrame  # one row per run and regime
    norms: pl.DataFrame  # one row per study, k and step: each k at its best step size
    figure: pl.DataFrame  # step size chosen and scored on all seeds
    held_out: pl.DataFrame  # each half of the seeds scored at what the other half chose
    seconds: float  # of the sweeps in `runs`; without compilation, except that of a cluster's workers

    @property
    def timesteps(self) -> int:
        return sum(study.timesteps for study in self.studies)


def study_mdp(study: TabularStudy) -> FiniteMDP:
    """The environment of a study."""
    if study.env != GRIDWORLD:
        mdp = FiniteMDP.from_gymnasium(study.env, discount=study.discount)
    else:
        mdp = gridworld(step_reward=study.step_reward, discount=study.discount)
    return copied_actions(mdp, study.action_copies)


def study_columns(studies: Sequence[TabularStudy], study: TabularStudy, mdp: FiniteMDP) -> list[pl.Expr]:
    """The columns in which the studies of a figure differ."""
    columns = [pl.lit(study.gridworld_reward, pl.Float64).alias("step_reward")]
    if several_action_sets(studies):
        columns.append(pl.lit(mdp.actions, pl.Int64).alias("actions"))
    return columns


class Cell(NamedTuple):
    """Every combination of some k and step sizes of a study, with all seeds."""

    study: int  # its number
    k: tuple[float, ...]
    step_sizes: tuple[float, ...]


def sweep_studies(
    studies: Sequence[TabularStudy], *, progress: bool, launcher: LauncherOptions
) -> tuple[pl.DataFrame, float]:
    """The sweeps of all studies, or the shard's rows of them; and the seconds they took.

    They are without compilation here, and with that of the workers on a cluster.
    """
    mdps = [study_mdp(study) for study in studies]  # an unknown environment is refused here
    cells = shard_cells(studies, launcher.selected_shard)
    if launcher.launcher == "ray":
        began = time.perf_counter()
        tables = _on_cluster(studies, cells, progress, launcher)
    else:
        for mdp in {mdp.actions: mdp for mdp in mdps}.values():
            sweep(mdp, studies[0].algorithm, steps=1)  # compiles, so that it is not measured
        began = time.perf_counter()
        tables = [
            _sweep(studies[cell.study], mdps[cell.study], cell.k, cell.step_sizes, progress=progress) for cell in cells
        ]
    seconds = time.perf_counter() - began
    if launcher.selected_shard is None:
        for table in tables:
            _refuse_divergence(table)
    columns = [study_columns(studies, study, mdp) for study, mdp in zip(studies, mdps, strict=True)]
    named = [table.with_columns(columns[cell.study]) for table, cell in zip(tables, cells, strict=True)]
    return pl.concat(named), seconds


def summarize(studies: Sequence[TabularStudy], runs: pl.DataFrame, seconds: float) -> TabularResult:
    """The results of studies, from all of their runs: step sizes are chosen, and the chosen runs are followed again."""
    norms, figure, held_out = [], [], []
    if runs.height != sum(study.rows for study in studies):
        raise ValueError("its runs are not those of its studies")
    for study in studies:
        mdp = study_mdp(study)  # one at a time: each may need much of the memory
        columns = study_columns(studies, study, mdp)
        table = runs.filter(pl.col(column.meta.output_name()).eq_missing(column) for column in columns)
        keys = table.select("k", "step_size", "seed", "step")
        if not study.rows == table.height == keys.n_unique() or set(table["step"]) != set(study.record_steps):
            raise ValueError("its runs are not those of its studies")
        _refuse_divergence(table)
        measured = table.rename({_COLUMNS[study.measured]: "score"})
        chosen = tuned_increase(measured)
        figure.append(chosen.with_columns(columns))
        held_out.append(tuned_increase(measured, held_out=True).with_columns(columns))
        norms.append(_norms(study, mdp, chosen).with_columns(columns))
    return TabularResult(tuple(studies), runs, pl.concat(norms), pl.concat(figure), pl.concat(held_out), seconds)


def _refuse_divergence(runs: pl.DataFrame) -> None:
    """Refuse the runs of a study without a step size to choose at the end: at each of them some runs diverged."""
    last = runs.filter(pl.col("step") == pl.col("step").max())
    if last.select(pl.col("diverged").any().over("k", "step_size").all()).item():
        raise InvalidInput(f"every run diverged within {last['step'][0]:,} timesteps: write a smaller `step_size`")


def shard_cells(studies: Sequence[TabularStudy], shard: Shard | None) -> list[Cell]:
    """One shard of the grids of all studies, concatenated; every pair of k and step size is in one shard."""
    grid = [
        (number, k, step_size) for number, study in enumerate(studies) for k in study.k for step_size in study.step_size
    ]
    if shard is not None:
        if shard.of > len(grid):
            raise InvalidInput(
                f"`shard = {shard}`: there are {len(grid):,} pairs of k and step size; write at most as many shards"
            )
        first, last = (len(grid) * end // shard.of for end in (shard.number - 1, shard.number))
        grid = grid[first:last]
    rows = [
        (number, k, tuple(step_size for *_, step_size in group))
        for (number, k), group in groupby(grid, key=lambda cell: cell[:2])
    ]
    return [  # one cell for all k with the same step sizes
        Cell(number, tuple(k for _, k, _ in group), step_sizes)
        for (number, step_sizes), group in groupby(rows, key=lambda row: (row[0], row[2]))
    ]


def sweep_rows(text: str) -> bytes:
    """Sweep some k and step sizes of a study on a worker of a cluster; the rows as Parquet."""
    values = json.loads(text)
    study = validate_as(values["study"], TabularStudy)
    table = _sweep(study, study_mdp(study), values["k"], values["step_sizes"], threads=int(values["threads"]))
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def cell_timesteps(studies: Sequence[TabularStudy], cells: Sequence[Cell]) -> int:
    """Timesteps of all runs of these cells."""
    return sum(
        len(cell.k) * len(cell.step_sizes) * studies[cell.study].seeds * studies[cell.study].steps for cell in cells
    )


def _on_cluster(
    studies: Sequence[TabularStudy], cells: Sequence[Cell], progress: bool, launcher: LauncherOptions
) -> list[pl.DataFrame]:
    """One table per cell, from tasks of one k and a few step sizes each."""
    from valueshare.runs.workers.cluster import map_on_cluster

    threads = max(1, launcher.ray_cpus)
    tasks = [
        (number, Cell(cell.study, (k,), cell.step_sizes[first : first + TASK_STEP_SIZES]))
        for number, cell in enumerate(cells)
        for k in cell.k
        for first in range(0, len(cell.step_sizes), TASK_STEP_SIZES)
    ]
    texts = [
        json.dumps({**cell._asdict(), "study": asdict(studies[cell.study]), "threads": threads}) for _, cell in tasks
    ]
    with shown_progress(cell_timesteps(studies, cells), progress) as advance:
        results = map_on_cluster(
            launcher, sweep_rows, texts, lambda task: advance(cell_timesteps(studies, [tasks[task][1]]))
        )
    tables = [pl.read_parquet(result) for result in results]
    return [
        pl.concat([table for table, (cell_number, _) in zip(tables, tasks, strict=True) if cell_number == number])
        for number in range(len(cells))
    ]


_COLUMNS = {"episodes": "episodes", "reward": "reward_sum"}


def _sweep(
    study: TabularStudy, mdp: FiniteMDP, k: Sequence[float], step_sizes: Sequence[float], **options: Any
) -> pl.DataFrame:
    """The runs of some k and step sizes, at the study's regimes unless `options` of the sweep say otherwise."""
    rule: dict[str, Any] = {"epsilon": study.epsilon, "step_size_power": study.step_size_power}
    options = {"record_at": study.record_steps, **options}
    return sweep(mdp, study.algorithm, k, step_sizes, study.seeds, study.steps, **rule, **options)


def _norms(study: TabularStudy, mdp: FiniteMDP, chosen: pl.DataFrame) -> pl.DataFrame:
    """Norms and value errors along learning, each k at the step size that was best at the end."""
    record_steps = np.unique(np.linspace(0, study.steps, CURVE_POINTS + 1).astype(int)).tolist()
    best = chosen.filter(pl.col("regime") == pl.col("regime").max())
    tables = [
        _sweep(study, mdp, [k], [step_size], record_at=record_steps)
        for k, step_size in best.select("k", "best_step_size").iter_rows()
        if step_size is not None
    ]
    by, norms, errors = ("k", "step_size", "step"), ("norm_q", "norm_u", "norm_z"), ("value_error", "value_rmse")
    runs = pl.concat(tables)
    means = runs.group_by(by, maintain_order=True).agg(
        pl.col("diverged").sum().alias("diverged_runs"), pl.col(*norms, *errors).mean()
    )
    for name in norms:
        bounds = {end: f"{name}_{end}" for end in CI95}
        intervals = mean_intervals(runs, by, name, resamples=INCREASE_RESAMPLES)
        named = intervals.rename(bounds).select(*by, *bounds.values())
        means = means.join(named, on=by, how="left", maintain_order="left")
    return means
