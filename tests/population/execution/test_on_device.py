"""The executor with environments on the device against the plain loop, to the bit. On a CPU, JAX and PyTorch share
memory as well; tests/population/execution/test_cuda.py has the same on a GPU."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from valueshare.envs import environment_spec
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.agents import agent_table
from valueshare.population.loop import Executor, SerialExecutor
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import initial_state, make_population, state_dict

pytest.importorskip("gymnax")

from valueshare.envs.gymnax import GymnaxEnvironments
from valueshare.population.evaluate import Evaluator, evaluate
from valueshare.population.execution.evaluators import HostEvaluator
from valueshare.population.execution.on_device import DeviceEvaluator, DeviceExecutor

GAMES = ["Breakout-MinAtar", "SpaceInvaders-MinAtar", "Breakout-MinAtar"]
SETTINGS = TrainingSettings(
    steps=1_000,
    checkpoint_interval=1_000,
    eval_interval=1_000,
    hidden=(8,),
    batch_size=4,
    learning_starts=10,
    update_interval=4,
    target_update_interval=6,
    replay_capacity=50,  # so that rings wrap
    quantiles=4,
    target_quantiles=4,
    acting_quantiles=4,
)


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        pytest.param("ib-dqn", {}, marks=pytest.mark.slow),  # less than either of the others
        ("ib-iqn", {"gradient_steps": 2}),
        ("dueling-dqn", {"delayed_actor": True}),
    ],
)
def test_the_same_numbers_as_the_plain_loop(algorithm: str, changes: dict[str, Any]) -> None:
    found = []
    for kind in (SerialExecutor, DeviceExecutor):
        table = agent_table(GAMES[0], algorithm, seeds=range(3), k=[2.0] if algorithm.startswith("ib") else [0.0])
        settings = replace(SETTINGS, **changes)
        population = make_population(table, settings, environment_spec(GAMES), torch.device("cpu"))
        state = initial_state(population)
        environments = GymnaxEnvironments(GAMES)
        executor: Executor = kind(population, state, environments, compiled=False)
        episodes = TrainingEpisodes(3)
        executor.reset([5, 6, 7])
        for steps in (range(13), range(13, 14), range(14, 70)):
            executor.run(steps, lambda step: None, episodes)
        numbers = {**state_dict(state), **state.replay._asdict()}
        found.append(({name: value.clone() for name, value in numbers.items()}, episodes))
        assert environments.program.step._cache_size() == 1  # type: ignore[attr-defined]
    (serial, serial_episodes), (device, device_episodes) = found
    assert int(serial["updates"]) > 0
    for name, value in serial.items():
        torch.testing.assert_close(device[name], value, rtol=0, atol=0, msg=name)
    assert serial_episodes.episode_count.sum() > 0
    assert (device_episodes.episode_count == serial_episodes.episode_count).all()
    assert (device_episodes.return_sum == serial_episodes.return_sum).all()


def test_the_same_scores_as_with_environments_on_the_host() -> None:
    games, rows, limit = GAMES[:2], [game for game in GAMES[:2] for _ in range(3)], 30
    by_episodes: dict[str, Any] = {"eval_episodes": 5}  # shares of 2, 2 and 1; most of them are truncated
    by_timesteps: dict[str, Any] = {"eval_episodes": 0, "eval_timesteps": 150}
    for algorithm, changes in (("ib-dqn", by_episodes), ("ib-iqn", by_timesteps)):  # one test: JAX compiles once
        settings = replace(
            SETTINGS, eval_envs=3, eval_episode_limit=limit, eval_epsilon=0.2, reward_scale=0.5, **changes
        )
        table = agent_table(games[0], algorithm, seeds=range(2), k=[2.0])
        population = make_population(table, settings, environment_spec(games), torch.device("cpu"))
        state = initial_state(population)
        found = []
        for kind in (HostEvaluator, DeviceEvaluator):
            environments = GymnaxEnvironments(rows, episode_limit=limit)
            evaluator: Evaluator = kind(population, state, environments, compiled=False)
            for step in (0, 1_000):  # the second starts where the first has finished
                found.append(evaluate(population, evaluator, step, lambda step: None))
        for host, device in zip(found[:2], found[2:], strict=True):
            assert host.episodes.sum() > 3
            for expected, numbers in zip(host, device, strict=True):
                np.testing.assert_array_equal(numbers, expected)
        assert (found[0].overestimation != found[1].overestimation).any()
