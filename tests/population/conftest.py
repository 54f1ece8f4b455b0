"""A chain whose values can be written down, and an environment whose episodes never end early."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

Observation = NDArray[np.float32]
LENGTH = 4


class Chain(gymnasium.Env[Observation, np.int64]):
    """States 0..3 as one-hot vectors; action 1 goes right, action 0 left (at 0: stays, reward 0.2).

    Going right from the last state terminates with reward 1. Episodes start anywhere.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, (LENGTH,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(LENGTH))
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if action == 1 and self.state == LENGTH - 1:
            return self._seen(), 1.0, True, False, {}
        reward = 0.2 if action == 0 and self.state == 0 else 0.0
        self.state = max(0, self.state + (1 if action == 1 else -1))
        return self._seen(), reward, False, False, {}

    def _seen(self) -> Observation:
        seen: Observation = np.eye(LENGTH, dtype=np.float32)[self.state]
        return seen


class Clock(gymnasium.Env[Observation, np.int64]):
    """Counts its steps, reward 1 each, and ends only by its limit."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.array([self.time], np.float32), 1.0, False, False, {}


Frame = NDArray[np.uint8]


class Film(gymnasium.Env[Frame, np.int64]):
    """Frames of noise, 3x2 bytes; episodes of 12 to 24 steps, of which some terminate.

    The best action is in the frame before last, so that a single frame does not tell it.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, 2), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.left, self.before = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.before = int(self.np_random.integers(12, 24)), 0
        return self._frame(), {}

    def step(self, action: np.int64) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        reward = float(action == self.before % 3)
        self.before = int(self.frame[0, 0])
        return self._frame(), reward, self.left == 0, False, {}

    def _frame(self) -> Frame:
        self.frame: Frame = self.np_random.integers(0, 256, (3, 2), np.uint8)
        return self.frame


def moving_pixels(size: int) -> gymnasium.Env[Any, Any]:
    """The same, with stacks of frames as its observations: Gymnasium's own wrapper."""
    return gymnasium.wrappers.FrameStackObservation(Film(), size, padding_type="reset")


# Truncated after 6 steps: a learner that takes that for an end of the world learns wrong values.
gymnasium.register("tests/Chain-v0", lambda **_: Chain(), max_episode_steps=6)
gymnasium.register("tests/Clock-v0", lambda **_: Clock(), max_episode_steps=5)
gymnasium.register("tests/Film-v0", lambda **_: Film(), max_episode_steps=20)
gymnasium.register("tests/OtherFilm-v0", lambda **_: Film(), max_episode_steps=20)
gymnasium.register("tests/MovingPixels-v0", lambda **_: moving_pixels(3), max_episode_steps=20)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
