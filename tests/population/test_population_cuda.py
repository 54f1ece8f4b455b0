"""The captured steps on a GPU against the plain ones on a CPU, and resume on a GPU."""

from pathlib import Path

import pytest
import torch

from valueshare.population.agents import AgentSettings, agent_table
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import flat
from valueshare.population.train import train_population

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SETTINGS = TrainingSettings(
    total_steps=120,
    phase_steps=40,
    eval_every=40,
    hidden=(16, 16),
    minibatch=16,
    replay_capacity=70,
    replay_start=20,
    update_every=1,
    target_every=10,
    quantiles=4,
    target_quantiles=4,
    acting_quantiles=4,
    eval_episodes=2,
    eval_copies=2,
    eval_episode_limit=20,
)


@pytest.mark.parametrize("algorithm", ["ib-dqn", "ib-double-dqn", "dueling-dqn", "rdq", "ib-iqn"])
def test_captured_steps_are_the_plain_ones(algorithm: str) -> None:
    table = agent_table("CartPole-v1", algorithm, seeds=[0, 1], k=[2.0])
    plain = train_population(table, SETTINGS, device="cpu")
    captured = train_population(table, SETTINGS, device="cuda")
    # Almost all actions are random at this epsilon, so the two see the same transitions; sums are
    # taken in another order on a GPU, so weights are close, not equal.
    assert torch.equal(captured.state.replay.action.cpu(), plain.state.replay.action)
    for name, value in plain.state.online.parameters.items():
        found = captured.state.online.parameters[name].cpu()
        torch.testing.assert_close(found, value, rtol=1e-2, atol=1e-3)


def test_resumed_is_uninterrupted_on_a_gpu(tmp_path: Path) -> None:
    own = AgentSettings(epsilon_steps=50)
    table = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 2.0], own=own)
    ticks = iter(range(10**9))
    train_population(
        table,
        SETTINGS,
        device="cuda",
        directory=tmp_path,
        should_stop=lambda: next(ticks) > 90,
    )
    resumed = train_population(table, SETTINGS, device="cuda", directory=tmp_path)
    whole = train_population(table, SETTINGS, device="cuda")
    assert resumed.records.equals(whole.records)
    tensors = flat(whole.state)
    for name, value in flat(resumed.state).items():
        assert torch.equal(value, tensors[name]), name
