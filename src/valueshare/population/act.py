"""Acting: epsilon-greedy, with random numbers of each agent's own streams."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.learning.algorithms import QuantileCounts
from valueshare.learning.randomness import integers, uniform
from valueshare.population.state import Population, State

PREFETCHED_DRAWS = 4_096  # random numbers drawn at once on a CPU


class Exploration(NamedTuple):
    """The random draws of epsilon-greedy, [P] each, or [T, P] for several steps."""

    explores: Tensor  # bool: the agent takes a random action
    random_actions: Tensor  # int64


@torch.no_grad()
def act(population: Population, state: State, observation: Tensor, exploration: Exploration | None = None) -> Tensor:
    """The actions of this step; `exploration` is that of the step if it is drawn already.

    Shapes: observation [P, ...] -> [P] int64.
    """
    t = state.step
    tau = acting_taus(population.keys.acting_quantiles, t, 1, population.quantile_counts)
    q = population.q_values(state.online, observation.unsqueeze(1), tau).squeeze(1)  # [P, A]
    explores, random_actions = draw_exploration(population, t) if exploration is None else exploration
    return epsilon_greedy(q, explores, random_actions)


def draw_exploration(population: Population, t: Tensor) -> Exploration:
    """Exploration at step t [], or at steps t [T]. Shapes: [P], or [T, P]."""
    keys, actions, hyperparameters = population.keys, population.env.actions, population.hyperparameters
    start, end = hyperparameters["epsilon_start"], hyperparameters["epsilon_end"]
    epsilon = linear(start, end, hyperparameters["epsilon_steps"], t.unsqueeze(-1))  # [P] or [T, P]
    shape = (*t.shape, population.size)
    counter = t.unsqueeze(-1).expand(shape).flatten()  # [T·P]

    def repeat_over_steps(stream: Tensor) -> Tensor:
        return stream.expand(shape).flatten()

    uniforms = uniform(repeat_over_steps(keys.explore), counter, 1)
    random_actions = integers(repeat_over_steps(keys.action), counter, 1, actions)
    return Exploration(uniforms.reshape(shape) < epsilon, random_actions.reshape(shape))


def prefetched_exploration(population: Population, step: Tensor) -> Callable[[], Exploration]:
    """A function that returns the exploration of the current `step` [], drawn in blocks of steps.

    For a CPU without compilation: there, the operations that make a few random numbers cost as much
    as the network, and hardly more for the numbers of many steps.
    """
    steps = max(1, PREFETCHED_DRAWS // population.size)
    first, block = 0, Exploration(torch.empty(0), torch.empty(0))

    def exploration() -> Exploration:
        nonlocal first, block
        t = int(step)
        if not first <= t < first + len(block.explores):
            first, block = t, draw_exploration(population, torch.arange(t, t + steps))
        return Exploration(*(numbers[t - first] for numbers in block))

    return exploration


def linear(start: Tensor, end: Tensor, steps: Tensor, t: Tensor | int) -> Tensor:
    """Linear interpolation from `start` at t = 0 to `end` at t = steps; constant after that.

    Exactly `start` and `end` at the two ends. Shapes: start, end, steps [P], t [] or [P] -> [P].
    """
    fraction = (t / steps.clamp(min=1)).clamp(0, 1)  # 0 steps: `start` at t = 0, then `end`
    return torch.lerp(start, end, fraction.to(start.dtype))


def epsilon_greedy(q: Tensor, explores: Tensor, random_actions: Tensor) -> Tensor:
    """Random actions where an agent explores, else greedy ones, the first of equal values.

    Shapes: q [..., A], the others [...] -> [...].
    """
    return torch.where(explores, random_actions, q.argmax(-1))


def acting_taus(keys: Tensor, counter: Tensor, batch_size: int, counts: QuantileCounts) -> Tensor | None:
    """Quantiles to act by, [P, B, K]; None for algorithms that have none."""
    if counts.act == 0:
        return None
    return uniform(keys, counter, batch_size * counts.act).reshape(-1, batch_size, counts.act)


def stack_frames(stack: Tensor, frame: Tensor, first: Tensor) -> Tensor:
    """Stacks without their oldest frame and with a new one; where `first`, the new frame fills the stack.

    Shapes: stack [..., S, H, W], frame [..., H, W], first [...] bool -> [..., S, H, W].
    """
    axis = first.ndim
    newest = frame.unsqueeze(axis)
    later = torch.cat([stack.narrow(axis, 1, stack.shape[axis] - 1), newest], axis)
    fresh = first.reshape(*first.shape, *(1,) * (stack.ndim - axis))
    return torch.where(fresh, newest, later)
