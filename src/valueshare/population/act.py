"""Choosing actions: epsilon-greedy, with a coin and a random action of each agent's own streams."""

import torch
from torch import Tensor

from valueshare.learning.algorithms import Samples
from valueshare.learning.randomness import integers, uniform
from valueshare.learning.schedules import linear
from valueshare.population.state import Population, State


@torch.no_grad()
def act(population: Population, state: State, observation: Tensor) -> Tensor:
    """The actions of this step. Shapes: observation [P, ...] -> [P] int64."""
    own, keys, t = population.own, population.keys, state.step
    tau = acting_taus(keys.acting_quantiles, t, 1, population.algorithm.samples)
    q = population.q_values(state.online, observation.unsqueeze(1), tau)  # [P, 1, A]
    epsilon = linear(own.epsilon_start, own.epsilon_end, own.epsilon_steps, t)  # [P]
    coins = uniform(keys.explore, t, 1)
    choices = integers(keys.action, t, 1, q.shape[-1])
    return epsilon_greedy(q, epsilon.unsqueeze(-1), coins, choices).squeeze(-1)


def epsilon_greedy(q: Tensor, epsilon: Tensor | float, coins: Tensor, choices: Tensor) -> Tensor:
    """The action of `choices` where the coin falls below epsilon, else the best one.

    Among equal values the first. Shapes: q [..., A], the others [...] -> [...].
    """
    return torch.where(coins < epsilon, choices, q.argmax(-1))


def acting_taus(keys: Tensor, counter: Tensor, lanes: int, samples: Samples) -> Tensor | None:
    """Quantiles to act by, [P, lanes, K]; None for algorithms that have none."""
    if samples.act == 0:
        return None
    return uniform(keys, counter, lanes * samples.act).reshape(-1, lanes, samples.act)
