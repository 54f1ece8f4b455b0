"""Acting by the weights before the update under way, against a loop that keeps the older ones."""

import dataclasses

import numpy as np
import polars as pl
import pytest
import torch

from valueshare.envs import environment_spec, make_environments
from valueshare.learning.randomness import stream_key
from valueshare.population.act import act
from valueshare.population.agents import agent_table
from valueshare.population.learn import learn, update_target
from valueshare.population.networks import Weights
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.state import State, initial_state, make_population
from valueshare.population.train import train_population
from valueshare.replay import transitions

SETTINGS = TrainingSettings(
    initialization="paper",
    loss="half-squared",
    steps=120,
    checkpoint_interval=40,
    eval_interval=120,
    hidden=(16,),
    batch_size=8,
    learning_starts=10,
    update_interval=3,
    target_update_interval=12,
    eval_episodes=1,
    eval_episode_limit=10,
    delayed_actor=True,
)
OWN = AgentSettings(epsilon_start=0.1, epsilon_end=0.1, step_size=0.1)


def plain_loop(table: pl.DataFrame) -> State:
    """The same run, written as one loop; `older` is what actions are chosen by."""
    spec = environment_spec("tests/Chain-v0")
    population = make_population(table, SETTINGS, spec, torch.device("cpu"))
    state, environments = initial_state(population), make_environments("tests/Chain-v0", 3)
    for t in range(SETTINGS.steps):
        if t % SETTINGS.checkpoint_interval == 0:
            phase = t // SETTINGS.checkpoint_interval
            seeds = [stream_key(seed, f"environment/{phase}") for seed in population.seeds]
            observation = torch.from_numpy(environments.reset(seeds))
            transitions.begin_episodes(state.replay, observation)
            older = clone(state)
        actions = act(population, state._replace(online=older), observation)
        if t >= SETTINGS.learning_starts and t % SETTINGS.update_interval == 0:
            older = clone(state)
        if t >= SETTINGS.learning_starts and t % SETTINGS.target_update_interval == 0:
            update_target(population, state)
        if t >= SETTINGS.learning_starts and t % SETTINGS.update_interval == 0:
            learn(population, state)
        result = environments.step(actions.numpy())
        observation = torch.from_numpy(np.array(result.observation))
        transitions.add(
            state.replay,
            actions,
            torch.from_numpy(result.reward),
            torch.where(torch.from_numpy(result.terminated), 0.0, population.hyperparameters["discount"]),
            torch.from_numpy(np.array(result.final_observation)),
            torch.from_numpy(result.terminated | result.truncated),
            observation,
        )
        state.step.add_(1)
    return state


def clone(state: State) -> Weights:
    return Weights(
        {name: value.clone() for name, value in state.online.parameters.items()},
        state.online.buffers,
    )


@pytest.mark.parametrize("groups", [1, 3])
def test_the_lagged_run_is_a_plain_loop_with_the_older_weights(groups: int) -> None:
    table = agent_table("tests/Chain-v0", "dqn", seeds=[0, 1, 2], agent_settings=OWN)
    lagged = train_population(table, SETTINGS, groups=groups).state
    expected = plain_loop(table)
    assert torch.equal(lagged.replay.action, expected.replay.action)
    for name, value in expected.online.parameters.items():
        assert torch.equal(lagged.online.parameters[name], value), name

    newest = train_population(table, dataclasses.replace(SETTINGS, delayed_actor=False)).state
    assert not torch.equal(newest.replay.action, expected.replay.action)  # the delay is felt
