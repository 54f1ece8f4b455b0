"""LunarLander, compiled: the episodes of EnvPool and the physics of Gymnasium, several times as fast.

Gymnasium's environment (Oleg Klimov) is a scene of Box2D, https://gymnasium.farama.org/environments/box2d/lunar_lander.
Here its rules (`rules.py`) and the part of Box2D that it needs (`world.py` and what that imports) are functions of one
record per environment. With the same seed and actions, an episode is that of EnvPool to the last bit, on processors
that round alike: the generator of random numbers is the same too.
"""

import gymnasium
import numpy as np
from numpy.typing import NDArray

from valueshare.envs.action_bins import action_table, split_bins
from valueshare.envs.base import EnvironmentSpec, resolve_limit, spec_from_spaces

DISCRETE, CONTINUOUS = "LunarLander-v3", "LunarLanderContinuous-v3"
LUNAR_LANDERS = (DISCRETE, CONTINUOUS)
NUMBERS = 8  # of an observation
LUNAR_LANDER_LIMIT = 1_000  # steps
_, LEFT, MAIN, RIGHT = range(4)  # the engine that an action of LunarLander-v3 fires


def is_lunar_lander(env_id: str) -> bool:
    """Whether this is the name of a LunarLander, with or without bins."""
    return split_bins(env_id).env_id in LUNAR_LANDERS


def lunar_lander_spec(env_id: str, episode_limit: int | None = None) -> EnvironmentSpec:
    observations = gymnasium.spaces.Box(-np.inf, np.inf, (NUMBERS,), np.float32)
    limit = resolve_limit(episode_limit, LUNAR_LANDER_LIMIT)
    return spec_from_spaces(env_id, "numba", observations, _action_space(env_id), limit)


def engine_table(env_id: str) -> NDArray[np.float64]:
    """The power of the main engine, the direction of a side engine and its power, for each of n actions: [n, 3].

    A continuous engine has no power up to a half of its range, and at least half of its power beyond.
    """
    actions = action_table(env_id, _action_space(env_id))
    table = np.zeros((len(actions), 3))
    if split_bins(env_id).env_id == DISCRETE:
        table[MAIN, 0] = table[[LEFT, RIGHT], 2] = 1.0
        table[LEFT, 1], table[RIGHT, 1] = -1.0, 1.0
        return table
    main, side = actions.T
    table[:, 0] = np.where(main > 0, (main + 1) * 0.5, 0.0)
    fires = np.abs(side) > 0.5
    table[fires, 1], table[fires, 2] = np.sign(side[fires]), np.abs(side[fires])
    return table


def _action_space(env_id: str) -> gymnasium.Space[NDArray[np.float32]] | gymnasium.Space[np.int64]:
    if split_bins(env_id).env_id == DISCRETE:
        return gymnasium.spaces.Discrete(4)
    return gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
