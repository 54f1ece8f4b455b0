"""Environments on the device of the agents: actions, observations and rewards never pass through the host.

The environments are a program of JAX, and the agents' steps are graphs of PyTorch. They hand each other memory by
DLPack, which also makes the stream of the one wait for that of the other. The host only launches, so learning
overlaps the environments, as in the plain loop.

JAX may use the memory of a step's result again as soon as no tensor refers to it. So the result is copied, and the
actions come last: the next program of JAX waits for them, and thereby for the copies.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.envs.gymnax import GymnaxEnvironments
from valueshare.envs.step_arrays import step_fields
from valueshare.population.act import act
from valueshare.population.evaluate import EpisodeStats, StepOutcome, eval_env_count
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all
from valueshare.population.execution.evaluators import make_eval_policy
from valueshare.population.learn import copy_weights, learn, update_target
from valueshare.population.loop import OnStep, run_updates
from valueshare.population.state import Population, State, flat, load_, torch_dtype, with_delayed_actor
from valueshare.population.store import StepTensors, store
from valueshare.replay import transitions


class DeviceExecutor:
    """Runs the training loop with environments on the device. On CUDA its steps are captured."""

    def __init__(
        self, population: Population, state: State, environments: GymnaxEnvironments, *, compiled: bool
    ) -> None:
        self.population, self.state, self.environments = population, state, environments
        self.actor = with_delayed_actor(state) if population.settings.delayed_actor else state
        device, size = population.device, population.size

        def zeros(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(shape or (size,), dtype=dtype, device=device)

        fields = (zeros(torch_dtype(field.dtype), *field.shape) for field in step_fields(population.env, size))
        self._step = StepTensors._make([*fields, zeros(torch.int64)])
        self.sent_action = zeros(torch.int32)  # the actions as JAX takes them
        self._running, self._returns = zeros(torch.float64), zeros(torch.float64)  # of training episodes
        self._finished = zeros(torch.int64)
        graphed = partial(GraphedStep, device=device, compiled=compiled)
        self.act = graphed(self._choose_actions)
        self.store = graphed(self._add_to_replay)
        self.update_target = graphed(partial(update_target, population, state))
        self.learn = graphed(partial(learn, population, state))
        before = {name: tensor.clone() for name, tensor in flat(state).items()}
        capture_all([self.learn, self.update_target, self.act, self.store], device)  # which runs them
        load_(state, before)

    def reset(self, seeds: Sequence[int]) -> None:
        self._step.observation.copy_(_as_tensor(self.environments.reset_on_device(seeds)))
        self._running.zero_()
        transitions.begin_episodes(self.state.replay, self._step.observation)
        self._sync_actor()

    def run(self, steps: range, on_step: OnStep, episodes: TrainingEpisodes | None) -> None:
        for sums in (self._returns, self._finished):
            sums.zero_()
        for t in steps:
            on_step(t)
            self.state.step.fill_(t)
            self.act()
            self.send()
            self.update(t)
            self.receive()
            self.store()
        if steps:
            self.state.step.fill_(steps.stop)
        if self.population.device.type == "cuda":
            torch.cuda.current_stream(self.population.device).synchronize()  # other programs of JAX may follow
        if episodes is not None:
            episodes.return_sum += self._returns.cpu().numpy()
            episodes.episode_count += self._finished.cpu().numpy()

    def update(self, t: int) -> None:
        """The updates that are due at step t."""
        run_updates(self.population.settings, t, self.update_target, self._sync_actor, self.learn)

    def send(self) -> None:
        """Start a step of the environments by `sent_action`."""
        self.environments.send_on_device(_as_jax(self.sent_action))

    def receive(self) -> None:
        """Copy the result of the step."""
        stepped, step = map(_as_tensor, self.environments.receive_on_device()), self._step
        observation, reward, terminated, truncated, final_observation = stepped
        step.observation.copy_(observation)
        step.final_observation.copy_(final_observation)
        step.reward.copy_(reward)
        step.terminated.copy_(terminated)
        torch.logical_or(terminated, truncated, out=step.ended)

    def close(self) -> None:
        self.environments.close()

    def _choose_actions(self) -> None:
        step = self._step
        step.action.copy_(act(self.population, self.actor, step.observation))
        self.sent_action.copy_(step.action)

    def _add_to_replay(self) -> None:
        population, step = self.population, self._step
        store(self.state.replay, step, population.hyperparameters["discount"], population.settings)
        self._running.add_(step.reward)
        self._returns.add_(torch.where(step.ended, self._running, 0.0))
        self._running.masked_fill_(step.ended, 0.0)
        self._finished.add_(step.ended)

    def _sync_actor(self) -> None:
        """Copy the online weights to those that act; without `delayed_actor` they are the same tensors."""
        copy_weights(self.state.online.parameters, self.actor.online.parameters)


class DeviceEvaluator:
    """Plays in environments on the device. The host asks only now and then whether all have finished."""

    steps_per_check = 64

    def __init__(
        self, population: Population, state: State, environments: GymnaxEnvironments, *, compiled: bool
    ) -> None:
        self.environments, device, env = environments, population.device, population.env
        shape = (population.size, eval_env_count(population.settings))
        discount = torch.tensor(population.agents["discount"].to_numpy(), device=device)
        self.stats = EpisodeStats(population.settings, discount)
        self.counter = torch.zeros((), dtype=torch.int64, device=device)

        def zeros(dtype: torch.dtype, *rest: int) -> torch.Tensor:
            return torch.zeros((*shape, *rest), dtype=dtype, device=device)

        self._observation = zeros(torch_dtype(env.observation_dtype), *env.observation_shape)
        self._final_observation = torch.zeros_like(self._observation)
        number, flag = torch.float32, torch.bool
        self._outcome = outcome = StepOutcome(*map(zeros, (number, number, flag, flag, number)))
        self._sent, self._active = zeros(torch.int32), zeros(torch.bool)  # as JAX takes them
        action = zeros(torch.int64)
        choose, best_value = make_eval_policy(population, state, self.counter)

        def play() -> None:
            choose(self._observation, action, outcome.value)
            self._sent.copy_(action)
            self._active.copy_(self.stats.active)

        def count() -> None:
            outcome.final_value.copy_(best_value(self._final_observation))
            self.stats.add(outcome)

        self._play, self._count = (GraphedStep(step, device, compiled=compiled) for step in (play, count))
        capture_all([self._play, self._count], device)

    def reset(self, seeds: NDArray[np.int64], counter: int) -> None:
        self.counter.fill_(counter)
        _copy(self.environments.reset_on_device(seeds), self._observation)

    def step(self) -> None:
        self._play()
        self.environments.send_on_device(_as_jax(self._sent.view(-1)), _as_jax(self._active.view(-1)))
        stepped, outcome = self.environments.receive_on_device(), self._outcome
        _copy(stepped.observation, self._observation)
        _copy(stepped.final_observation, self._final_observation)
        _copy(stepped.reward, outcome.reward)
        _copy(stepped.terminated, outcome.terminated)
        _copy(stepped.truncated, outcome.truncated)
        self._count()


def _copy(array: Any, tensor: torch.Tensor) -> None:
    """The numbers of a JAX array [P·E, ...] into a tensor [P, E, ...]."""
    tensor.copy_(_as_tensor(array).view(tensor.shape))


def _as_tensor(array: Any) -> torch.Tensor:
    """A JAX array as a tensor in the same memory; the current CUDA stream waits for its values."""
    if array.device.platform == "cpu":
        array.block_until_ready()  # a CPU has no streams that could wait
    tensor: torch.Tensor = from_dlpack(array)
    return tensor


def _as_jax(tensor: torch.Tensor) -> Any:
    """A tensor as a JAX array in the same memory; JAX waits for what the current CUDA stream writes there."""
    from jax import dlpack

    return dlpack.from_dlpack(tensor)
