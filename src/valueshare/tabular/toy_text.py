"""Tables of Gymnasium's toy-text environments."""

import difflib
import warnings
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from valueshare.errors import InvalidInput

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
PUBLISHED = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4")


class PublishedTable(NamedTuple):
    """A published table as arrays of S states and A actions."""

    transition: Floats  # [S, A, S]
    reward: Floats  # [S, A, S]
    start: Floats  # [S]
    terminal: Flags  # [S]  states that end an episode which enters them ...
    continues: Flags  # [S, S]  ... except by these transitions: [from, to]


def published_table(env_id: str, **options: Any) -> PublishedTable:
    """Read the table P[state][action] = [(probability, next state, reward, ends), ...]."""
    environment = _make(env_id, **options).unwrapped
    table = getattr(environment, "P", None)
    start = getattr(environment, "initial_state_distrib", None)
    if table is None or start is None:
        raise InvalidInput(f"{env_id} does not publish its transition table; these do: {', '.join(PUBLISHED)}")
    states, actions = len(table), len(table[0])
    transition = np.zeros((states, actions, states))
    paid = np.zeros((states, actions, states))  # probability-weighted reward
    ends = np.zeros((states, states), dtype=np.bool_)  # [from, to]
    continues = np.zeros((states, states), dtype=np.bool_)
    for state, choices in table.items():
        for action, outcomes in choices.items():
            for probability, successor, reward, ended in outcomes:
                transition[state, action, successor] += probability
                paid[state, action, successor] += probability * reward
                (ends if ended else continues)[state, successor] |= probability > 0
    terminal: Flags = np.any(ends, axis=0)
    reward = np.divide(paid, transition, out=np.zeros_like(paid), where=transition > 0)
    return PublishedTable(transition, reward, start, terminal, continues)


def _make(env_id: str, **options: Any) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # an old version's name is reported below
            return gymnasium.make(env_id, **options)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        names = ("gridworld", *PUBLISHED)
        close = difflib.get_close_matches(env_id, names, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InvalidInput(f"unknown environment {env_id!r}: {hint}tables are known of {', '.join(names)}") from error
