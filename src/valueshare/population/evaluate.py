"""Evaluation: how well the agents play, on environments and random numbers of their own.

Every agent has E environments side by side. By episodes, each of them plays its share to the end
and is then not stepped: an agent's score is over exactly its N episodes, and short ones are not
favoured because they finish first. By timesteps, each plays its share of steps, and the episode
that the end cuts off is discarded. An agent without a finished episode has no score.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.envs.base import Environments, EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.learning.randomness import stream_key
from valueshare.population.loop import OnStep
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population
from valueshare.population.store import training_reward
from valueshare.setting import as_count, as_float

Floats = NDArray[np.float64]


class Scores(NamedTuple):
    """Results of an evaluation, [P]; NaN for agents without a finished episode."""

    score: Floats  # mean return of finished episodes, undiscounted and unscaled
    episodes: NDArray[np.int64]
    overestimation: Floats  # mean over an episode's steps, then over episodes


class Evaluator(Protocol):
    """Steps the environments of an evaluation, with actions of the agents."""

    stats: "EpisodeStats"
    steps_per_check: int  # steps between checks whether all have finished

    @property
    def environments(self) -> Environments: ...

    def reset(self, seeds: NDArray[np.int64], counter: int) -> None:
        """Start new episodes everywhere; `counter` is the RNG counter of the first step."""

    def step(self) -> None:
        """One step of the environments that have not finished, added to the stats."""


def eval_env_count(settings: TrainingSettings) -> int:
    """E: environments per agent, at most one per episode."""
    return min(settings.eval_envs, settings.eval_episodes or settings.eval_envs)


def evaluate(population: Population, evaluator: Evaluator, step: int, on_step: OnStep) -> Scores:
    """Let every agent play, after `step` steps of training; `on_step` gets that number at every evaluation step."""
    stream, count = f"evaluation-environment/{step}", eval_env_count(population.settings)
    seeds = np.array([stream_key(seed, f"{stream}/{e}") for seed in population.seeds for e in range(count)])
    evaluator.stats.reset()
    evaluator.reset(seeds, first_rng_counter(step))
    while evaluator.stats.remaining.any():
        for _ in range(evaluator.steps_per_check):
            on_step(step)
            evaluator.step()
    return evaluator.stats.scores()


def play_seeds(
    population: Population, evaluator: Evaluator, seeds: range, on_step: Callable[[int], object]
) -> tuple[Floats, Floats]:
    """Let every agent play one episode per seed of its environments: returns and overestimations, [P, S] each.

    `eval_episodes` and `eval_envs` of the settings are equal: as many seeds are played at once, each in a separate
    environment. Blocks of seeds begin at multiples of that number, so that the random numbers of a seed's episode do
    not depend on the range. `on_step` gets the number of episodes that have ended, at every step or every few.
    """
    at_once, stats = eval_env_count(population.settings), evaluator.stats
    score, overestimation = (np.zeros((population.size, len(seeds))) for _ in range(2))
    for first in range(seeds.start - seeds.start % at_once, seeds.stop, at_once):
        block = np.arange(first, first + at_once)
        wanted = (block >= seeds.start) & (block < seeds.stop)
        columns = block[wanted] - seeds.start
        stats.reset()
        stats.remaining[:, ~wanted] = 0  # the other environments are not stepped
        evaluator.reset(np.tile(block, population.size), first_rng_counter(first))
        while stats.remaining.any():
            on_step(population.size * int(columns[0]) + int(stats.episodes.sum()))
            for _ in range(evaluator.steps_per_check):
                evaluator.step()
        score[:, columns] = stats.return_sum.cpu().numpy()[:, wanted]
        overestimation[:, columns] = stats.overestimation_sum.cpu().numpy()[:, wanted]
    return score, overestimation


def first_rng_counter(step: int) -> int:
    """The counter of the random streams at which the evaluation after `step` steps begins.

    It fits into a signed 64-bit number, and no two evaluations share a counter. Steps below 2^32
    have 2^31 counters each, from 0 on; later ones, up to 10^12, have 2^23 each, from -2^63 on
    (2^23·10^12 < 2^63). A longer evaluation continues into the counters of the steps that follow,
    so it would have to last 8 million steps for every training step until the next evaluation to meet it.
    """
    if step < 2**32:
        return step << 31
    return -(2**63) + (step - 2**32 << 23)


class StepOutcome(NamedTuple):
    """One step of an evaluation, [P, E] each. Environments that have finished have reward 0 and no ending."""

    value: Tensor  # action-value of the action chosen
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_value: Tensor  # value of the best action in the final observation; used where an episode is truncated


class EpisodeStats:
    """Running sums of the episodes under way and of those finished, [P, E] each, changed in place.

    Overestimation needs no history. The sum over an episode's steps of its discounted returns is
    sum_s r_s·w_s with w_s = 1 + γ + ... + γ^s, because r_s counts γ^(s-t) in the return of each
    step t <= s; and a value V beyond the last step T-1 adds V·γ·w_(T-1) in the same way.
    """

    def __init__(self, settings: TrainingSettings, discount: Tensor) -> None:
        """Discounts [P]; the sums are on their device."""
        self.settings, self.discount = settings, discount.double().unsqueeze(-1)
        total, count = settings.eval_episodes or settings.eval_timesteps, eval_env_count(settings)
        share = total // count + (torch.arange(count, device=discount.device) < total % count)
        self._shares = share.expand(len(discount), count)  # episodes, or timesteps, that each environment has to play
        self.remaining = self._shares.clone()

        def zeros() -> Tensor:
            return torch.zeros_like(self.remaining, dtype=torch.float64)

        self.episode_return, self.q_sum, self.return_to_go_sum = zeros(), zeros(), zeros()
        self.discount_sum, self.length = zeros(), zeros()  # w_s of the last step, and the number of steps
        self.return_sum, self.overestimation_sum = zeros(), zeros()  # sums over finished episodes
        self.episodes = torch.zeros_like(self.remaining)

    @property
    def active(self) -> Tensor:
        """Environments that have not finished, [P, E]."""
        return self.remaining > 0

    def reset(self) -> None:
        self.remaining.copy_(self._shares)
        for sums in (*self._running, self.return_sum, self.overestimation_sum, self.episodes):
            sums.zero_()

    def add(self, step: StepOutcome) -> None:
        """Count a step of the active environments."""
        self.accumulate(step, self.advance(step.terminated | step.truncated))

    def advance(self, ended: Tensor) -> Tensor:
        """Count down what remains after a step, and return which environments were active in it: [P, E] each."""
        active = self.active
        self.remaining.sub_((ended if self.settings.eval_episodes else active).to(self.remaining.dtype))
        return active

    def accumulate(self, step: StepOutcome, active: Tensor) -> None:
        """Add a step to the sums, with the environments that were active in it."""
        self.q_sum.add_(torch.where(active, step.value.double(), 0.0))
        self.discount_sum.copy_(torch.where(active, self.discount * self.discount_sum + 1, self.discount_sum))
        reward = step.reward.double()
        self.return_to_go_sum.add_(torch.where(active, training_reward(self.settings, reward) * self.discount_sum, 0.0))
        self.episode_return.add_(torch.where(active, reward, 0.0))
        self.length.add_(active)
        beyond = step.final_value.double() * self.discount * self.discount_sum
        self.return_to_go_sum.add_(torch.where(step.truncated, beyond, 0.0))
        ended = step.terminated | step.truncated
        self.return_sum.add_(torch.where(ended, self.episode_return, 0.0))
        self.overestimation_sum.add_(torch.where(ended, (self.q_sum - self.return_to_go_sum) / self.length, 0.0))
        self.episodes.add_(ended)
        for sums in self._running:
            sums.masked_fill_(ended, 0.0)

    def scores(self) -> Scores:
        sums = self.episodes, self.return_sum, self.overestimation_sum
        episodes, score, over = (per_env.cpu().numpy().sum(1) for per_env in sums)
        count = np.where(episodes > 0, episodes, np.nan)
        return Scores(score / count, episodes, over / count)

    @property
    def _running(self) -> tuple[Tensor, ...]:
        return self.episode_return, self.q_sum, self.return_to_go_sum, self.discount_sum, self.length


def check_episode_options(epsilon: float | None, episode_limit: int | None) -> None:
    """Refuse a wrong exploration or limit of episodes after training; None: that of the run's evaluations."""
    if epsilon is not None and not 0 <= as_float("epsilon", epsilon) <= 1:
        raise InvalidInput(f"`epsilon = {epsilon}`: write a number from 0 to 1")
    if episode_limit is not None:
        as_count("episode_limit", episode_limit)


def most_steps(settings: TrainingSettings, env: EnvironmentSpec, episode_limit: int | None) -> int:
    """The limit of an episode after training: that given, or that of the run's evaluations, or the environment's."""
    if episode_limit is not None:
        return as_count("episode_limit", episode_limit)
    limit = settings.eval_episode_limit or env.episode_limit
    if limit is None:
        raise InvalidInput(f"{env.name} has no episode limit, so an episode may never end: write `episode_limit = N`")
    return limit


def check_evaluation(settings: TrainingSettings, env: EnvironmentSpec) -> None:
    """Refuse evaluations that might never end, or that cannot be shared out evenly."""
    if settings.eval_episodes and settings.eval_episode_limit is None and env.episode_limit is None:
        raise InvalidInput(
            f"{env.name} has no episode limit, so an episode may never end: set `eval_episode_limit`, or "
            "evaluate by `eval_timesteps`"
        )
    count = eval_env_count(settings)
    if settings.eval_timesteps % count:
        raise InvalidInput(
            f"`eval_timesteps = {settings.eval_timesteps}` is not a multiple of `eval_envs = {count}`: make it one, so "
            "that all environments of an agent play equally long"
        )
