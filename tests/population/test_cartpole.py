"""CartPole, learned: a short run in the fast suite, every algorithm in the slow one."""

import dataclasses

import polars as pl
import pytest

from valueshare.population.agents import agent_table
from valueshare.population.presets import cartpole
from valueshare.population.train import train_population

BAR = 400.0  # of 500: the mean over 16 agents in the last evaluation


def test_sixteen_agents_learn_something_in_a_few_seconds() -> None:
    settings, own = cartpole()
    short = dataclasses.replace(
        settings,
        steps=2_000,
        checkpoint_interval=2_000,
        hidden=(64, 64),
        batch_size=64,
        update_interval=4,
        target_update_interval=50,
        eval_interval=2_000,
        eval_episodes=4,
        eval_envs=4,
        step_size_schedule="constant",
    )
    own = dataclasses.replace(own, step_size=1e-3, epsilon_steps=1_000)
    table = agent_table("CartPole-v1", "ib-dqn", seeds=range(8), k=[0.0, 2.0], agent_settings=own)
    curve = mean_score(train_population(table, short).records)
    assert list(curve) == [0, 2_000]
    assert curve[0] < 40 < 80 < curve[2_000], curve


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "ib-dqn", "double-dqn", "dueling-dqn", "rdq", "iqn"])
def test_sixteen_agents_learn_to_balance(algorithm: str) -> None:
    settings, own = cartpole()
    table = agent_table("CartPole-v1", algorithm, seeds=range(16), k=1.0, agent_settings=own)
    records = train_population(table, settings, compiled=True).records
    assert records["score"].null_count() == 0
    curve = mean_score(records)
    assert curve[settings.steps] > BAR, curve


def mean_score(records: pl.DataFrame) -> dict[int, float]:
    """Mean over agents by evaluation step."""
    curve = records.group_by("step").agg(pl.col("score").mean()).sort("step")
    return dict(curve.iter_rows())
