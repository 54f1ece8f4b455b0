"""Measures of learned values: overestimation, action gaps, norms. Pure functions of arrays."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from valueshare.errors import InvalidInput
from valueshare.expansion import contract

Floats = NDArray[np.float64]


class Norms(NamedTuple):
    """Means over actions and Euclidean norms, of action-values q and residuals z, a state each."""

    q_mean: Floats  # [...]
    q_norm: Floats
    z_mean: Floats
    z_norm: Floats


def discounted_returns(rewards: ArrayLike, discount: ArrayLike, final_value: ArrayLike = 0.0) -> Floats:
    """G_t = r_t + discount_t·G_{t+1}, with G_T = final_value; time is the first axis.

    `discount` is a number, or one a step (0 where an episode terminates, so that one array may
    hold many episodes in a row). Shapes: rewards [T, ...], final_value [...] -> [T, ...].
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    discounts = np.broadcast_to(np.asarray(discount, dtype=np.float64), rewards.shape)
    returns = np.empty_like(rewards)
    following = np.asarray(final_value, dtype=np.float64)
    for t in reversed(range(len(rewards))):
        following = rewards[t] + discounts[t] * following
        returns[t] = following
    return returns


def overestimation(q_values: ArrayLike, rewards: ArrayLike, discount: float, final_value: ArrayLike = 0.0) -> Floats:
    """Q(s_t, a_t) minus the discounted return that followed, at each step of one whole episode.

    `final_value` is the value of the last state where a time limit cut the episode off, and 0 where
    it terminated. Further axes are episodes of equal length. Shapes: [T, ...] -> [T, ...].
    """
    q = np.asarray(q_values, dtype=np.float64)
    rewards = np.asarray(rewards, dtype=np.float64)
    if q.shape != rewards.shape or q.ndim == 0:
        raise InvalidInput(
            f"q_values of shape {list(q.shape)} and rewards of shape {list(rewards.shape)}:"
            " give one value and one reward per step, both [T]"
        )
    difference: Floats = q - discounted_returns(rewards, discount, final_value)
    return difference


def action_gap(q: ArrayLike) -> Floats:
    """The best action-value minus the second best. Shapes: q [..., A] -> [...]."""
    q = np.asarray(q, dtype=np.float64)
    if q.ndim == 0 or q.shape[-1] < 2:
        raise InvalidInput(f"q of shape {list(q.shape)}: a gap needs at least 2 actions, [..., A]")
    best = np.partition(q, -2, axis=-1)
    gap: Floats = best[..., -1] - best[..., -2]
    return gap


def relative_action_gap(gaps: ArrayLike, mean_action_values: ArrayLike) -> float:
    """mean(gaps) / (|mean(mean_action_values)| + 1e-8), of one phase of training."""
    gap = np.asarray(gaps, dtype=np.float64).mean()
    value = np.asarray(mean_action_values, dtype=np.float64).mean()
    return float(gap / (abs(value) + 1e-8))


def norms(q: ArrayLike, k: ArrayLike) -> Norms:
    """Means and norms of q and of z = M_k^-1 q. Shapes: q [..., A], k [...] -> [...]."""
    q = np.asarray(q, dtype=np.float64)
    z = np.asarray(contract(q, np.asarray(k, dtype=np.float64)))
    return Norms(q.mean(-1), np.linalg.norm(q, axis=-1), z.mean(-1), np.linalg.norm(z, axis=-1))
