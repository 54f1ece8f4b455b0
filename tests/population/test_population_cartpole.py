"""CartPole, learned: a short run in the fast suite, every algorithm in the slow one."""

import dataclasses

import polars as pl
import pytest

from valueshare.experiments.presets import cartpole
from valueshare.population.agents import agent_table
from valueshare.population.train import train_population


def test_sixteen_agents_learn_something_in_a_few_seconds() -> None:
    settings, own = cartpole()
    short = dataclasses.replace(
        settings,
        total_steps=2_500,
        phase_steps=2_500,
        update_every=2,
        eval_every=2_500,
        eval_episodes=4,
    )
    own = dataclasses.replace(own, epsilon_steps=1_500)
    table = agent_table("CartPole-v1", "ib-dqn", seeds=range(8), k=[0.0, 2.0], own=own)
    records = train_population(table, short).records
    curve = mean_score(records)
    assert list(curve) == [0, 2_500]
    assert curve[0] < 40 < 80 < curve[2_500]


def mean_score(records: pl.DataFrame) -> dict[int, float]:
    """Mean over agents by evaluation step."""
    curve = records.group_by("step").agg(pl.col("score").mean()).sort("step")
    return dict(curve.iter_rows())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "ib-dqn", "double-dqn", "dueling-dqn", "rdq", "iqn"])
def test_sixteen_agents_learn_to_balance(algorithm: str) -> None:
    settings, own = cartpole()
    table = agent_table("CartPole-v1", algorithm, seeds=range(16), k=2.0, own=own)
    records = train_population(table, settings).records
    curve = mean_score(records)
    assert max(curve.values()) > 400, curve
