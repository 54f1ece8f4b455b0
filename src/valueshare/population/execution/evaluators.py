"""Evaluation environments on the host: the agents' steps are captured on CUDA, and results pass through the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.envs.base import Environments
from valueshare.learning.losses import select_action_values
from valueshare.learning.randomness import integers, uniform
from valueshare.population.act import acting_taus, epsilon_greedy, stack_frames
from valueshare.population.evaluate import EpisodeStats, StepOutcome, eval_env_count
from valueshare.population.execution.buffers import StagingBuffer
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all
from valueshare.population.state import Population, State, torch_dtype


class HostEvaluator:
    """Plays in environments on the host, one step at a time. A step is added to the stats while the next one runs."""

    steps_per_check = 1

    def __init__(self, population: Population, state: State, environments: Environments, *, compiled: bool) -> None:
        env, device = population.env, population.device
        self.environments = environments
        shape = (population.size, eval_env_count(population.settings))
        self.stats = EpisodeStats(population.settings, torch.tensor(population.agents["discount"].to_numpy()))
        self._uncounted: tuple[StepOutcome, Tensor] | None = None  # the last step, and which environments it was of
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self._observation = StagingBuffer((*shape, *env.observation_shape), torch_dtype(env.observation_dtype), device)
        self._first = StagingBuffer(shape, torch.bool, device) if env.stack else None  # frames that start an episode
        self._action = StagingBuffer(shape, torch.int64, device)
        self._value = StagingBuffer(shape, torch.float32, device)
        self._final_value = StagingBuffer(shape, torch.float32, device)
        obs = self._observation.tensor  # the agents' input: that, or a stack of frames
        if env.stack:
            obs = torch.zeros((*shape, *env.network_shape), dtype=obs.dtype, device=device)
        choose, best_value = make_eval_policy(population, state, self.counter)

        def current() -> Tensor:
            return obs if self._first is None else stack_frames(obs, self._observation.tensor, self._first.tensor)

        def play() -> None:
            now = current()
            choose(now, self._action.tensor, self._value.tensor)
            if env.stack:
                obs.copy_(now)

        def value_final_observation() -> None:
            self._final_value.tensor.copy_(best_value(current()))

        self._play = GraphedStep(play, device, compiled=compiled)
        self._value_final_observation = GraphedStep(value_final_observation, device, compiled=compiled)
        capture_all([self._play, self._value_final_observation], device)

    def reset(self, seeds: NDArray[np.int64], counter: int) -> None:
        self.counter.fill_(counter)
        self._uncounted = None  # of an evaluation that was interrupted
        self._set_observation(self.environments.reset(seeds), first=np.True_)

    def step(self) -> None:
        self._play()
        actions, value = self._action.get(), self._value.get()
        self.environments.send(actions.reshape(-1), self.stats.active.numpy().reshape(-1))
        self._count()
        result = self.environments.receive()
        terminated, truncated = result.terminated.reshape(value.shape), result.truncated.reshape(value.shape)
        if truncated.any():
            self._set_observation(result.final_observation, first=np.False_)
            self._value_final_observation()
            self._final_value.get()
        self._set_observation(result.observation, first=terminated | truncated)
        arrays = value, result.reward.reshape(value.shape), terminated, truncated, self._final_value.array
        outcome = StepOutcome(*map(torch.tensor, arrays))  # copies
        self._uncounted = outcome, self.stats.advance(outcome.terminated | outcome.truncated)
        if not self.stats.remaining.any():
            self._count()

    def _count(self) -> None:
        """Add the last step to the stats, once."""
        if self._uncounted is not None:
            self.stats.accumulate(*self._uncounted)
            self._uncounted = None

    def _set_observation(self, observation: NDArray[Any], first: NDArray[np.bool_] | np.bool_) -> None:
        self._observation.put(observation.reshape(self._observation.array.shape))
        if self._first is not None:
            self._first.put(np.broadcast_to(first, self._first.array.shape))


def make_eval_policy(
    population: Population, state: State, counter: Tensor
) -> tuple[Callable[[Tensor, Tensor, Tensor], None], Callable[[Tensor], Tensor]]:
    """Two functions of what every agent sees, [P, E, ...].

    The first chooses actions by `eval_epsilon`, writes them and their values into tensors [P, E], and counts; the
    second returns the values of the best actions, [P, E].
    """
    settings, keys, count = population.settings, population.keys, eval_env_count(population.settings)

    @torch.no_grad()
    def action_values(obs: Tensor) -> Tensor:
        tau = acting_taus(keys.evaluation_quantiles, counter, count, population.quantile_counts)
        return population.q_values(state.online, obs, tau)  # [P, E, A]

    def choose(obs: Tensor, action: Tensor, value: Tensor) -> None:
        q = action_values(obs)
        if settings.eval_epsilon == 0:  # no random number is drawn for nothing: they cost as much as the network
            action.copy_(q.argmax(-1))
        else:
            uniforms = uniform(keys.evaluation, counter, count)
            random_actions = integers(keys.evaluation_action, counter, count, population.env.actions)
            action.copy_(epsilon_greedy(q, uniforms < settings.eval_epsilon, random_actions))
        value.copy_(select_action_values(q, action))
        counter.add_(1)

    def best_value(obs: Tensor) -> Tensor:
        return action_values(obs).amax(-1)

    return choose, best_value
