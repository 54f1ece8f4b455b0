"""The gridworld sweep at the paper's scale against a plain NumPy learner, in one run."""

import resource
import sys
import time

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from valueshare.benchmarks import versions_line
from valueshare.benchmarks.plain_learner import completed_episodes
from valueshare.experiments.studies import gridworld_studies
from valueshare.experiments.tabular import study_mdp
from valueshare.tabular.sweep import sweep

PLAIN_RUNS = 40


def run() -> None:
    study = gridworld_studies("paper")[0]
    mdp = study_mdp(study)
    sweep(mdp, steps=1)  # compiles
    began = time.perf_counter()
    table = sweep(
        mdp,
        study.algorithm,
        study.k,
        study.step_sizes,
        study.seeds,
        study.steps,
        record_at=study.record_steps,
        progress=True,
    )
    fast = study.timesteps / (time.perf_counter() - began)
    memory = _peak_megabytes()

    k, step_size = 3.2, study.step_sizes[37]
    began = time.perf_counter()
    plain = [completed_episodes(k, step_size, seed, study.steps, study.step_reward) for seed in range(PLAIN_RUNS)]
    slow = PLAIN_RUNS * study.steps / (time.perf_counter() - began)
    chosen = (pl.col("k") == k) & (pl.col("step_size") == step_size)
    same = table.filter(chosen & (pl.col("step") == study.steps))["episodes"].to_numpy()

    shown = Table("learner", "timesteps/s", "ratio", "episodes at k=3.2, step size 0.1")
    shown.add_row("plain NumPy, one process", f"{slow:,.0f}", "1", _mean_and_error(plain))
    shown.add_row("valueshare.sweep", f"{fast:,.0f}", f"{fast / slow:,.0f}", _mean_and_error(same))
    console = Console()
    console.print(shown)
    console.print(
        f"{study.timesteps:,} timesteps of the sweep, {PLAIN_RUNS * study.steps:,} of the plain "
        f"learner; peak memory {memory:,.0f} MB"
    )
    console.print(versions_line())


def _mean_and_error(values: "np.ndarray | list[int]") -> str:
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
