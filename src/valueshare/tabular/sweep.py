"""A whole grid of tabular learners at once."""

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient, resolve_ks
from valueshare.progress_bar import shown_progress
from valueshare.setting import as_count, as_float
from valueshare.tabular import kernels
from valueshare.tabular.kernels import LANES, RUNNING, Measurements, Rule, Runs, Table
from valueshare.tabular.mdp import FiniteMDP, Floats
from valueshare.tabular.planning import optimal_values
from valueshare.tabular.randomness import run_keys
from valueshare.tabular.rules import ALGORITHMS, check_learners, check_once, check_rows

TASK_TIMESTEPS = 2_000_000  # with few actions: about 40 ms of work, short enough for a live bar and for Ctrl-C
UNROLLED_ACTIONS = 8  # for more, one kernel with loops is as fast, and compiled once for all numbers of actions


def sweep(
    mdp: FiniteMDP,
    algorithm: str = "q-learning",
    k: Coefficient | Sequence[Coefficient] = 0.0,
    step_size: float | Sequence[float] = 0.1,
    seeds: int | Sequence[int] = 1,
    steps: int = 5_000,
    *,
    epsilon: float = 0.1,
    step_size_power: float = 0.0,
    record_at: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> pl.DataFrame:
    """Learn every combination of k, step size and seed for `steps` timesteps, on all cores.

    Returns one row per run and timestep in `record_at` (default: the last): the run (`algorithm, k, step_size, seed`),
    the timestep (`step`), completed `episodes`, their `mean_return` (null if there is none), `reward_sum`, the mean and
    root mean square over states of max_a Q - v* (`value_error`, `value_rmse`), and the mean over states of the norms of
    q, u and z. Once a TD error exceeds 1e100, or a norm overflows, the run has `diverged`: all of these are null.

    k = "n" is the number of actions of the MDP.

    The step size is divided by visits(s, a)^step_size_power; 0 keeps it constant. A run is determined by its own k,
    step size and seed: threads, order and other runs change no bit of it.

        >>> from valueshare import gridworld, sweep
        >>> table = sweep(gridworld(), k=[0, 4], step_size=0.1, seeds=8, steps=1_000)
        >>> table.shape
        (16, 14)
    """
    if not isinstance(mdp, FiniteMDP):
        raise InvalidInput(f"{mdp!r} is not a FiniteMDP: make one, say FiniteMDP.from_gymnasium(id)")
    steps = as_count("steps", steps)
    given = [k] if isinstance(k, str) else np.atleast_1d(np.asarray(k, object)).tolist()
    ks = [as_float("k", value) for value in resolve_ks(given, mdp.actions)]
    step_sizes = [as_float("step_size", value) for value in np.atleast_1d(np.asarray(step_size, object)).tolist()]
    epsilon, step_size_power = as_float("epsilon", epsilon), as_float("step_size_power", step_size_power)
    rows = len(ks) * len(step_sizes) * (1 if record_at is None else len(record_at))
    check_rows(rows * _count(seeds))
    seed_list: Sequence[int] = range(as_count("seeds", seeds)) if isinstance(seeds, int | np.integer) else list(seeds)
    check_learners(algorithm, ks, step_sizes, steps, epsilon, step_size_power)
    record_steps = np.unique(np.asarray([steps] if record_at is None else list(record_at), np.int64))
    check_once("seeds", seed_list)
    for seed in seed_list:
        if not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**63:
            raise InvalidInput(f"seed {seed}: seeds are whole numbers from 0")
    if not len(record_steps):
        raise InvalidInput("record_at is empty: write at least one step")
    if record_steps[0] < 0 or record_steps[-1] > steps:
        raise InvalidInput(f"record_at holds a step outside 0 to {steps}")
    if threads is not None and threads < 1:
        raise InvalidInput(f"`threads = {threads}`: at least 1, or None for all cores")

    k_of = np.repeat(ks, len(step_sizes) * len(seed_list))  # [R]
    step_size_of = np.tile(np.repeat(step_sizes, len(seed_list)), len(ks))  # [R]
    seed_of = np.tile(np.array(seed_list, np.int64), len(ks) * len(step_sizes))  # [R]
    runs = Runs(run_keys(seed_of, k_of, step_size_of), k_of, step_size_of)
    rule = Rule(ALGORITHMS[algorithm], float(epsilon), float(step_size_power))
    measurements = _learn(kernel_table(mdp), runs, rule, record_steps, threads or available_cores(), progress)
    return _tidy(algorithm, runs, seed_of, record_steps, measurements)


def kernel_table(mdp: FiniteMDP) -> Table:
    successors = mdp.successors
    start = np.flatnonzero(mdp.start > 0)
    return Table(
        state=successors.state,
        cumulative=_cumulative(successors.probability),
        reward=np.ascontiguousarray(successors.reward),
        terminal=mdp.terminal,
        start_state=start,
        start_cumulative=_cumulative(mdp.start[start]),
        visitable=np.flatnonzero(mdp.visitable),
        optimal=optimal_values(mdp),
        discount=mdp.discount,
    )


def _cumulative(probability: Floats) -> Floats:
    """Cumulative sums over the last axis that end at exactly 1: a draw above 1 - 1e-9 must not select the padding."""
    sums = np.cumsum(probability, axis=-1)
    total = sums[..., -1:]
    return np.divide(sums, total, out=np.ones_like(sums), where=total > 0)  # terminal rows: 0


def action_length(actions: int) -> tuple[int, ...] | NDArray[np.bool_]:
    """A value whose length is the number of actions: a kernel compiles in that of a tuple, not that of an array."""
    return (0,) * actions if actions <= UNROLLED_ACTIONS else np.zeros(actions, np.bool_)


def empty_measurements(runs: int, rows: int) -> Measurements:
    counts = np.zeros((runs, rows), np.int64)
    return Measurements(np.full(runs, RUNNING, np.int64), counts, *(np.zeros((runs, rows)) for _ in range(7)))


def _learn(
    table: Table, runs: Runs, rule: Rule, record_steps: np.ndarray, threads: int, progress: bool
) -> Measurements:
    """Split the runs into tasks for a pool of threads; the kernel holds no interpreter lock."""
    total = len(runs.key)
    measurements = empty_measurements(total, len(record_steps))
    states, actions, successors = table.state.shape
    task_timesteps = TASK_TIMESTEPS // max(1, actions // UNROLLED_ACTIONS)
    size: int = max(LANES, task_timesteps // max(1, int(record_steps[-1])) // LANES * LANES)

    def learn(first: int) -> int:
        last = min(first + size, total)
        lanes = np.empty((min(LANES, last - first), states, actions))
        lengths = action_length(actions), (0,) * successors
        kernels.learn(table, runs, rule, record_steps, first, last, *lengths, lanes, measurements)
        return last - first

    with shown_progress(total * int(record_steps[-1]), progress) as advance:
        pool = ThreadPoolExecutor(threads)
        try:
            waiting = {pool.submit(learn, first) for first in range(0, total, size)}
            while waiting:
                # Short waits, so that Ctrl-C is handled between tasks.
                done, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                for task in done:
                    advance(task.result() * int(record_steps[-1]))
        finally:
            pool.shutdown(cancel_futures=True)
    return measurements


def _tidy(
    algorithm: str, runs: Runs, seeds: np.ndarray, record_steps: np.ndarray, measurements: Measurements
) -> pl.DataFrame:
    of_run = {"k": runs.k, "step_size": runs.step_size, "seed": seeds, "diverged_at": measurements.diverged_at}
    at_moment = dict(zip(Measurements._fields[1:], measurements[1:], strict=True))
    table = pl.DataFrame(
        {name: np.repeat(values, len(record_steps)) for name, values in of_run.items()}
        | {"step": np.tile(record_steps, len(seeds))}
        | {name: values.ravel() for name, values in at_moment.items()}
    )
    step, diverged_at = pl.col("step"), pl.col("diverged_at")
    # Where k is astronomical, values overflow before a TD error has met them.
    overflowed = ~(pl.col("norm_q") + pl.col("value_rmse")).is_finite()
    measured = ("episodes", "mean_return", *Measurements._fields[3:])
    return (
        table.with_columns(
            algorithm=pl.lit(algorithm),
            mean_return=pl.when(pl.col("episodes") > 0).then(pl.col("return_sum") / pl.col("episodes")),
            diverged=overflowed | ((diverged_at != RUNNING) & (diverged_at <= step)),
        )
        .with_columns(pl.when(~pl.col("diverged")).then(pl.col(measured)))
        .select("algorithm", "k", "step_size", "seed", "step", "diverged", *measured)
    )


def _count(seeds: int | Sequence[int]) -> int:
    if isinstance(seeds, int | np.integer):
        return int(seeds)
    try:
        return len(seeds)
    except OverflowError:  # a range of more than 64 bits
        return 2**63
