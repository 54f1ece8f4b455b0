"""Discrete observations as one-hot vectors, against Gymnasium's own encoding."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import polars as pl
import pytest
import torch
from episodes import SHORT, episode
from gymnasium.spaces import flatten

import valueshare
from valueshare.envs import environment_spec, make_environments
from valueshare.envs.base import mix_to_int32, spec_from_spaces
from valueshare.envs.envpool import _envpool
from valueshare.envs.one_hot import one_hot
from valueshare.errors import EnvironmentFailed, InvalidInput
from valueshare.population import memory
from valueshare.population.agents import agent_table
from valueshare.population.settings import TrainingSettings
from valueshare.population.spec import PopulationSpec

ACTIONS = np.random.default_rng(0).integers(0, 4, (60, 3))


class Corridor(gymnasium.Env[Any, Any]):
    """States 5 to 9, from left to right; the last one ends an episode."""

    observation_space = gymnasium.spaces.Discrete(5, start=5)
    action_space = gymnasium.spaces.Discrete(2)
    beyond: Any = None  # a state that does not exist, in its place

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = 5
        return np.int64(5), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state = max(5, self.state + 2 * int(action) - 1)
        state = self.state if self.beyond is None else self.beyond
        return state, float(self.state == 9), self.state == 9, False, {}


gymnasium.register("test/Corridor-v0", lambda **options: Corridor(), max_episode_steps=20)


def encoding(space: Any, state: Any) -> list[int]:
    return np.asarray(flatten(space, state)).astype(int).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["FrozenLake-v1", "test/Corridor-v0"])
def test_gymnasium_environments_have_gymnasium_s_encoding(name: str) -> None:
    environments = make_environments(name, 3, backend="gymnasium")
    plain = [gymnasium.make(name) for _ in range(3)]
    actions = ACTIONS % environments.spec.actions
    states = [env.reset(seed=seed)[0] for seed, env in enumerate(plain)]

    def expected() -> list[list[int]]:
        return [encoding(env.observation_space, state) for env, state in zip(plain, states, strict=True)]

    assert environments.reset(range(3)).astype(int).tolist() == expected()
    endings = 0
    for chosen in actions:
        result = environments.step(chosen)
        for row, env in enumerate(plain):
            states[row], reward, terminated, truncated, _ = env.step(chosen[row])
            assert result.final_observation[row].astype(int).tolist() == expected()[row]
            assert (result.reward[row], result.terminated[row]) == (reward, terminated)
            if terminated or truncated:
                states[row] = env.reset()[0]
                endings += 1
        assert result.observation.astype(int).tolist() == expected()
    assert endings


def test_envpool_s_states_are_encoded_too() -> None:
    environments = make_environments("FrozenLake-v1", 3, backend="envpool", threads=1)
    seeds = mix_to_int32(np.arange(3, dtype=np.uint64))
    pool = _envpool().make_gymnasium("FrozenLake-v1", num_envs=3, num_threads=1, seed=seeds)
    space: Any = gymnasium.spaces.Discrete(16)
    states = pool.reset()[0]
    assert environments.reset(range(3)).astype(int).tolist() == [encoding(space, s) for s in states]
    ended = np.zeros(3, bool)
    for chosen in ACTIONS:
        states, _, terminated, truncated, _ = pool.step(chosen.astype(np.int32))
        final = environments.step(chosen, None).final_observation
        for row in np.flatnonzero(~ended):  # a pool resets a step later
            assert final[row].astype(int).tolist() == encoding(space, states[row])
        ended |= terminated | truncated
    active = np.array([True, False, True])
    result = environments.step([0, 0, 0], active)
    assert (result.observation.sum(1) == 1).all()


@pytest.mark.parametrize("beyond", [4, 10, 5.5, "x", [5]])
def test_a_state_that_does_not_exist_is_an_error_of_the_environment(beyond: Any) -> None:
    env = Corridor
    environments = make_environments("test/Corridor-v0", 1, backend="gymnasium")
    environments.reset([0])
    try:
        env.beyond = beyond
        with pytest.raises(
            EnvironmentFailed, match=r"test/Corridor-v0 gave observation .* not a state of its observation"
        ):
            environments.step([1])
    finally:
        env.beyond = None


def test_memory_counts_a_byte_per_state() -> None:
    """Per row of replay: 64 bytes instead of 16. The network: 48 more inputs of 8 units, and what learning takes."""
    table = agent_table("FrozenLake-v1", "dqn", seeds=[0])
    settings = TrainingSettings(hidden=(8,), replay_capacity=80_000, batch_size=1, checkpoint_interval=100)
    small, large = (
        memory.estimate(PopulationSpec("p", table.with_columns(env=pl.lit(env)), settings, "gymnasium"))
        for env in ("FrozenLake-v1", "FrozenLake8x8-v1")
    )
    rows = 80_000 + 10_000 + 4 + 32  # an eighth more for final observations, and spare ones
    assert large.per_agent - small.per_agent == pytest.approx(48 * rows, rel=0.02)
    assert environment_spec("FrozenLake-v1", "gymnasium").observation_dtype == np.bool_
    many, two = gymnasium.spaces.Discrete(10**9), gymnasium.spaces.Discrete(2)  # type: ignore[var-annotated]
    with pytest.raises(InvalidInput, match="choose at most 1,000,000 states"):
        spec_from_spaces("Many-v0", "gymnasium", many, two, 10)


def test_training_policies_evaluation_and_playing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = {**SHORT, "hidden": [8], "eval_episode_limit": 20}
    run = valueshare.train("FrozenLake-v1", "ib-dqn", k=2, seeds=2, out=folder, backend="gymnasium", **options)
    policy = run.agent(1)
    one_hot = torch.eye(16, dtype=torch.bool)
    q = policy.network(one_hot).numpy()
    np.testing.assert_array_equal(policy.q_values(np.arange(16)), q)
    assert (policy(3), policy(np.int64(7))) == (q[3].argmax(), q[7].argmax())
    for wrong in (16, -1, 2.5, "a", [0, 16]):
        with pytest.raises(InvalidInput, match="its states are the whole numbers 0 to 15"):
            policy(wrong)
    with pytest.raises(InvalidInput, match=r"an observation of shape \[2, 3\]: this agent sees a whole number, or a"):
        policy(np.zeros((2, 3), np.int64))
    policy.export(tmp_path / "agent.pt")
    exported = torch.jit.load(tmp_path / "agent.pt")  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(exported(one_hot).detach().numpy(), q, rtol=1e-5, atol=1e-6)
    played, env = (
        run.evaluate(episodes=6, agent=[1], progress=False),
        gymnasium.make("FrozenLake-v1", max_episode_steps=20),
    )
    for row in played.to_dicts():
        state, over, total = env.reset(seed=row["seed"])[0], False, 0.0
        while not over:
            state, reward, terminated, truncated, _ = env.step(policy(state))
            total, over = total + float(reward), terminated or truncated
        assert total == row["score"]
    steps = episode(folder, 1)
    assert all(step.observation.sum() == 1 for step in steps)
    assert all(step.greedy == q[step.observation.argmax()].argmax() for step in steps[:-1])
    assert valueshare.train("FrozenLake-v1", seeds=1, out=tmp_path / "pool", backend="envpool", **options).finished


@pytest.mark.parametrize("kind", [np.int8, np.int64])
def test_states_of_a_small_type_do_not_overflow(kind: Any) -> None:
    space: Any = gymnasium.spaces.Discrete(201, start=-100)
    spec = spec_from_spaces("test/Wide-v0", "gymnasium", space, gymnasium.spaces.Discrete(2), 10)
    assert np.flatnonzero(one_hot(spec, kind(100))).tolist() == [200]
