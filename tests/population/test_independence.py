"""An agent does not depend on its neighbours; different seeds differ in everything random."""

import numpy as np
import polars as pl
import pytest
import torch

from valueshare.population.agents import agent_table
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.train import TrainingResult, train_population

SETTINGS = TrainingSettings(
    steps=160,
    checkpoint_interval=80,
    eval_interval=80,
    hidden=(32, 32),
    batch_size=16,
    replay_capacity=100,
    learning_starts=20,
    update_interval=2,
    target_update_interval=20,
    quantiles=4,
    target_quantiles=4,
    acting_quantiles=4,
    eval_episodes=3,
    eval_envs=2,
    eval_episode_limit=30,
)
OWN = AgentSettings(epsilon_steps=60, epsilon_end=0.2, step_size=1e-2)


def train(table: pl.DataFrame, backend: str = "gymnasium") -> TrainingResult:
    assert backend in ("gymnasium", "envpool")
    return train_population(table, SETTINGS, backend=backend)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", [pytest.param("gymnasium", marks=pytest.mark.slow), "envpool"])
def test_an_agent_alone_and_among_32_others(backend: str) -> None:
    # On a CPU, uncompiled: to the bit. Matrix products of a stack are computed matrix by matrix
    # there, with the same kernel for a stack of 1 and of 33.
    table = agent_table("CartPole-v1", "ib-dqn", seeds=range(11), k=[0.0, 2.0, 50.0], agent_settings=OWN)
    together = train(table, backend)
    for p in (0, 17, 32):
        alone = train(table[p : p + 1], backend)
        for name, value in alone.state.online.parameters.items():
            assert torch.equal(value[0], together.state.online.parameters[name][p]), name
        assert torch.equal(alone.state.replay.action[0], together.state.replay.action[p])
        assert torch.equal(alone.state.replay.reward[0], together.state.replay.reward[p])
        own_records = together.records.filter(agent=p)
        assert alone.records.equals(own_records)


def test_quantile_agents_alone_and_together() -> None:
    table = agent_table("CartPole-v1", "ib-iqn", seeds=range(3), k=[2.0], agent_settings=OWN)
    together, alone = train(table), train(table[1:2])
    for name, value in alone.state.online.parameters.items():
        torch.testing.assert_close(value[0], together.state.online.parameters[name][1])
    assert torch.equal(alone.state.replay.action[0], together.state.replay.action[1])


def test_different_seeds_differ_in_all_that_is_random() -> None:
    # The same agent but for its seed, with a policy that always explores: actions differ by the
    # exploration alone, first observations by the environment alone.
    own = AgentSettings(epsilon_end=1.0)
    table = agent_table("CartPole-v1", "dqn", seeds=[3, 4], agent_settings=own)
    state = train(table).state
    assert not torch.equal(state.replay.action[0], state.replay.action[1])
    first = state.replay.observation[:, 0]
    assert not np.array_equal(first[0], first[1])
    population = train(table).population
    for name in population.keys._fields:
        keys = getattr(population.keys, name)
        assert keys[0] != keys[1], name
    streams = torch.stack(population.keys)
    assert len(set(streams.flatten().tolist())) == streams.numel()  # no stream is another one's


def test_different_seeds_start_from_different_weights() -> None:
    from valueshare.envs import environment_spec
    from valueshare.population.state import initial_state, make_population

    table = agent_table("CartPole-v1", "dqn", seeds=[3, 4])
    spec = environment_spec("CartPole-v1", "gymnasium")
    torch.manual_seed(5)
    untouched = torch.rand(1)
    torch.manual_seed(5)
    parameters = initial_state(make_population(table, SETTINGS, spec, torch.device("cpu"))).online.parameters
    assert torch.equal(torch.rand(1), untouched)  # the global generator was left as it was
    weights = [value for name, value in parameters.items() if name.endswith("weight")]
    assert all(not torch.equal(w[0], w[1]) for w in weights)
