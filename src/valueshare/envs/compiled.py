"""Environments whose rules are compiled with Numba, stepped by threads in the background."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.envs.base import Actions, Environments, EnvironmentSpec, Seeds, StepResult, as_keys


class StepOutput(NamedTuple):
    """The arrays that a step of E environments fills.

    Kernels take it as an argument: who renames it renames them too (see envs/minatar/rows.py).
    """

    observation: NDArray[Any]  # [E, ...] to act on next
    reward: NDArray[np.float32]  # [E]
    terminated: NDArray[np.bool_]  # [E]
    truncated: NDArray[np.bool_]  # [E]
    last: NDArray[Any]  # [E, ...] final observations; only the rows of episodes that ended are valid


class Block(Protocol):
    """Environments that one thread steps with one kernel."""

    states: NDArray[Any]  # a record per environment

    def restart(self, keys: NDArray[np.uint64]) -> None:
        """Begin new episodes with the next step, of all environments, whatever its actions. Shapes: keys [E]."""

    def step(self, actions: NDArray[np.int64], active: NDArray[np.bool_], outputs: StepOutput) -> None:
        """Step those that are active, and write their rows. Shapes: actions [E], active [E] of all environments."""


class CompiledEnvironments(Environments):
    """E environments, divided among threads.

    With one thread, or few environments, they are stepped in the thread that calls `send`.
    """

    def __init__(
        self, spec: EnvironmentSpec, shares: Sequence[Sequence[Block]], count: int, *, in_background: bool
    ) -> None:
        self.spec, self.count, self._shares, self._in_background = spec, count, shares, in_background
        self._all = np.ones(count, np.bool_)
        self._last = np.empty((count, *spec.observation_shape), spec.observation_dtype)
        # The newest one, of which environments that are not stepped keep their rows.
        self._observation = np.empty_like(self._last)
        self._pool: ThreadPoolExecutor | None = None
        self._futures: list[Future[None]] = []
        self._result: StepOutput | None = None
        self._is_reset = False

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        keys = as_keys(seeds, self.count)
        self._drop_step()
        for block in (block for share in self._shares for block in share):
            block.restart(keys)
        self._is_reset = True
        return self.step(np.zeros(self.count, np.int64)).observation

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        is_ready = self._is_reset and self._result is None
        checked = self._check_actions(actions, np.int64, is_ready=is_ready)  # read while the caller continues
        if (checked.view(np.uint64) >= self.spec.actions).any():  # unsigned, one below 0 is too large as well
            raise RuntimeError(f"actions are from 0 to {self.spec.actions - 1}")
        mask = self._all if active is None else np.array(active, np.bool_)
        if mask.shape != (self.count,):
            raise RuntimeError(f"active of shape {mask.shape} for {self.count} environments")
        flags = np.empty((2, self.count), np.bool_)
        observation = np.empty_like(self._observation) if active is None else self._observation.copy()
        self._result = StepOutput(observation, np.empty(self.count, np.float32), flags[0], flags[1], self._last)
        self._observation = observation
        if not self._in_background:  # then there is one share
            _step(self._shares[0], checked, mask, self._result)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._shares), "environments")
        self._futures = [self._pool.submit(_step, share, checked, mask, self._result) for share in self._shares]

    def receive(self) -> StepResult:
        observation, reward, terminated, truncated, last = self._pending(self._result)
        futures = self._drop_step()
        for future in futures:
            if future.exception() is not None:
                self._is_reset = False  # some environments have made the step, and others have not
                future.result()
        final, ended = observation, terminated | truncated
        if ended.any():
            final = observation.copy()
            final[ended] = last[ended]
        return StepResult(observation, reward, terminated, truncated, final)

    def close(self) -> None:
        self._drop_step()
        self._is_reset = False
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _drop_step(self) -> list[Future[None]]:
        """Let a step that was sent end in all threads, and discard its result."""
        futures, self._futures, self._result = self._futures, [], None
        wait(futures)
        return futures


def share_rows(count: int, threads: int | None, least: int) -> tuple[list[NDArray[np.int64]], bool]:
    """The rows of each thread, at least so many of them, and whether they are stepped in the background."""
    threads = threads or available_cores()
    shares = max(1, min(threads, count // least))
    return np.array_split(np.arange(count), shares), threads > 1 and count >= least


def _step(share: Sequence[Block], actions: NDArray[np.int64], active: NDArray[np.bool_], outputs: StepOutput) -> None:
    for block in share:
        block.step(actions, active, outputs)
