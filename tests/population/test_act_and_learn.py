"""Acting, sampling, measuring and compiled steps, each against something written plainly."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from valueshare import MeanExpansion
from valueshare.envs import environment_spec
from valueshare.learning.randomness import integers, uniform
from valueshare.nn.torsos import NetworkShape
from valueshare.population.act import act, epsilon_greedy, prefetched_exploration
from valueshare.population.agents import agent_table
from valueshare.population.devices import training_on
from valueshare.population.evaluate import Scores
from valueshare.population.learn import gradients_and_losses, learn, record_value_metrics, sample
from valueshare.population.phase import _records
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.state import VALUE_METRICS, Population, State, initial_state, make_population
from valueshare.population.train import train_population
from valueshare.replay import transitions
from valueshare.value_metrics import action_gap, norms, relative_action_gap

SETTINGS = TrainingSettings(
    initialization="paper",
    loss="half-squared",
    steps=120,
    checkpoint_interval=60,
    eval_interval=60,
    hidden=(16, 16),
    batch_size=32,
    replay_capacity=50,
    learning_starts=20,
    update_interval=2,
    target_update_interval=20,
    eval_episodes=2,
    eval_envs=2,
    eval_episode_limit=20,
)


def filled(table: pl.DataFrame) -> tuple[Population, State]:
    """A population that has remembered 40 random transitions, none of which ended."""
    spec = environment_spec("CartPole-v1", "gymnasium")
    population = make_population(table, SETTINGS, spec, torch.device("cpu"))
    state = initial_state(population)
    generator = torch.Generator().manual_seed(0)
    p = population.size
    observation = torch.randn(p, 4, generator=generator)
    transitions.begin_episodes(state.replay, observation)
    for t in range(40):
        following = torch.randn(p, 4, generator=generator)
        transitions.add(
            state.replay,
            torch.randint(2, (p,), generator=generator),
            torch.full((p,), float(t)),
            torch.full((p,), 0.9),
            following,
            torch.zeros(p, dtype=torch.bool),
            following,
        )
        state.step.add_(1)
    return population, state


def test_exploration_in_blocks_is_that_of_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("valueshare.population.act.PREFETCHED_DRAWS", 10)  # of three agents: three steps
    annealed = AgentSettings(epsilon_start=0.75, epsilon_end=0.25, epsilon_steps=8)
    population, state = filled(agent_table("CartPole-v1", "dqn", seeds=range(3), agent_settings=annealed))
    exploration = prefetched_exploration(population, state.step)
    for t in (0, 1, 2, 3, 4, 7, 100, 2, 2**40):  # on, ahead, and back again
        state.step.fill_(t)
        explores, random_actions = exploration()
        epsilon = 0.75 - 0.5 * min(t, 8) / 8  # exact in floating point
        assert torch.equal(explores, uniform(population.keys.explore, t, 1)[:, 0] < epsilon)
        assert torch.equal(random_actions, integers(population.keys.action, t, 1, 2)[:, 0])


def test_each_agent_explores_by_its_own_coin_and_epsilon() -> None:
    own = [
        AgentSettings(epsilon_start=1.0, epsilon_end=1.0),
        AgentSettings(epsilon_start=0.0, epsilon_end=0.0),
        AgentSettings(epsilon_start=1.0, epsilon_end=0.0, epsilon_steps=80),  # 1/2 at step 40
    ]
    population, state = filled(agent_table("CartPole-v1", "dqn", seeds=[0, 1], agent_settings=own))
    observation = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    actions = act(population, state, observation).tolist()
    epsilons = [1.0, 1.0, 0.0, 0.0, 0.5, 0.5]
    for p in range(6):
        q = population.q_values(state.online, observation[:, None], None)[p, 0]
        coin = uniform(population.keys.explore[p : p + 1], 40, 1).item()
        random_action = integers(population.keys.action[p : p + 1], 40, 1, 2).item()
        assert actions[p] == (random_action if coin < epsilons[p] else q.argmax().item())


def test_epsilon_greedy_takes_the_first_of_equal_values() -> None:
    q = torch.tensor([[1.0, 3.0, 3.0], [1.0, 3.0, 3.0]])
    explores, choices = torch.tensor([False, True]), torch.tensor([0, 0])
    assert epsilon_greedy(q, explores, choices).tolist() == [1, 0]


def test_sampling_is_uniform_over_live_transitions() -> None:
    _, state = filled(agent_table("CartPole-v1", "dqn", seeds=[0, 1]))
    keys = torch.tensor([11, 12])
    draws = sample(state, keys, state.step, 40_000).r_t  # rewards are the numbers 0..39
    for p in range(2):
        counts = np.bincount(draws[p].long().numpy(), minlength=40)
        # Binomial(40,000, 1/40): mean 1,000, standard deviation 31; none of 40 beyond 5 of them.
        assert len(counts) == 40
        assert np.abs(counts - 1_000).max() < 155
    assert not torch.equal(draws[0], draws[1])


def test_measures_are_those_of_value_metrics() -> None:
    population, state = filled(agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 3.0]))
    record_value_metrics(population, state)
    batch = sample(state, population.keys.measure, state.step, SETTINGS.batch_size)
    q = population.q_values(state.online, batch.obs_tm1, None).detach().numpy()  # [P, B, A]
    k = np.array([0.0, 0.0, 3.0, 3.0])
    expected = np.stack([action_gap(q), *norms(q, k[:, None])], -1).mean(1)  # [P, VALUE_METRICS]
    assert VALUE_METRICS == ("action_gap", "q_mean", "q_norm", "z_mean", "z_norm")
    np.testing.assert_allclose(state.metric_sums.numpy(), expected, rtol=1e-4, atol=1e-6)
    assert state.metric_count.item() == 1


def test_the_relative_gap_of_records_is_that_of_value_metrics() -> None:
    population, state = filled(agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[2.0]))
    gaps: list[np.ndarray] = []  # [P] each
    values: list[np.ndarray] = []
    for _ in range(3):
        batch = sample(state, population.keys.replay, state.step, SETTINGS.batch_size)
        q = population.q_values(state.online, batch.obs_tm1, None).detach().numpy()  # [P, B, A]
        values.append(q.mean((1, 2)))
        learn(population, state)
        batch = sample(state, population.keys.measure, state.step, SETTINGS.batch_size)
        q = population.q_values(state.online, batch.obs_tm1, None).detach().numpy()
        gaps.append(action_gap(q).mean(1))
        record_value_metrics(population, state)
        state.step.add_(1)
    nothing = Scores(np.zeros(2), np.zeros(2, np.int64), np.zeros(2))
    records = _records(population, state, nothing, 40)
    for p in range(2):
        own = [gap[p] for gap in gaps], [value[p] for value in values]
        expected = relative_action_gap(*own)
        assert records["relative_action_gap"][p] == pytest.approx(expected, rel=1e-5)
        assert records["action_gap"][p] == pytest.approx(np.mean(own[0]), rel=1e-5)


def test_residuals_of_networks_with_a_baseline_of_their_own() -> None:
    for name in ("dueling-dqn", "rdq"):
        population, state = filled(agent_table("CartPole-v1", name, seeds=[0, 1]))
        record_value_metrics(population, state)
        batch = sample(state, population.keys.measure, state.step, SETTINGS.batch_size)
        found = dict(zip(VALUE_METRICS, state.metric_sums.T, strict=True))
        for p in range(2):  # one agent at a time, from the two streams of its own head
            one: Any = population.factory(NetworkShape((4,), 2, SETTINGS.hidden), 0.0)
            weights = {n: value[p] for part in state.online for n, value in part.items()}
            one.load_state_dict(weights)
            with torch.no_grad():
                features = one.torso(batch.obs_tm1[p])
                baseline, z = one.head.baseline(features), one.head.residual(features)
            if name == "dueling-dqn":  # q = B + (x - mean(x)): the residual of q is x, centred
                z = z - z.mean(-1, keepdim=True)
            q = z + baseline
            torch.testing.assert_close(found["q_norm"][p], q.norm(dim=-1).mean())
            torch.testing.assert_close(found["z_norm"][p], z.norm(dim=-1).mean())
            torch.testing.assert_close(found["z_mean"][p], z.mean(), atol=1e-6, rtol=1e-4)


def test_mean_action_values_of_learned_batches_are_kept() -> None:
    population, state = filled(agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[2.0]))
    expected = []
    for _ in range(3):
        batch = sample(state, population.keys.replay, state.step, SETTINGS.batch_size)
        q = population.q_values(state.online, batch.obs_tm1, None)
        expected.append(q.mean((1, 2)))
        learn(population, state)
        state.step.add_(1)
    torch.testing.assert_close(state.recent_action_values[:, :3], torch.stack(expected, 1))
    assert state.recent_action_values[:, 3:].abs().sum() == 0
    assert state.updates.item() == 3


@pytest.mark.parametrize("factor", [1e25, float("inf"), float("nan")])  # 1e25² overflows
def test_an_agent_with_a_huge_gradient_is_frozen_and_its_neighbour_learns_on(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    table = agent_table("CartPole-v1", "dqn", seeds=[0, 1])
    population, state = filled(table)
    before = {name: p.clone() for name, p in state.online.parameters.items()}
    _, undisturbed = filled(table)
    learn(population, undisturbed)

    def exploding(*arguments: Any) -> Any:
        gradients = gradients_and_losses(*arguments)
        assert gradients.losses.isfinite().all()
        scale = torch.tensor([factor, 1.0])
        scaled = {n: g * scale.view(-1, *[1] * (g.ndim - 1)) for n, g in gradients.parameters.items()}
        return gradients._replace(parameters=scaled)

    monkeypatch.setattr("valueshare.population.learn.gradients_and_losses", exploding)
    learn(population, state)
    assert state.diverged_at.tolist() == [40, -1]
    assert state.moments.updates.tolist() == [0, 1]
    for name, p in state.online.parameters.items():
        assert torch.equal(p[0], before[name][0])
        assert not state.moments.second[name][0].any()
        assert torch.equal(p[1], undisturbed.online.parameters[name][1])
        assert not torch.equal(p[1], before[name][1])


def test_drawing_weights_leaves_all_generators_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    filled(agent_table("CartPole-v1", "dqn", seeds=[0]))
    assert torch.equal(torch.get_rng_state(), before)
    assert seeded == []


def test_a_cuda_device_is_current_and_precision_is_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current: list[torch.device] = []

    @contextmanager
    def device(chosen: torch.device) -> Iterator[None]:
        current.append(chosen)
        try:
            yield
        finally:
            current.pop()

    def switches() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    monkeypatch.setattr(torch.cuda, "device", device)
    before = switches()
    for tf32, inside in ((True, ("high", True)), (False, ("highest", False))):
        with suppress(KeyboardInterrupt), training_on(torch.device("cuda:1"), tf32=tf32):
            assert current == [torch.device("cuda:1")]
            assert switches() == inside
            raise KeyboardInterrupt
        assert switches() == before
        assert current == []
    with training_on(torch.device("cpu"), tf32=True):
        assert switches() == before


class Own(nn.Module):
    """A network as a user writes it: knows nothing of populations, seeds or stacking."""

    def __init__(self, inputs: int, actions: int, k: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, actions), MeanExpansion(k))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.layers(observation)
        return q


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_users_own_network_learns(optimizer: Literal["adam", "rmsprop"]) -> None:
    def factory(shape: NetworkShape, k: float) -> nn.Module:
        return Own(shape.observation[0], shape.actions, k)

    settings = dataclasses.replace(SETTINGS, optimizer=optimizer, optimizer_epsilon=0.01)
    table = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 5.0])
    trained = train_population(table, settings, network=factory)
    scale = trained.state.online.buffers["layers.3.scale"]
    assert scale.tolist() == [1.0, 1.0, 6.0, 6.0]
    weight = trained.state.online.parameters["layers.0.weight"]
    again = train_population(table, settings, network=factory)
    assert torch.equal(again.state.online.parameters["layers.0.weight"], weight)
    start = initial_state(trained.population).online.parameters["layers.0.weight"]
    assert not torch.equal(start[0], start[1])  # seeds differ
    assert torch.equal(start[0], start[2])  # same seed, other k
    assert all(not torch.equal(w, s) for w, s in zip(weight, start, strict=True))


@pytest.mark.parametrize("algorithm", ["ib-dqn", pytest.param("iqn", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of its own modules, on import
def test_every_step_can_be_traced_as_one_graph(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half of compilation, which refuses what it cannot trace; it takes seconds."""
    compile_ = torch.compile

    def traced(function: Any, **options: Any) -> Any:
        return compile_(function, **{**options, "backend": "eager", "options": None})

    table = agent_table("CartPole-v1", algorithm, seeds=[0, 1], k=[2.0])
    eager = train_population(table, SETTINGS)
    monkeypatch.setattr(torch, "compile", traced)
    found = train_population(table, SETTINGS, compiled=True)
    assert torch.equal(eager.state.replay.action, found.state.replay.action)
    for name, value in eager.state.online.parameters.items():
        torch.testing.assert_close(found.state.online.parameters[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of its own modules, on import
def test_compiled_steps_are_the_eager_ones() -> None:
    table = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 2.0])
    eager = train_population(table, SETTINGS)
    compiled = train_population(table, SETTINGS, compiled=True)
    # Fused kernels round differently in the last bits, so weights are close, not equal; actions of
    # so short a run are the same.
    assert torch.equal(eager.state.replay.action, compiled.state.replay.action)
    for name, value in eager.state.online.parameters.items():
        torch.testing.assert_close(compiled.state.online.parameters[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("machine", "own", "enabled"), [
    ("aarch64", False, False), ("aarch64", True, True), ("x86_64", False, True),
])  # fmt: skip
def test_onednn_is_off_for_products_on_arm(
    monkeypatch: pytest.MonkeyPatch, machine: str, own: bool, enabled: bool
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    onednn: Any = torch.backends.mkldnn
    monkeypatch.setattr(onednn, "enabled", True)
    with training_on(torch.device("cpu"), tf32=False, own_network=own):
        assert onednn.enabled is enabled
    assert onednn.enabled is True
