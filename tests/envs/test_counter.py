"""A Gymnasium environment that counts: every transition is known by hand."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from valueshare.envs import StepResult, make_environments

COUNTER = "ValueshareCounter-v0"
# Rows of the tables below: episode and count, to act on next and as the step left them.
Row = tuple[list[int], float, bool, bool, list[int]]


class Counter(gymnasium.Env[NDArray[np.float64], np.int64]):
    """Observes (episode, count); action 3 counts one, 4 counts two; ends at a count of 4 or more.

    The reward is 10·episode + count. The one array it returns is overwritten at every step.
    """

    observation_space = gymnasium.spaces.Box(0.0, 100.0, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2, start=np.int64(3))

    def __init__(self) -> None:
        self.seen = np.array([-1.0, 0.0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        super().reset(seed=seed)
        self.seen[:] = (0.0 if seed is not None else self.seen[0] + 1.0), 0.0
        return self.seen, {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        assert action in (3, 4)
        self.seen[1] += action - 2
        reward = 10.0 * self.seen[0] + self.seen[1]
        return self.seen, float(reward), bool(self.seen[1] >= 4), False, {}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(COUNTER, entry_point=lambda **_: Counter(), max_episode_steps=3)
    yield
    del gymnasium.registry[COUNTER]


def rows(results: list[StepResult], environment: int) -> list[Row]:
    return [
        (
            result.observation[environment].astype(int).tolist(),
            float(result.reward[environment]),
            bool(result.terminated[environment]),
            bool(result.truncated[environment]),
            result.final_observation[environment].astype(int).tolist(),
        )
        for result in results
    ]


def test_every_transition_of_two_counters() -> None:
    environments = make_environments(COUNTER, 2)
    assert environments.spec.backend == "gymnasium"
    assert environments.spec.episode_limit == 3
    assert environments.spec.actions == 2
    assert environments.spec.observation_dtype == np.float32
    first = environments.reset([7, 8])
    assert first.dtype == np.float32
    assert first.tolist() == [[0, 0], [0, 0]]

    # Environment 0 counts 1, 2, 3 and is cut off, then 2, 4 and ends, then 1.
    # Environment 1 counts 1, 2, 4: it ends on the very step of its limit. Then 1, 2, 3: cut off.
    actions = np.array([[0, 0], [0, 0], [0, 1], [1, 0], [1, 0], [0, 0]])
    results = [environments.step(a) for a in actions]
    assert rows(results, 0) == [
        ([0, 1], 1.0, False, False, [0, 1]),
        ([0, 2], 2.0, False, False, [0, 2]),
        ([1, 0], 3.0, False, True, [0, 3]),
        ([1, 2], 12.0, False, False, [1, 2]),
        ([2, 0], 14.0, True, False, [1, 4]),
        ([2, 1], 21.0, False, False, [2, 1]),
    ]
    assert rows(results, 1) == [
        ([0, 1], 1.0, False, False, [0, 1]),
        ([0, 2], 2.0, False, False, [0, 2]),
        ([1, 0], 4.0, True, False, [0, 4]),
        ([1, 1], 11.0, False, False, [1, 1]),
        ([1, 2], 12.0, False, False, [1, 2]),
        ([2, 0], 13.0, False, True, [1, 3]),
    ]
    assert all(r.reward.dtype == np.float32 and r.observation.dtype == np.float32 for r in results)


def test_another_limit_replaces_the_registered_one() -> None:
    environments = make_environments(COUNTER, 1, episode_limit=2)
    assert environments.spec.episode_limit == 2
    environments.reset([0])
    results = [environments.step([0]) for _ in range(3)]
    assert rows(results, 0) == [
        ([0, 1], 1.0, False, False, [0, 1]),
        ([1, 0], 2.0, False, True, [0, 2]),
        ([1, 1], 11.0, False, False, [1, 1]),
    ]


def test_an_inactive_environment_stands_still() -> None:
    environments = make_environments(COUNTER, 2)
    environments.reset([0, 0])
    environments.step([1, 0])  # counts 2 and 1
    still = environments.step([0, 0], np.array([False, True]))
    moved = environments.step([0, 0])
    assert rows([still, moved], 0) == [
        ([0, 2], 0.0, False, False, [0, 2]),
        ([0, 3], 3.0, False, False, [0, 3]),  # its second step: no limit yet
    ]
    assert rows([still, moved], 1) == [
        ([0, 2], 2.0, False, False, [0, 2]),
        ([1, 0], 3.0, False, True, [0, 3]),
    ]
