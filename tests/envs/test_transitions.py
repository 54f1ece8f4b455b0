"""Each backend against one plain environment, driven step by step."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rounding import ROUNDS_LIKE_ENVPOOL

from valueshare.envs import Environments, StepResult, make_environments
from valueshare.envs.base import mix_to_int32
from valueshare.envs.envpool import _envpool
from valueshare.envs.gymnasium import as_seed
from valueshare.schema import Backend

envpool = _envpool()  # imported directly, it would leave the tests after this one a Matplotlib folder in /tmp

CASES: list[tuple[Backend, str]] = [
    ("envpool", "LunarLander-v3"),
    ("envpool", "CartPole-v1"),
    ("envpool", "Acrobot-v1"),
    ("gymnasium", "CartPole-v1"),
    ("gymnasium", "MountainCar-v0"),
]
if ROUNDS_LIKE_ENVPOOL:
    CASES.append(("numba", "LunarLander-v3"))  # compared with EnvPool
each_backend = pytest.mark.parametrize(("backend", "env_id"), CASES)


class Row(NamedTuple):
    """One environment's part of a StepResult."""

    observation: NDArray[Any]
    reward: float
    terminated: bool
    truncated: bool
    final_observation: NDArray[Any]


Reference = tuple[NDArray[Any], Callable[[int], Row]]  # first observation, step


def plain_gymnasium(env_id: str, seed: int, limit: int) -> Reference:
    env = gymnasium.make(env_id, max_episode_steps=limit)
    first, _ = env.reset(seed=as_seed(seed))

    def step(action: int) -> Row:
        after, reward, terminated, truncated, _ = env.step(action)
        onward = env.reset()[0] if terminated or truncated else after
        return Row(onward, float(reward), terminated, truncated and not terminated, after)

    return first, step


def plain_envpool(env_id: str, seed: int, limit: int) -> Reference:
    """A pool of one, with its own next-step reset: a step more, whose action is ignored."""
    env_seed = int(mix_to_int32(np.array([seed], np.uint64))[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = envpool.make_gymnasium(env_id, num_envs=1, num_threads=1, seed=[env_seed], max_episode_steps=10**6)
        first = pool.reset()[0][0]
    steps = 0

    def step(action: int) -> Row:
        nonlocal steps
        after, reward, terminated, _, _ = pool.step(np.array([action], np.int32))
        steps += 1
        onward = after
        if terminated[0]:
            onward, steps = pool.step(np.array([0], np.int32))[0], 0
        elif steps == limit:
            onward, steps = pool.reset()[0], 0
        cut = steps == 0 and not terminated[0]
        return Row(onward[0], float(reward[0]), bool(terminated[0]), bool(cut), after[0])

    return first, step


PLAIN = {"envpool": plain_envpool, "numba": plain_envpool, "gymnasium": plain_gymnasium}


def assert_row(result: StepResult, row: int, expected: Row) -> None:
    got = Row(*(field[row] for field in result))
    np.testing.assert_array_equal(got.observation, expected.observation)
    np.testing.assert_array_equal(got.final_observation, expected.final_observation)
    assert got.reward == np.float32(expected.reward)
    assert (got.terminated, got.truncated) == (expected.terminated, expected.truncated)


def walk(environments: Environments, seeds: list[int], actions: NDArray[np.int64]) -> list[StepResult]:
    """Reset, then actions [T, E]; the first result holds the first observation alone."""
    first = environments.reset(seeds)
    nothing = np.zeros(len(seeds), np.float32)
    start = StepResult(first, nothing, nothing > 0, nothing > 0, first)
    return [start, *(environments.step(a) for a in actions)]


def equal(a: Iterable[NDArray[Any]], b: Iterable[NDArray[Any]]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def random_actions(env_id: str, steps: int, count: int, seed: int = 0) -> NDArray[np.int64]:
    actions = {"LunarLander-v3": 4, "CartPole-v1": 2}.get(env_id, 3)
    return np.random.default_rng(seed).integers(0, actions, (steps, count))


# With each backend every limit once; the other combinations are slow.
FAST = {
    ("envpool", "CartPole-v1", 1),
    ("envpool", "Acrobot-v1", 20),
    ("envpool", "LunarLander-v3", 400),
    ("numba", "LunarLander-v3", 1),
    ("numba", "LunarLander-v3", 20),
    ("numba", "LunarLander-v3", 400),
    ("gymnasium", "MountainCar-v0", 1),
    ("gymnasium", "MountainCar-v0", 20),
    ("gymnasium", "CartPole-v1", 400),
}


@pytest.mark.parametrize(
    ("backend", "env_id", "limit"),
    [
        pytest.param(*case, limit, marks=[] if (*case, limit) in FAST else [pytest.mark.slow])
        for case in CASES
        for limit in (1, 20, 400)
    ],
)
def test_the_same_transitions_as_plain_loops(backend: Backend, env_id: str, limit: int) -> None:
    terminated = truncated = 0

    @settings(max_examples=6, deadline=None, derandomize=True)
    @given(
        seeds=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=5),
        draw=st.integers(0, 2**32 - 1),
        always_active=st.booleans(),
    )
    def check(seeds: list[int], draw: int, always_active: bool) -> None:
        nonlocal terminated, truncated
        environments = make_environments(env_id, len(seeds), backend=backend, threads=2, episode_limit=limit)
        actions = random_actions(env_id, 200, len(seeds), draw)
        active = np.random.default_rng(draw).random(actions.shape) < 0.7
        plain = [PLAIN[backend](env_id, seed, limit) for seed in seeds]
        last = environments.reset(seeds)
        np.testing.assert_array_equal(last, [first for first, _ in plain])
        for a, mask in zip(actions, active, strict=True):
            result = environments.step(a, None if always_active else mask)
            for row, (_, step) in enumerate(plain):
                if always_active or mask[row]:
                    assert_row(result, row, step(int(a[row])))
                else:
                    assert_row(result, row, Row(last[row], 0.0, False, False, last[row]))
            last = result.observation
            terminated += int(result.terminated.sum())
            truncated += int(result.truncated.sum())
        environments.close()

    check()
    assert truncated > 50 or limit == 400
    # Random actions end no episode of the others within their limits.
    assert terminated > 10 or limit < 400 or env_id not in ("LunarLander-v3", "CartPole-v1")


@each_backend
def test_neighbours_do_not_matter(backend: Backend, env_id: str) -> None:
    make = partial(make_environments, env_id, backend=backend, episode_limit=60)
    seeds = list(range(100, 116))
    actions = random_actions(env_id, 150, 16)
    together = walk(make(16), seeds, actions)
    for row in (0, 5, 15):
        alone = walk(make(1), seeds[row : row + 1], actions[:, row : row + 1])
        for one, among in zip(alone, together, strict=True):
            assert equal(one, [field[row : row + 1] for field in among])


@each_backend
def test_seeds_decide_everything(backend: Backend, env_id: str) -> None:
    environments = make_environments(env_id, 3, backend=backend, episode_limit=30)
    actions = np.repeat(random_actions(env_id, 70, 1), 3, axis=1)  # the same for all three
    once = walk(environments, [1, 2, 1], actions)
    environments.send(actions[0])  # a step under way does not leak into what follows
    again = walk(environments, [1, 2, 1], actions)
    other = walk(environments, [2, 3, 2**40 + 1], actions)
    assert all(equal(a, b) for a, b in zip(once, again, strict=True))
    assert all(np.array_equal(r.observation[0], r.observation[2]) for r in once)
    # Episodes start anew at steps 30 and 60: each time the seeds show.
    for step in (0, 30, 60):
        starts = [tuple(once[step].observation[row]) for row in (0, 1)]
        starts += [tuple(other[step].observation[row]) for row in (1, 2)]
        assert len(set(starts)) == 4
    assert not np.array_equal(once[0].observation[0], once[30].observation[0])


@each_backend
def test_results_are_not_overwritten(backend: Backend, env_id: str) -> None:
    environments = make_environments(env_id, 4, backend=backend, episode_limit=20)
    kept: list[StepResult] = []
    copies: list[list[NDArray[Any]]] = []
    environments.reset(range(4))
    for actions in random_actions(env_id, 60, 4):
        kept.append(environments.step(actions))
        copies.append([field.copy() for field in kept[-1]])
    assert all(equal(a, b) for a, b in zip(kept, copies, strict=True))


@pytest.mark.parametrize(("backend", "env_id"), [c for c in CASES if c[1][0] in "LC"])
def test_termination_on_the_step_of_the_limit(backend: Backend, env_id: str) -> None:
    def first_end(limit: int | None) -> tuple[int, bool, bool]:
        environments = make_environments(env_id, 1, backend=backend, episode_limit=limit)
        environments.reset([11])
        for step in range(1, 1000):
            result = environments.step([0])
            if result.terminated[0] or result.truncated[0]:
                return step, bool(result.terminated[0]), bool(result.truncated[0])
        raise AssertionError("the episode continues")

    length, terminated, truncated = first_end(None)
    assert (terminated, truncated) == (True, False)
    assert first_end(length) == (length, True, False)
    assert first_end(length + 1) == (length, True, False)
    assert first_end(length - 1) == (length - 1, False, True)


@each_backend
def test_send_and_receive_take_turns(backend: Backend, env_id: str) -> None:
    environments = make_environments(env_id, 2, backend=backend)
    with pytest.raises(RuntimeError, match="send follows reset"):
        environments.send([0, 0])
    environments.reset([0, 1])
    with pytest.raises(RuntimeError, match="receive follows send"):
        environments.receive()
    environments.send([0, 0])
    with pytest.raises(RuntimeError, match="send follows reset or receive"):
        environments.send([0, 0])
    assert environments.receive().reward.shape == (2,)
    with pytest.raises(RuntimeError, match="3"):
        environments.send([0, 0, 0])
    nobody = environments.step([0, 0], np.zeros(2, np.bool_))
    assert nobody.reward.tolist() == [0.0, 0.0]
