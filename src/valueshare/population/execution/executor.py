"""The executor of a population in groups.

The path of a group through step t is

    actions are there -> its environments step -> choose the next actions -> store the step

independent of the other groups. The update of step t is of all agents: it comes when every group
has stored step t - 1 and chosen its actions of step t, and before any of them chooses those of step
t + 1. So a slow environment rarely delays other groups, and the order of arrival changes no number.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import torch
from numpy.typing import NDArray

from valueshare.envs.backends import BACKENDS
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.execution.asynchronous import run_asynchronously
from valueshare.population.execution.cuda_streams import Streams
from valueshare.population.execution.groups import Group, GroupedPopulation, reset_group, shared_memory
from valueshare.population.execution.threaded import run_threaded
from valueshare.population.learn import copy_weights
from valueshare.population.loop import OnStep
from valueshare.replay.cursor_history import start_history


class GroupExecutor:
    """Runs the training loop in groups: asynchronously, or in a thread per group."""

    def __init__(self, grouped: GroupedPopulation) -> None:
        self.grouped = grouped

    @property
    def is_asynchronous(self) -> bool:
        """Whether environments run in separate processes."""
        groups = self.grouped.groups
        return all(shared_memory(group.environments) is not None for group in groups)

    def reset(self, seeds: Sequence[int]) -> None:
        _, state, groups, learner = self.grouped
        copy_weights(learner.online, learner.actor)
        observations = self._reset_environments(seeds)
        for group, observation in zip(groups, observations, strict=True):
            reset_group(group, state.step, observation)

    def run(self, steps: range, on_step: OnStep, episodes: TrainingEpisodes | None) -> None:
        state, learner = self.grouped.state, self.grouped.learner
        if not steps:
            return
        streams = Streams(self.grouped)
        state.step.fill_(steps.start)
        if learner.history is not None:
            start_history(learner.history, state.replay, steps.start)
        streams.begin()
        run = run_asynchronously if self.is_asynchronous else run_threaded
        try:
            run(self.grouped, steps, streams, on_step, episodes)
        except BaseException:
            with suppress(RuntimeError):  # a failure of the device may be the reason
                streams.end(wait=True)
            raise
        streams.end()
        state.step.fill_(steps.stop)

    def close(self) -> None:
        """Free the environments; all of them, even if one fails to close."""
        with ExitStack() as stack:
            for group in self.grouped.groups:
                stack.callback(group.close)

    def _reset_environments(self, seeds: Sequence[int]) -> list[NDArray[Any]]:
        """The first observations of every group; emulators load their games in parallel."""
        population, groups = self.grouped.population, self.grouped.groups

        def reset(group: Group) -> NDArray[Any]:
            return group.environments.reset(seeds[group.agents])

        if self.is_asynchronous and population.device.type == "cuda":
            torch.cuda.synchronize()  # or earlier actions might reach the new episodes
        if not BACKENDS[population.env.backend].is_slow:
            return [reset(group) for group in groups]
        with ThreadPoolExecutor(len(groups)) as pool:
            return list(pool.map(reset, groups))
