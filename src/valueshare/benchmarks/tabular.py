"""The gridworld sweep at the paper's scale, a NumPy learner, and the gridworld alone, in one run."""

import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
from numba import njit

from valueshare.benchmarks.numpy_learner import completed_episodes
from valueshare.benchmarks.output import Output, Row
from valueshare.cores import available_cores
from valueshare.experiments.tabular import study_mdp
from valueshare.experiments.tabular_designs import gridworld_studies
from valueshare.splitmix import bits, randint, uniform
from valueshare.tabular.kernels import LANES, Ints, Table, start_state
from valueshare.tabular.mdp import FiniteMDP
from valueshare.tabular.sweep import kernel_table, sweep

NUMPY_RUNS = 40
WALK_STEPS = 2_000_000  # of each thread
RANDOM_ACTIONS = "random actions without learning"


def run(as_json: bool = False) -> None:
    study = gridworld_studies("paper")[0]
    mdp = study_mdp(study)
    sweep(mdp, steps=1)  # compiles
    limit = walk_rate(mdp)
    began = time.perf_counter()
    table = sweep(
        mdp,
        study.algorithm,
        study.k,
        study.step_size,
        study.seeds,
        study.steps,
        record_at=study.record_steps,
        progress=not as_json,
    )
    rate = study.timesteps / (time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = peak / (1e6 if sys.platform == "darwin" else 1e3)  # MB

    k, step_size = 3.2, study.step_size[37]
    began = time.perf_counter()
    episodes = [completed_episodes(k, step_size, seed, study.steps, study.step_reward) for seed in range(NUMPY_RUNS)]
    numpy_rate = NUMPY_RUNS * study.steps / (time.perf_counter() - began)
    chosen = (pl.col("k") == k) & (pl.col("step_size") == step_size)
    same = table.filter(chosen & (pl.col("step") == study.steps))["episodes"].to_numpy()

    output = Output("tabular", "timesteps", as_json=as_json)
    output.say(
        f"{available_cores()} threads; {study.timesteps:,} timesteps of the sweep, {NUMPY_RUNS * study.steps:,} of the "
        f"NumPy learner; peak memory {memory:,.0f} MB; episodes at k = 3.2, step size 0.1"
    )
    output.add(Row(RANDOM_ACTIONS, 1e3 / limit, limit))
    note = f"{_mean_and_error(same)} episodes, {rate / numpy_rate:,.0f} x the NumPy learner"
    output.add(Row("valueshare.sweep", 1e3 / rate, rate, RANDOM_ACTIONS, rate / limit, note))
    note = f"{_mean_and_error(episodes)} episodes"
    output.add(
        Row("NumPy learner, one process", 1e3 / numpy_rate, numpy_rate, RANDOM_ACTIONS, numpy_rate / limit, note)
    )
    output.end()


def walk_rate(mdp: FiniteMDP) -> float:
    """Timesteps per second of uniformly random actions on all cores: the cost of the environment alone."""
    table, threads = kernel_table(mdp), available_cores()
    _walk(table, 1, 1)  # compiles
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        for walked in [pool.submit(_walk, table, seed, WALK_STEPS // LANES) for seed in range(threads)]:
            walked.result()
        return threads * (WALK_STEPS // LANES * LANES) / (time.perf_counter() - began)


@njit(nogil=True)
def _walk(table: Table, seed: int, steps: int) -> Ints:
    """The states that `LANES` walks of uniformly random actions end in."""
    next_state, cumulative, terminal = table.state, table.cumulative, table.terminal
    actions, successors = next_state.shape[1], next_state.shape[2]
    state = np.zeros(LANES, np.int64)
    for i in range(LANES):
        state[i] = start_state(table, np.uint64(i), 0)
    for step in range(1, steps + 1):
        for i in range(LANES):
            key = np.uint64(seed * LANES + i)
            s = state[i]
            a = randint(bits(key, 2 * step) >> np.uint64(32), actions)
            point, j = uniform(key, 2 * step + 1), 0
            for m in range(successors - 1):
                j += point >= cumulative[s, a, m]
            s2 = next_state[s, a, j]
            state[i] = start_state(table, key, step) if terminal[s2] else s2
    return state


def _mean_and_error(values: "np.ndarray | list[int]") -> str:
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"
