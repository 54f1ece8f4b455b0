"""The training loop: act, step the environments, update the target network, learn, store.

`SerialExecutor` is the plain form: all agents as one batch, one thread, no copies between devices. It trains on a CPU,
and every faster executor in `execution/` has the same three methods and returns the same numbers.

Steps count from 0, so that replay holds t transitions at step t; docs/settings.md counts from 1. The environments run
while the agents learn: the action of a step is chosen before its update. The target network is copied before the update
of the same step, as in PFRL and the authors' code.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch

from valueshare.envs.base import Environments
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.envs.step_arrays import StepArrays, step_fields
from valueshare.population.act import act, prefetched_exploration, stack_frames
from valueshare.population.compilation import compiled_if
from valueshare.population.learn import copy_weights, learn, update_target
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, with_delayed_actor
from valueshare.population.store import StepTensors, store
from valueshare.replay import transitions

OnStep = Callable[[int], None]


class Executor(Protocol):
    """Runs the loop for all agents of a population."""

    def reset(self, seeds: Sequence[int]) -> None:
        """Start new episodes everywhere, one seed per agent."""

    def run(self, steps: range, on_step: OnStep, episodes: TrainingEpisodes | None) -> None:
        """Train for these steps. `on_step` gets the number of every step, in the calling thread.

        After an exception from `on_step` the state is inconsistent: load the last checkpoint.
        """

    def close(self) -> None:
        """Free the environments."""


def run_updates(
    settings: TrainingSettings,
    t: int,
    update_target: Callable[[], None],
    sync_actor: Callable[[], None],
    learn: Callable[[], None],
) -> None:
    """The updates that are due at step t, target network first."""
    if settings.updates_target_at(t):
        update_target()
    if settings.learns_at(t):
        sync_actor()
        for _ in range(settings.gradient_steps):
            learn()


class SerialExecutor:
    """The plain executor."""

    def __init__(
        self, population: Population, state: State, environments: Environments, *, compiled: bool = False
    ) -> None:
        self.population, self.state, self.environments = population, state, environments
        self.actor = with_delayed_actor(state) if population.settings.delayed_actor else state
        fields = step_fields(population.env, population.size)
        self._arrays = StepArrays(*(np.zeros(field.shape, field.dtype) for field in fields))
        action = np.zeros(population.size, np.int64)
        arrays = (*self._arrays, action)
        self._step = StepTensors(*(torch.from_numpy(array) for array in arrays))  # same memory
        self._obs = self._step.observation  # the network's input: that, or a stack of frames
        if population.env.stack:
            shape = (population.size, *population.env.network_shape)
            self._obs = torch.zeros(shape, dtype=self._obs.dtype)
        # Random numbers are drawn in blocks, except by compiled code, which fuses them.
        self._exploration = (lambda: None) if compiled else prefetched_exploration(population, state.step)
        self.act = compiled_if(compiled, self._choose_actions)
        self.store = compiled_if(compiled, self._add_to_replay)
        self.update_target = compiled_if(compiled, partial(update_target, population, state))
        self.learn = compiled_if(compiled, partial(learn, population, state))

    def reset(self, seeds: Sequence[int]) -> None:
        np.copyto(self._arrays.observation, self.environments.reset(seeds))
        self._arrays.ended.fill(True)  # so that a stack of frames starts with the first one
        transitions.begin_episodes(self.state.replay, self._step.observation)
        self._sync_actor()

    def run(self, steps: range, on_step: OnStep, episodes: TrainingEpisodes | None) -> None:
        for t in steps:
            on_step(t)
            self.state.step.fill_(t)
            self.act()
            self.environments.send(self._step.action.numpy())
            self.update(t)
            result = self.environments.receive()
            self._arrays.fill(result)
            self.store()
            if episodes is not None:
                episodes.step(slice(None), result)
        if steps:
            self.state.step.fill_(steps.stop)

    def update(self, t: int) -> None:
        """The updates that are due at step t."""
        run_updates(self.population.settings, t, self.update_target, self._sync_actor, self.learn)

    def close(self) -> None:
        self.environments.close()

    def _choose_actions(self) -> None:
        step = self._step
        if self.population.env.stack:
            self._obs.copy_(stack_frames(self._obs, step.observation, step.ended))
        step.action.copy_(act(self.population, self.actor, self._obs, self._exploration()))

    def _add_to_replay(self) -> None:
        population = self.population
        discount = population.hyperparameters["discount"]
        store(self.state.replay, self._step, discount, population.settings)

    def _sync_actor(self) -> None:
        """Copy the online weights to those that act; without `delayed_actor` they are the same tensors."""
        copy_weights(self.state.online.parameters, self.actor.online.parameters)
