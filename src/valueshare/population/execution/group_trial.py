"""A trial of numbers of groups: the training loop is timed with each of them, and one is kept.

How fast a number of groups is depends on the game, the network and the machine, and on what else the machine does. The
number without a trial is kept unless another one is faster in every round. All numbers share one learner, whose
compilation takes longest, and one replay; each has environments and captured steps of its own. They are timed in turn,
several times, because the machine's own speed changes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import torch

from valueshare.envs.base import Environments
from valueshare.population.devices import release_memory
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.groups import (
    GroupedPopulation,
    capture_groups,
    group_streams,
    make_groups,
    restoring,
)
from valueshare.population.execution.learner import capture_learner, make_learner
from valueshare.population.loop import Executor, OnStep
from valueshare.population.state import Population, State

FILLED = 128  # steps that are stored before the first update
WARM_UP_UPDATES = 4  # of a number of groups, before it is timed in a round
ROUGH_UPDATES = 16  # whose time says how many are made in so many seconds
ROUNDS = 3
ROUND_SECONDS = 0.5  # that each number of groups is timed in each round


class GroupTrial(NamedTuple):
    """The result of a trial."""

    rounds: Mapping[int, Sequence[float]]  # agent-steps per second in each round, by the number of groups
    default: int  # the number without a trial

    @property
    def rates(self) -> dict[int, float]:
        """The median of the rounds."""
        return {count: median(rates) for count, rates in sorted(self.rounds.items())}

    @property
    def chosen(self) -> int:
        """The number with the highest rate, if it was faster than the default in every round; else the default.

        So noise rarely decides, and the same command mostly has the same number.
        """
        fastest = max(self.rates, key=self.rates.__getitem__)
        if self.default not in self.rounds:
            return fastest
        pairs = zip(self.rounds[fastest], self.rounds[self.default], strict=True)
        return fastest if all(rate > of_default for rate, of_default in pairs) else self.default

    @property
    def summary(self) -> str:
        rates = ", ".join(f"{count}: {rate:,.0f}" for count, rate in self.rates.items())
        why = "no other number was faster in every round" if self.chosen == self.default else "the fastest"
        return f"groups of agents: {self.chosen}, {why} of a trial ({rates} agent-steps/s)"


def try_groups(
    population: Population,
    state: State,
    candidates: Sequence[int],
    make_environments: Callable[[int], Sequence[Environments]],
    *,
    default: int,
    compiled: bool,
    on_step: OnStep = lambda step: None,
) -> tuple[GroupedPopulation, GroupTrial]:
    """The population in the chosen one of these numbers of groups, and the rates of all of them.

    `default` is the number without a trial. `state` is that of a population before its first step, and afterwards too.
    `make_environments` makes the environments of so many groups, in processes; those of the other numbers are closed.
    If this raises, the caller closes all of them.
    """
    with restoring(state):
        learner = make_learner(population, state, compiled=compiled, asynchronous=True)
        capture_learner(learner, population.device, asynchronous=True)
        streams = group_streams(population, max(candidates))  # shared: one number of groups runs at a time
        executors: dict[int, GroupExecutor] = {}
        for count in candidates:
            environments = make_environments(count)
            groups = make_groups(population, state, learner, environments, streams[:count], compiled=compiled)
            capture_groups(groups)
            executors[count] = GroupExecutor(GroupedPopulation(population, state, groups, learner))
        trial = GroupTrial(measured_rates(population, state, executors, on_step), default)
        kept = executors.pop(trial.chosen)
        del environments, groups  # of the last one: nothing may refer to what is given up
        while executors:
            _discard(executors.popitem()[1])
    release_memory(population.device)
    return kept.grouped, trial


def measured_rates(
    population: Population,
    state: State,
    executors: Mapping[int, Executor],
    on_step: OnStep,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, list[float]]:
    """Agent-steps per second of each executor as it trains, in each round.

    They train one after the other in each round, from shortly before the first update on.
    """
    settings, every = population.settings, population.settings.update_interval
    t = max(0, settings.learning_starts - FILLED)
    state.step.fill_(t)
    rates: dict[int, list[float]] = {groups: [] for groups in executors}

    def timed(executor: Executor, count: int) -> float:
        nonlocal t
        _synchronize(population.device)
        began = clock()
        executor.run(range(t, t + count), on_step, None)
        _synchronize(population.device)
        t += count
        return clock() - began

    for _ in range(ROUNDS):
        for groups, executor in executors.items():
            executor.reset(population.seeds)
            timed(executor, max(0, settings.first_update - t) + WARM_UP_UPDATES * every)
            rough = timed(executor, ROUGH_UPDATES * every)
            count = every * max(1, round(ROUND_SECONDS / rough * ROUGH_UPDATES))
            rates[groups].append(population.size * count / timed(executor, count))
    return rates


def _discard(executor: GroupExecutor) -> None:
    """Close the environments of an executor, then give up its graphs: the device is done with both."""
    executor.close()
    _synchronize(executor.grouped.population.device)
    for group in executor.grouped.groups:
        for step in group.graphed_steps:
            step.release()


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
