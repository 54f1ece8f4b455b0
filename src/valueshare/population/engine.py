"""An engine: a population with its environments, its executor, and its evaluation."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.envs import make_environments
from valueshare.envs.base import Environments
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.errors import InvalidInput
from valueshare.population.evaluate import Player, check_evaluation, copies, make_player
from valueshare.population.execution.cuda_driver import can_wait
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.grouped import make_grouped
from valueshare.population.loop import Executor, Loop
from valueshare.population.state import Population, State

# Asynchronous groups by default. Of 16 agents on 16 cores four groups were faster than two, and
# eight about as fast as four.
ASYNCHRONOUS_GROUPS = 4
THREADS_PER_GROUP = 4  # of their emulators, at least


class Evaluation(NamedTuple):
    """A player on the device, and the environments it plays."""

    player: Player
    environments: Environments


class Engine(NamedTuple):
    """A population with all that trains it; `evaluation` is None where it only trains."""

    population: Population
    state: State
    executor: Executor
    evaluation: Evaluation | None

    def close(self) -> None:
        """Free the environments; all of them, even if one fails to close."""
        with ExitStack() as stack:
            if self.evaluation is not None:
                stack.callback(self.evaluation.environments.close)
            stack.callback(self.executor.close)


def make_engine(
    population: Population,
    state: State,
    *,
    compiled: bool,
    threads: int | None = None,
    groups: int | None = None,
    evaluates: bool = True,
    processes: bool | None = None,
) -> Engine:
    """`state` is that of a population before its first step; load a checkpoint into it afterwards.

    One group on a CPU is trained by the plain loop. Several `groups` act each at their own speed:
    no agent's random numbers change, and while the environments of one group run, the device works
    for another. Groups share `threads` (None: one per core) evenly; evaluation has all of them,
    because nothing else runs then. `processes` puts each group's environments into a process of its
    own (None: where that is faster).
    """
    settings, size = population.settings, population.size
    asynchronous = can_be_asynchronous(population) if processes is None else processes
    if asynchronous and population.replay_on_host:
        raise InvalidInput("environments in processes need a replay on the device: leave it there")
    threads = available_cores() if threads is None else threads
    if groups is None:
        most = min(size, max(1, threads // THREADS_PER_GROUP), ASYNCHRONOUS_GROUPS)
        groups = most if asynchronous else 1
    if not 1 <= groups <= size:
        raise InvalidInput(f"groups = {groups}: write a number from 1 to {size}, the agents")
    if compiled:
        # All populations compile the same few functions, and PyTorch keeps eight versions of each:
        # drop those of earlier populations.
        torch.compiler.reset()
    names = population.agents["env"].to_list()
    playing = None
    if evaluates:
        rows = np.repeat(names, copies(settings))
        playing = _environments(population, rows, threads, evaluation=True)
    make = _process if asynchronous else _training_environments
    with ExitStack() as on_failure:  # or processes of environments would keep running
        training: list[Environments] = []
        if playing is not None:
            on_failure.callback(playing.close)
            check_evaluation(settings, playing.spec.episode_limit)
        for share in np.array_split(names, groups):
            training.append(make(population, share, max(1, threads // groups)))
            on_failure.callback(training[-1].close)
        executor: Executor
        if groups == 1 and population.device.type == "cpu" and not asynchronous:
            executor = Loop(population, state, training[0], compiled=compiled)
        else:
            executor = GroupExecutor(make_grouped(population, state, training, compiled=compiled))
        evaluation = None
        if playing is not None:
            evaluation = Evaluation(make_player(population, state, compiled=compiled), playing)
        on_failure.pop_all()
    return Engine(population, state, executor, evaluation)


def can_be_asynchronous(population: Population) -> bool:
    """Whether processes of their own make environments faster: emulators, and replay on a GPU."""
    suits = population.env.backend == "ale" and not population.replay_on_host
    return suits and can_wait(population.device)


def _process(population: Population, names: Sequence[str] | NDArray[np.str_], threads: int) -> Environments:
    return EnvironmentProcess(
        [str(name) for name in names], population.env, threads=threads, protocol=population.settings.atari_protocol
    )


def _training_environments(
    population: Population, names: Sequence[str] | NDArray[np.str_], threads: int
) -> Environments:
    return _environments(population, names, threads, evaluation=False)


def _environments(
    population: Population, names: Sequence[str] | NDArray[np.str_], threads: int, *, evaluation: bool
) -> Environments:
    return make_environments(
        [str(name) for name in names],
        len(names),
        backend=population.env.backend,
        threads=threads,
        episode_limit=population.settings.eval_episode_limit if evaluation else None,
        protocol=population.settings.atari_protocol,
        lockstep=not evaluation,
        evaluation=evaluation,
    )
