"""Any Gymnasium environment with Box observations and Discrete actions.

A plain loop, run in `receive`: what a GPU was given between `send` and `receive` overlaps it.
Most of these environments are Python, where threads take turns at the interpreter (32 CartPoles:
0.28 ms a step in a loop, 0.32 ms on two threads), and a loop in the background makes the learner
wait for the interpreter instead.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import (
    Actions,
    EnvironmentSpec,
    Seeds,
    StepResult,
    as_keys,
    checked_limit,
    spec_from_spaces,
)
from valueshare.errors import InvalidInput


def known_names() -> list[str]:
    return list(gymnasium.registry)


def gymnasium_spec(env_id: str) -> EnvironmentSpec:
    env = _make(env_id, None)
    try:
        limit = None if env.spec is None else env.spec.max_episode_steps
        return spec_from_spaces(env_id, "gymnasium", env.observation_space, env.action_space, limit)
    finally:
        env.close()


class GymnasiumEnvironments:
    """E Gymnasium environments, each with its own generator, started by `reset(seed=...)`."""

    def __init__(self, env_id: str, count: int, *, episode_limit: int | None = None) -> None:
        spec = gymnasium_spec(env_id)
        limit = checked_limit(episode_limit, spec.episode_limit)
        self.spec = dataclasses.replace(spec, episode_limit=limit)
        self.count = count
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._first_action = 0  # a Discrete space may start elsewhere
        self._observation = self._empty()  # [E, ...] what was last there to act on
        self._sent: tuple[list[int], Iterable[int]] | None = None  # actions, rows to step

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        keys = as_keys(seeds, self.count)
        if not self._envs:
            limit = self.spec.episode_limit
            self._envs = [_make(self.spec.name, limit) for _ in range(self.count)]
            self._first_action = int(getattr(self._envs[0].action_space, "start", 0))
        self._sent = None
        observation = self._empty()
        for row, (env, key) in enumerate(zip(self._envs, keys.tolist(), strict=True)):
            observation[row] = env.reset(seed=key)[0]
        self._observation = observation
        return observation

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        if not self._envs or self._sent is not None:
            raise RuntimeError("send follows reset or receive")
        listed = np.asarray(actions).tolist()
        if len(listed) != self.count:
            raise RuntimeError(f"{len(listed)} actions for {self.count} environments")
        rows = range(self.count) if active is None else np.flatnonzero(active).tolist()
        self._sent = listed, rows

    def receive(self) -> StepResult:
        if self._sent is None:
            raise RuntimeError("receive follows send")
        (actions, rows), self._sent = self._sent, None
        final, observation = self._observation.copy(), self._observation.copy()  # [E, ...]
        reward = np.zeros(self.count, np.float32)
        terminated = np.zeros(self.count, np.bool_)
        truncated = np.zeros(self.count, np.bool_)
        for row in rows:
            env = self._envs[row]
            final[row], reward[row], ended, cut, _ = env.step(self._first_action + actions[row])
            terminated[row], truncated[row] = ended, cut and not ended
            observation[row] = env.reset()[0] if ended or cut else final[row]
        self._observation = observation
        return StepResult(observation, reward, terminated, truncated, final)

    def step(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> StepResult:
        self.send(actions, active)
        return self.receive()

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs, self._sent = [], None

    def _empty(self) -> NDArray[Any]:
        return np.zeros((self.count, *self.spec.observation_shape), self.spec.observation_dtype)


def _make(env_id: str, episode_limit: int | None) -> gymnasium.Env[Any, Any]:
    # Without the passive checker: it costs time at every step and complains of others' spaces.
    try:
        return gymnasium.make(env_id, max_episode_steps=episode_limit, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as reason:
        line = " ".join(str(reason).split())
        raise InvalidInput(f"Gymnasium cannot make {env_id!r} here: {line}") from reason
