"""Tables of Gymnasium's toy-text environments."""

import difflib
import warnings
from typing import Any

import gymnasium
import numpy as np

from valueshare.errors import InvalidInput
from valueshare.tabular.mdp import FiniteMDP

PUBLISHED = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4")


def published_table(env_id: str, discount: float, **options: Any) -> FiniteMDP:
    """Read the table P[state][action] = [(probability, next state, reward, ends), ...]."""
    environment = _make(env_id, **options).unwrapped
    table = getattr(environment, "P", None)
    start = getattr(environment, "initial_state_distrib", None)
    if table is None or start is None:
        raise InvalidInput(
            f"{env_id} does not publish its transition table; these do: {', '.join(PUBLISHED)}"
        )
    states, actions = len(table), len(table[0])
    transition = np.zeros((states, actions, states))
    paid = np.zeros((states, actions, states))  # probability-weighted reward
    ends = np.zeros((states, states), dtype=np.bool_)  # [from, to]
    goes_on = np.zeros((states, states), dtype=np.bool_)
    for state, choices in table.items():
        for action, outcomes in choices.items():
            for probability, successor, reward, ended in outcomes:
                transition[state, action, successor] += probability
                paid[state, action, successor] += probability * reward
                (ends if ended else goes_on)[state, successor] |= probability > 0
    terminal = ends.any(axis=0)
    reward = np.divide(paid, transition, out=np.zeros_like(paid), where=transition > 0)
    mdp = FiniteMDP(transition, reward, start, terminal, discount, name=env_id)
    # A state either ends every episode that enters it or none. Rows that no episode can visit
    # (Taxi has some: the passenger waits where she wants to go) may say otherwise.
    if goes_on[np.ix_(mdp.visitable, terminal)].any():
        raise InvalidInput(f"{env_id} has a state that ends only some episodes that enter it")
    return mdp


def _make(env_id: str, **options: Any) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # an old version's name is told below
            return gymnasium.make(env_id, **options)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        names = ("gridworld", *PUBLISHED)
        close = difflib.get_close_matches(env_id, names, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InvalidInput(
            f"unknown environment {env_id!r}: {hint}tables are known of {', '.join(names)}"
        ) from error
