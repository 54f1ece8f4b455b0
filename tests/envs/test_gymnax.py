"""Gymnax's environments: the protocol. Steps of its MinAtar games are compared in test_minatar_steps.py."""

from pathlib import Path

import numpy as np
import pytest
import torch
from episodes import SHORT

pytest.importorskip("gymnax")

import valueshare
from valueshare.envs import environment_spec, gymnax
from valueshare.envs.gymnax import GymnaxEnvironments
from valueshare.errors import InvalidInput


def test_games_share_a_program_and_an_environment_alone_is_the_same() -> None:
    """Two games in turn, and one of them alone; the others' seeds and actions change nothing."""
    together = GymnaxEnvironments(["Breakout-MinAtar", "SpaceInvaders-MinAtar", "Breakout-MinAtar"])
    alone = GymnaxEnvironments(["Breakout-MinAtar"] * 2)
    actions = np.random.default_rng(1).integers(0, 6, (60, 3))
    first = together.reset([10, 11, 2**64 - 1])
    np.testing.assert_array_equal(alone.reset([2**64 - 1, 12])[0], first[2])
    for row in actions:
        for mine, ours in zip(alone.step(row[[2, 0]]), together.step(row), strict=True):
            np.testing.assert_array_equal(mine[0], ours[2])
    assert together.program.step._cache_size() == 1  # type: ignore[attr-defined]  # compiled once


def test_an_environment_that_stands_still_keeps_its_state_and_random_numbers() -> None:
    moving, pausing = (GymnaxEnvironments(["Breakout-MinAtar"] * 2) for _ in range(2))
    np.testing.assert_array_equal(moving.reset([1, 2]), pausing.reset([1, 2]))
    rng = np.random.default_rng(2)
    for _ in range(80):
        actions = rng.integers(0, 6, 2)
        if rng.random() < 0.5:
            before = pausing.step([0, 0], np.zeros(2, np.bool_))
            assert not before.reward.any()
            assert not (before.terminated | before.truncated).any()
        for one, other in zip(moving.step(actions), pausing.step(actions), strict=True):
            np.testing.assert_array_equal(one, other)


def test_one_action_in_ten_is_the_action_before() -> None:
    environments, rng = GymnaxEnvironments(["Breakout-MinAtar"] * 2), np.random.default_rng(3)
    environments.reset([1, 2])
    before, repeated = np.zeros(2, np.int64), 0
    for _ in range(1_500):
        other = (before + rng.integers(1, 6, 2)) % 6
        environments.step(other)
        assert environments._batch is not None
        executed = np.asarray(environments._batch.action)
        assert ((executed == before) | (executed == other)).all()
        repeated += int((executed == before).sum())
        before = executed
    assert 0.075 < repeated / 3_000 < 0.125  # 0.1 with a standard error of 0.0055


def test_freeway_ends_at_its_limit_whatever_limit_is_asked_for() -> None:
    for asked, limit in ((None, 2_501), (2**30, 2_501), (100, 100)):  # a video has no limit of its own
        assert gymnax._Game("Freeway-MinAtar", np.arange(1), asked).params.max_steps_in_episode == limit


def test_specs() -> None:
    spec = environment_spec(["Breakout-MinAtar", "Seaquest-MinAtar"], "jax")
    assert (spec.backend, spec.observation_shape, spec.actions) == ("jax", (10, 10, 10), 6)
    cartpole = environment_spec("CartPole-v1", "jax")
    assert (cartpole.observation_shape, cartpole.actions, cartpole.episode_limit) == ((4,), 2, 500)
    with pytest.raises(InvalidInput, match="Pendulum-v1 has actions Box: choose one with Discrete actions"):
        environment_spec("Pendulum-v1", "jax")


def test_discrete_observations_are_one_hot() -> None:
    environments = GymnaxEnvironments(["FrozenLake-misc"] * 2)
    spec = environments.spec
    assert (spec.observation_shape, spec.observation_dtype.name, spec.first_state) == ((16,), "bool", 0)
    seen = [environments.reset([1, 2])]
    rng = np.random.default_rng(4)
    for _ in range(40):
        result = environments.step(rng.integers(0, spec.actions, 2))
        assert environments._batch is not None
        states = np.asarray(environments._batch.states[0].position)
        np.testing.assert_array_equal(result.observation, states[:, None] == np.arange(16))
        seen.append(result.observation)
    assert len(np.unique(np.concatenate(seen).argmax(-1))) > 2


@pytest.mark.parametrize(("name", "shape"), [("Catch-bsuite", (10, 5)), ("FrozenLake-misc", ())])
def test_matrices_and_states_train(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    options = {**SHORT, "hidden": [8], "eval_episode_limit": 20}
    run = valueshare.train(name, "ib-dqn", k="n", seeds=1, out=tmp_path / "run", backend="jax", **options)
    policy = run.agent(0)
    batch = np.random.default_rng(0).integers(0, 2, (5, *shape), np.int32)
    seen = batch if shape else np.eye(16, dtype=np.bool_)[batch]  # as the network gets it
    policy.export(tmp_path / "agent.pt2")
    q = torch.export.load(tmp_path / "agent.pt2").module()(torch.from_numpy(seen)).detach()
    np.testing.assert_allclose(policy.q_values(batch), q, rtol=1e-5, atol=1e-6)
    assert policy(batch).tolist() == q.argmax(-1).tolist()
    assert policy(batch[0]) == int(q[0].argmax())
    with pytest.raises(InvalidInput, match="this agent sees"):
        policy(np.zeros((2, 50), np.int32))
