"""MinAtar's games on the CPU: their rules compiled with Numba, about a microsecond per step."""

import re
from collections.abc import Callable, Sequence
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.compiled import CompiledEnvironments, StepOutput, share_rows
from valueshare.envs.minatar import STICKY, game_limit, minatar_spec
from valueshare.envs.minatar.rows import NOT_STARTED, StepInput
from valueshare.splitmix import ODD, mix

ENVIRONMENTS_PER_THREAD = 64  # at least: to hand work to a thread costs as much as 20 to 50 steps


def make_minatar(
    env_ids: Sequence[str], *, threads: int | None = None, episode_limit: int | None = None
) -> CompiledEnvironments:
    """E environments, which may be of several games."""
    rows, in_background = share_rows(len(env_ids), threads, ENVIRONMENTS_PER_THREAD)
    names = np.array(env_ids)
    shares = [
        [GameBlock(name, share[names[share] == name], episode_limit) for name in dict.fromkeys(names[share].tolist())]
        for share in rows
    ]
    return CompiledEnvironments(minatar_spec(env_ids, episode_limit), shares, len(env_ids), in_background=in_background)


class GameBlock:
    """Environments of one game."""

    def __init__(self, name: str, rows: NDArray[np.int64], episode_limit: int | None) -> None:
        module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("-MinAtar")).lower()  # SpaceInvaders
        game = import_module(f"valueshare.envs.minatar.{module}")
        self.states, self.rows = np.zeros(len(rows), game.STATE), rows  # [n] records; [n] among all E
        self._limit = game_limit(name, episode_limit)
        self._advance: Callable[..., None] = game.step_environments  # its first call in a process takes a while

    def restart(self, keys: NDArray[np.uint64]) -> None:
        self.states[:] = 0
        self.states["key"] = mix.py_func(keys + ODD)[self.rows]
        self.states["elapsed"] = NOT_STARTED

    def step(self, actions: NDArray[np.int64], active: NDArray[np.bool_], outputs: StepOutput) -> None:
        self._advance(self.states, self.rows, StepInput(actions, active, self._limit, STICKY), outputs)
