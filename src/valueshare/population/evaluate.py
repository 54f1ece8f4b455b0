"""Evaluation: how well the agents play, on environments and random numbers of their own.

Every agent has E environments side by side. By episodes, each of them plays its share to the end
and then stands still: an agent's score is over exactly its N episodes, and short ones are not
favoured because they finish first. By timesteps, each plays its share of steps, and the episode
that the end cuts off is discarded. An agent without a finished episode has no score.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from valueshare.envs.base import Environments, EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.learning.losses import select_action_values
from valueshare.learning.randomness import integers, stream_key, uniform
from valueshare.population.act import acting_taus, epsilon_greedy, stack_frames
from valueshare.population.execution.buffers import StagingBuffer
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all
from valueshare.population.loop import OnStep
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, torch_dtype
from valueshare.population.store import training_reward

Floats = NDArray[np.float64]


class Scores(NamedTuple):
    """Of each agent, [P]; NaN where no episode finished."""

    score: Floats  # mean return of finished episodes, undiscounted and unscaled
    episodes: NDArray[np.int64]
    overestimation: Floats  # mean over an episode's steps, then over episodes


class Evaluator(NamedTuple):
    """The environments of an evaluation, and the device's side: tensors that never move, and the steps over them."""

    environments: Environments
    observation: StagingBuffer  # [P, E, ...]  the newest frame of stacks
    first: StagingBuffer | None  # [P, E]  of stacks: whether the frame is an episode's first
    action: StagingBuffer  # [P, E]
    value: StagingBuffer  # [P, E]  of the action, or of the best one
    counter: torch.Tensor  # []  of the random streams
    play: GraphedStep  # observation -> action, value; counts, and shifts stacks
    best: GraphedStep  # observation -> value


def eval_env_count(settings: TrainingSettings) -> int:
    """E: environments per agent; no more than it has episodes to play."""
    return min(settings.eval_envs, settings.eval_episodes or settings.eval_envs)


def make_evaluator(population: Population, state: State, environments: Environments, *, compiled: bool) -> Evaluator:
    """The steps of evaluation; on CUDA they are captured here."""
    settings, keys, env = population.settings, population.keys, population.env
    count, device = eval_env_count(settings), population.device
    shape = (population.size, count)
    observation = StagingBuffer((*shape, *env.observation_shape), torch_dtype(env.observation_dtype), device)
    first = StagingBuffer(shape, torch.bool, device) if env.stack else None
    action = StagingBuffer(shape, torch.int64, device)
    value = StagingBuffer(shape, torch.float32, device)
    counter = torch.zeros((), dtype=torch.int64, device=device)

    obs = observation.tensor  # what agents see: that, or a stack of frames
    if env.stack:
        obs = torch.zeros((*shape, *env.network_shape), dtype=obs.dtype, device=device)

    @torch.no_grad()
    def action_values(now: torch.Tensor) -> torch.Tensor:
        tau = acting_taus(keys.evaluation_quantiles, counter, count, population.algorithm.quantile_counts)
        return population.q_values(state.online, now, tau)  # [P, E, A]

    def current() -> torch.Tensor:
        return obs if first is None else stack_frames(obs, observation.tensor, first.tensor)

    def play() -> None:
        now = current()
        q = action_values(now)
        draws = uniform(keys.evaluation, counter, count)
        choices = integers(keys.evaluation_action, counter, count, env.actions)
        action.tensor.copy_(epsilon_greedy(q, settings.eval_epsilon, draws, choices))
        value.tensor.copy_(select_action_values(q, action.tensor))
        if first is not None:
            obs.copy_(now)
        counter.add_(1)

    def best() -> None:
        value.tensor.copy_(action_values(current()).amax(-1))

    steps = [GraphedStep(function, device, compiled=compiled) for function in (play, best)]
    capture_all(steps, device)
    return Evaluator(environments, observation, first, action, value, counter, *steps)


def evaluate(population: Population, evaluator: Evaluator, step: int, on_step: OnStep) -> Scores:
    """Let every agent play as it is after `step` steps; `on_step` gets that number at every evaluation step."""
    settings, environments = population.settings, evaluator.environments
    shape = (population.size, eval_env_count(settings))
    stream = f"evaluation-environment/{step}"
    seeds = np.array([stream_key(s, f"{stream}/{e}") for s in population.seeds for e in range(shape[1])])
    observation = environments.reset(seeds)
    evaluator.counter.fill_(first_counter(step))
    tally = Tally(shape, population.agents["discount"].to_numpy()[:, None])
    left = _shares(settings, shape)
    first = np.ones(shape, np.bool_)
    while (active := left > 0).any():
        on_step(step)
        _show(evaluator, observation, first)
        evaluator.play()
        actions, values = evaluator.action.get(), evaluator.value.get()
        environments.send(actions.reshape(-1), active.reshape(-1))
        tally.values += np.where(active, values, 0.0)
        result = environments.receive()
        observation = result.observation
        reward = result.reward.reshape(shape)
        scaled = training_reward(settings, torch.from_numpy(reward.astype(np.float64))).numpy()
        tally.step(reward, scaled, active)
        terminated, truncated = result.terminated.reshape(shape), result.truncated.reshape(shape)
        if truncated.any():
            _show(evaluator, result.final_observation, np.zeros(shape, np.bool_))
            evaluator.best()
            tally.bootstrap(evaluator.value.get(), truncated)
        first = ended = terminated | truncated
        tally.end(ended)
        left -= ended if settings.eval_episodes else active
    return tally.scores()


def first_counter(step: int) -> int:
    """The counter of the random streams at the first step of the evaluation after `step` steps.

    It fits into a signed 64-bit number, and no two evaluations share a counter. Steps below 2^32
    have 2^31 counters each, from 0 on; later ones, up to 10^12, have 2^23 each, from -2^63 on
    (2^23·10^12 < 2^63). A longer evaluation continues into the counters of the steps that follow,
    so it would have to last 8 million steps for every training step until the next evaluation to meet it.
    """
    if step < 2**32:
        return step << 31
    return -(2**63) + (step - 2**32 << 23)


def _show(evaluator: Evaluator, observation: NDArray[Any], first: NDArray[np.bool_]) -> None:
    evaluator.observation.put(observation.reshape(evaluator.observation.array.shape))
    if evaluator.first is not None:
        evaluator.first.put(first)


class Tally:
    """Running sums of the episodes under way and of those finished, [P, E] each.

    Overestimation needs no history. The sum over an episode's steps of its discounted returns is
    sum_s r_s·w_s with w_s = 1 + γ + ... + γ^s, because r_s counts γ^(s-t) in the return of each
    step t <= s; and a value V beyond the last step T-1 adds V·γ·w_(T-1) in the same way.
    """

    def __init__(self, shape: tuple[int, int], discount: Floats) -> None:
        self.discount = discount  # [P, 1]
        zeros = (np.zeros(shape) for _ in range(7))
        self.score, self.values, self.returns, self.weight, self.length, *done = zeros
        self.scores_done, self.over_done = done
        self.episodes = np.zeros(shape, np.int64)

    def step(self, reward: NDArray[Any], training_reward: NDArray[Any], active: NDArray[Any]) -> None:
        self.weight = np.where(active, self.discount * self.weight + 1, self.weight)
        self.returns += np.where(active, training_reward * self.weight, 0.0)
        self.score += np.where(active, reward, 0.0)
        self.length += active

    def bootstrap(self, value: NDArray[Any], truncated: NDArray[Any]) -> None:
        self.returns += np.where(truncated, value * self.discount * self.weight, 0.0)

    def end(self, ended: NDArray[Any]) -> None:
        self.scores_done[ended] += self.score[ended]
        self.over_done[ended] += (self.values - self.returns)[ended] / self.length[ended]
        self.episodes += ended
        for running in (self.score, self.values, self.returns, self.weight, self.length):
            running[ended] = 0.0

    def scores(self) -> Scores:
        episodes = self.episodes.sum(1)
        count = np.where(episodes > 0, episodes, np.nan)
        return Scores(self.scores_done.sum(1) / count, episodes, self.over_done.sum(1) / count)


def check_evaluation(settings: TrainingSettings, env: EnvironmentSpec) -> None:
    """Refuse evaluations that might never end, or that cannot be shared out evenly."""
    if settings.eval_episodes and settings.eval_episode_limit is None and env.episode_limit is None:
        raise InvalidInput(
            f"{env.name} has no episode limit, so an episode may never end: set eval_episode_limit, or evaluate by "
            "eval_timesteps"
        )
    count = eval_env_count(settings)
    if settings.eval_timesteps % count:
        raise InvalidInput(
            f"eval_timesteps = {settings.eval_timesteps} is no multiple of eval_envs = {count}: make it one, so that "
            "all environments of an agent play equally long"
        )


def _shares(settings: TrainingSettings, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Episodes, or timesteps, that each of an agent's environments has to play, [P, E]."""
    total, count = settings.eval_episodes or settings.eval_timesteps, shape[1]
    share = total // count + (np.arange(count) < total % count)
    return np.broadcast_to(share, shape).astype(np.int64)
