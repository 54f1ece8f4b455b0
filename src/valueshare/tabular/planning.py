"""Optimal values of a finite MDP."""

import numpy as np

from valueshare.errors import InvalidInput
from valueshare.tabular.mdp import FiniteMDP, Floats


def optimal_values(mdp: FiniteMDP, tolerance: float = 1e-12, sweeps: int = 1_000_000) -> Floats:
    """v*(s) = max_a q*(s, a) by value iteration; 0 in terminal states. Shape [S].

    Stops when a sweep changes no value by more than `tolerance` of the largest.

        >>> from valueshare import gridworld
        >>> optimal_values(gridworld(width=2, height=1, noise=0.0)).tolist()
        [5.0, 0.0]
    """
    next_state, probability, reward = mdp.successors
    expected_reward = (probability * reward).sum(axis=-1)  # [S, A]
    values = np.zeros(mdp.states)
    for _ in range(sweeps):
        q = expected_reward + mdp.discount * (probability * values[next_state]).sum(axis=-1)
        updated = np.where(mdp.terminal, 0.0, q.max(axis=-1))
        change = np.abs(updated - values).max()
        values = updated
        if change <= tolerance * max(1.0, np.abs(values).max()):
            return values
    raise InvalidInput(f"the optimal values of {mdp.name} do not converge: with discount 1, every policy must end")
