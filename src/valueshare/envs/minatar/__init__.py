"""The five games of MinAtar (Young and Tian, 2019, https://arxiv.org/abs/1903.03176), as all backends have them.

Every game has six actions, and with probability 0.1 it repeats the action before. All games have ten channels, of
which a game leaves those empty that it does not use, so that games can be mixed in one population. The module of a game
has its rules as three compiled functions of one record: `reset`, `step` and `draw`.
"""

from collections.abc import Sequence

import numpy as np

from valueshare.envs.base import EnvironmentSpec, resolve_limit

NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
MINATAR_ACTIONS = 6
MINATAR_CHANNELS = {"Asterix": 4, "Breakout": 4, "Freeway": 7, "Seaquest": 10, "SpaceInvaders": 6}  # that a game uses
MINATAR_GAMES = tuple(MINATAR_CHANNELS)
MINATAR_SHAPE = (10, 10, 10)  # channels, as many as Seaquest has; rows; columns
STICKY = 0.1  # probability that the action before is repeated
# Steps. MinAtar has none but that of Freeway, which always ends there; to evaluate by episodes, one is needed.
MINATAR_LIMIT = 10_000
FREEWAY_LIMIT = 2_501


def is_minatar(env_id: str) -> bool:
    """Whether this is the name of a MinAtar game, like Breakout-MinAtar."""
    return env_id.endswith("-MinAtar")


def minatar_names() -> list[str]:
    return [f"{game}-MinAtar" for game in MINATAR_GAMES]


def minatar_channels(env_id: str) -> int:
    """Channels that a game uses, the first of its ten."""
    return MINATAR_CHANNELS[env_id.removesuffix("-MinAtar")]


def game_limit(env_id: str, episode_limit: int | None) -> int:
    """Steps after which a game truncates an episode, where this limit was chosen."""
    limit = MINATAR_LIMIT if episode_limit is None else episode_limit
    return min(limit, FREEWAY_LIMIT) if env_id == "Freeway-MinAtar" else limit


def minatar_spec(env_ids: Sequence[str], episode_limit: int | None = None) -> EnvironmentSpec:
    """The spec that these games share."""
    return EnvironmentSpec(
        name="+".join(dict.fromkeys(env_ids)),
        backend="numba",
        observation_shape=MINATAR_SHAPE,
        observation_dtype=np.dtype(np.bool_),
        actions=MINATAR_ACTIONS,
        episode_limit=resolve_limit(episode_limit, MINATAR_LIMIT),
    )
