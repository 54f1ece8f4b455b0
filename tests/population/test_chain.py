"""Every algorithm learns a chain exactly: its action-values against value iteration."""

import numpy as np
import polars as pl
import pytest
import torch

from valueshare.population.act import acting_taus
from valueshare.population.agents import agent_table, populations
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.train import train_population

GAMMA, STATES, ACTIONS = 0.8, 4, 2


def optimal_values() -> np.ndarray:
    """Q* of the chain by value iteration, [S, A]."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(500):
        v = q.max(1)
        left = [0.2 + GAMMA * v[0], *(GAMMA * v[s - 1] for s in range(1, STATES))]
        right = [*(GAMMA * v[s + 1] for s in range(STATES - 1)), 1.0]
        q = np.stack([left, right], 1)
    return q


def learned_values(agents: pl.DataFrame, settings: TrainingSettings) -> np.ndarray:
    trained = train_population(agents, settings)
    population = trained.population
    observation = torch.eye(STATES).expand(population.size, -1, -1)
    tau = acting_taus(population.keys.measure, torch.tensor(0), STATES, population.quantile_counts)
    q: np.ndarray = population.q_values(trained.state.online, observation, tau).detach().numpy()
    return q


@pytest.mark.parametrize(
    "algorithms",
    [
        ("dqn", "ib-dqn"),
        pytest.param(("double-dqn", "ib-double-dqn"), marks=pytest.mark.slow),
        pytest.param(("dueling-dqn",), marks=pytest.mark.slow),
        pytest.param(("rdq",), marks=pytest.mark.slow),
        pytest.param(("iqn", "ib-iqn"), marks=pytest.mark.slow),
    ],
    ids=lambda names: names[0],
)
def test_values_of_the_chain(algorithms: tuple[str, ...]) -> None:
    # Always exploring: every state and action is seen, and Q-learning is off-policy.
    own = AgentSettings(step_size=5e-3, discount=GAMMA, epsilon_end=1.0, beta=0.0, epsilon_steps=0)
    table = agent_table("tests/Chain-v0", algorithms, seeds=[0], k=[1.0, float(ACTIONS)], agent_settings=own)
    # Quantiles converge later than means. Largest errors of seeds 0 to 3: 0.0007, of quantiles 0.015.
    steps, tolerance = (1_500, 0.03) if "iqn" in algorithms else (600, 0.003)
    settings = TrainingSettings(
        initialization="paper",
        loss="half-squared",
        steps=steps,
        checkpoint_interval=300,
        eval_interval=steps,
        hidden=(64, 64),
        batch_size=64,
        learning_starts=50,
        update_interval=1,
        target_update_interval=10,
        step_size_schedule="linear",  # a constant one lets Adam leap once the gradients have vanished
        optimizer_epsilon=1e-3,  # as smaller epsilons do
        quantiles=8,
        target_quantiles=8,
        acting_quantiles=16,
        eval_episodes=4,
        eval_envs=4,
    )
    (agents,) = populations(table)
    assert agents["k"].to_list() == [0.0, 1.0, 2.0][: agents.height]
    found = learned_values(agents, settings)
    expected = optimal_values()
    for k, q in zip(agents["k"], found, strict=True):
        assert np.abs(q - expected).max() < tolerance, f"k = {k}: {q.round(3)} is not {expected}"
