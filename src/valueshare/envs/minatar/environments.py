"""MinAtar's games on the CPU: their rules compiled with Numba, about a microsecond per step."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.envs.base import Actions, Environments, Seeds, StepResult, as_keys
from valueshare.envs.minatar import MINATAR_ACTIONS, MINATAR_SHAPE, STICKY, game_limit, minatar_spec
from valueshare.envs.minatar.rows import NOT_STARTED, StepInput, StepOutput
from valueshare.splitmix import ODD, mix

ENVIRONMENTS_PER_THREAD = 64  # at least: to hand work to a thread costs as much as 20 to 50 steps


class GameGroup(NamedTuple):
    """Environments of one game that one thread steps."""

    step: Callable[..., None]  # compiled; its first call in a process takes a while
    states: NDArray[Any]  # [n] records
    rows: NDArray[np.int64]  # [n] among all E
    limit: int


class MinAtarEnvironments(Environments):
    """E environments, which may be of several games; several threads step them in the background.

    With one thread, or few environments, it is the thread of `send`.
    """

    def __init__(self, env_ids: Sequence[str], *, threads: int | None = None, episode_limit: int | None = None) -> None:
        self.spec, self.count = minatar_spec(env_ids, episode_limit), len(env_ids)
        threads = threads or available_cores()
        shares = max(1, min(threads, self.count // ENVIRONMENTS_PER_THREAD))
        self._in_background = threads > 1 and self.count >= ENVIRONMENTS_PER_THREAD
        names = np.array(env_ids)
        self._shares = [
            [_group(name, share[names[share] == name], episode_limit) for name in dict.fromkeys(names[share].tolist())]
            for share in np.array_split(np.arange(self.count), shares)
        ]
        self._all = np.ones(self.count, np.bool_)
        self._last = np.empty((self.count, *MINATAR_SHAPE), np.bool_)
        self._pool: ThreadPoolExecutor | None = None
        self._futures: list[Future[None]] = []
        self._result: StepOutput | None = None
        self._is_reset = False

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        keys = mix.py_func(as_keys(seeds, self.count) + ODD)
        self._wait()
        for group in (group for share in self._shares for group in share):
            group.states[:] = 0
            group.states["key"] = keys[group.rows]
            group.states["elapsed"] = NOT_STARTED
        self._is_reset = True
        return self.step(np.zeros(self.count, np.int64)).observation

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        is_ready = self._is_reset and self._result is None
        checked = self._check_actions(actions, np.int64, is_ready=is_ready)  # read while the caller continues
        if (checked.view(np.uint64) >= MINATAR_ACTIONS).any():  # unsigned, one below 0 is too large as well
            raise RuntimeError(f"actions are from 0 to {MINATAR_ACTIONS - 1}")
        mask = self._all if active is None else np.array(active, np.bool_)
        if mask.shape != (self.count,):
            raise RuntimeError(f"active of shape {mask.shape} for {self.count} environments")
        flags = np.empty((2, self.count), np.bool_)
        observation = np.empty((self.count, *MINATAR_SHAPE), np.bool_)
        self._result = StepOutput(observation, np.empty(self.count, np.float32), flags[0], flags[1], self._last)
        if not self._in_background:
            self._advance(self._shares[0], checked, mask, self._result)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._shares), "minatar")
        self._futures = [self._pool.submit(self._advance, share, checked, mask, self._result) for share in self._shares]

    def receive(self) -> StepResult:
        observation, reward, terminated, truncated, last = self._pending(self._result)
        self._wait()
        final, ended = observation, terminated | truncated
        if ended.any():
            final = observation.copy()
            final[ended] = last[ended]
        return StepResult(observation, reward, terminated, truncated, final)

    def close(self) -> None:
        self._wait()
        self._is_reset = False
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _advance(
        self, share: list[GameGroup], actions: NDArray[np.int64], active: NDArray[np.bool_], result: StepOutput
    ) -> None:
        for group in share:
            group.step(group.states, group.rows, StepInput(actions, active, group.limit, STICKY), result)

    def _wait(self) -> None:
        """Let a step that was sent end; its result is not kept here."""
        for future in self._futures:
            future.result()
        self._futures, self._result = [], None


def _group(name: str, rows: NDArray[np.int64], episode_limit: int | None) -> GameGroup:
    module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("-MinAtar")).lower()  # SpaceInvaders: space_invaders
    game = import_module(f"valueshare.envs.minatar.{module}")
    return GameGroup(game.step_environments, np.zeros(len(rows), game.STATE), rows, game_limit(name, episode_limit))
