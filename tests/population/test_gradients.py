"""An agent's gradient in a population against the gradient of its own module, alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import nn

from valueshare.envs import environment_spec
from valueshare.learning.algorithms import LossSettings, Taus, draw_taus
from valueshare.nn.torsos import NetworkShape
from valueshare.population.agents import agent_table, populations
from valueshare.population.compilation import compiled_if
from valueshare.population.learn import gradients_and_losses, learn
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, initial_state, make_population
from valueshare.replay.transitions import Batch

AGENTS, BATCH = 3, 16
SETTINGS = TrainingSettings(
    initialization="paper",
    loss="half-squared",
    steps=100,
    checkpoint_interval=100,
    eval_interval=100,
    hidden=(16, 8),
    batch_size=BATCH,
    quantiles=5,
    target_quantiles=4,
    acting_quantiles=3,
    kappa=0.3,
)


def a_population(algorithm: str, reduction: str = "mean") -> tuple[Population, State]:
    table = agent_table("CartPole-v1", algorithm, seeds=range(AGENTS), k=3.0)
    settings = TrainingSettings(**{**SETTINGS.to_json(), "reduction": reduction})
    spec = environment_spec("CartPole-v1", "gymnasium")
    population = make_population(populations(table)[0], settings, spec, torch.device("cpu"))
    state = initial_state(population)
    for value in state.target.values():  # a target network that is not the online one
        value.add_(0.01)
    return population, state


def a_batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        obs_tm1=torch.randn(AGENTS, BATCH, 4, generator=generator),
        a_tm1=torch.randint(2, (AGENTS, BATCH), generator=generator),
        r_t=torch.randn(AGENTS, BATCH, generator=generator),
        discount_t=torch.full((AGENTS, BATCH), 0.9),
        obs_t=torch.randn(AGENTS, BATCH, 4, generator=generator),
    )


def module_of(population: Population, weights: dict[str, torch.Tensor], agent: int) -> nn.Module:
    """One agent's module, made as a user would make it, with the weights of the stack."""
    k = population.agents["k"][agent]
    module = population.factory(NetworkShape((4,), 2, (16, 8)), k)
    module.load_state_dict({name: value[agent] for name, value in weights.items()}, strict=False)
    return module


def settings_of(population: Population, agent: int) -> LossSettings:
    values: list[Any] = [x[agent] if isinstance(x, torch.Tensor) else x for x in population.loss_settings]
    return LossSettings(*values)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("algorithm", ["ib-dqn", "ib-double-dqn", "dueling-dqn", "rdq", "ib-iqn"])
def test_gradient_in_a_population_is_the_gradient_alone(algorithm: str, reduction: str) -> None:
    population, state = a_population(algorithm, reduction)
    batch = a_batch()
    taus = draw_taus(population.keys.quantiles, 7, BATCH, population.quantile_counts)
    gradients, losses, _ = gradients_and_losses(population, state, batch, taus)

    for p in range(AGENTS):
        online = module_of(population, state.online.parameters, p)
        target = module_of(population, state.target, p)

        def call(module: nn.Module, obs: torch.Tensor, tau: torch.Tensor | None) -> torch.Tensor:
            inputs = (obs,) if tau is None else (obs, tau)
            outputs: torch.Tensor = module(*inputs)
            return outputs

        loss, _ = population.algorithm.loss(
            lambda obs, tau, m=online: call(m, obs, tau),
            lambda obs, tau, m=target: call(m, obs, tau),
            Batch(*(x[p] for x in batch)),
            settings_of(population, p),
            None if taus is None else Taus(*(x[p] for x in taus)),
        )
        reduced = loss.mean() if reduction == "mean" else loss.sum()
        reduced.backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(losses[p], reduced.detach())
        for name, parameter in online.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(gradients[name][p], parameter.grad)
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("algorithm", ["ib-dqn", "ib-double-dqn", "dueling-dqn", "rdq", "ib-iqn"])
def test_compiled_and_eager_code_differentiate_the_same_way(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for a CPU, networks go through `vmap`; else they take stacked weights: the same bits."""
    population, state = a_population(algorithm)
    taus = draw_taus(population.keys.quantiles, 7, BATCH, population.quantile_counts)
    with torch.no_grad():  # of a caller, which neither obeys
        eager, *outputs = gradients_and_losses(population, state, a_batch(), taus)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        traced, *traced_outputs = gradients_and_losses(population, state, a_batch(), taus)
    assert eager.keys() == traced.keys() == state.online.parameters.keys()
    for name, gradient in traced.items():
        assert torch.equal(eager[name], gradient), name
        assert eager[name].abs().sum() > 0, name
    assert all(torch.equal(a, b) and not a.requires_grad for a, b in zip(outputs, traced_outputs, strict=True))


class WithTensors(nn.Module):
    """A network with tensors that are neither parameters nor buffers, and with a count of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 2), 0
        self.units, self.limits = torch.tensor([1.0, 0.5, 0.25, 2.0]), [torch.tensor(-1.0), torch.tensor(1.0)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        outputs: torch.Tensor = self.linear((x * self.units).clamp(*self.limits))
        return outputs


def test_the_compiler_takes_networks_with_tensors_of_their_own() -> None:
    table = populations(agent_table("CartPole-v1", "dqn", seeds=range(AGENTS)))[0]
    spec = environment_spec("CartPole-v1", "gymnasium")
    population = make_population(table, SETTINGS, spec, torch.device("cpu"), lambda shape, k: WithTensors())
    state, batch = initial_state(population), a_batch()
    expected = gradients_and_losses(population, state, batch, None)
    of_weight, losses, outputs = torch.zeros(AGENTS, 2, 4), torch.zeros(AGENTS), torch.zeros(AGENTS, BATCH, 2)

    def step() -> None:
        found = gradients_and_losses(population, state, batch, None)
        of_weight.copy_(found.parameters["linear.weight"])
        losses.copy_(found.losses)
        outputs.copy_(population.forward(state.online, batch.obs_tm1, None))

    compiled_if(True, step)()
    assert expected.losses.abs().min() > 0
    torch.testing.assert_close(of_weight, expected.parameters["linear.weight"])
    torch.testing.assert_close(losses, expected.losses)
    torch.testing.assert_close(outputs, population.forward(state.online, batch.obs_tm1, None))


def test_the_gradient_of_a_parameter_that_the_network_does_not_use_is_zero() -> None:
    class WithUnused(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.unused = nn.Parameter(torch.ones(3))

    table = agent_table("CartPole-v1", "dqn", seeds=range(AGENTS))
    spec = environment_spec("CartPole-v1", "gymnasium")
    population = make_population(
        populations(table)[0], SETTINGS, spec, torch.device("cpu"), lambda shape, k: WithUnused()
    )
    gradients = gradients_and_losses(population, initial_state(population), a_batch(), None).parameters
    assert torch.equal(gradients["unused"], torch.zeros(AGENTS, 3))
    assert gradients["weight"].abs().sum() > 0


def test_training_without_compilation_does_not_import_the_compiler(tmp_path: Path) -> None:
    """Importing it takes seconds."""
    program = """
import sys, valueshare
small = {"steps": 40, "eval_interval": 40, "batch_size": 4, "learning_starts": 20, "eval_episodes": 1}
run = valueshare.train("CartPole-v1", "dqn", seeds=1, out=sys.argv[1], progress=False, **small)
assert run.records["mean_action_value"].count() == 1  # after updates
print({"torch._dynamo", "sympy"} & set(sys.modules))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "run")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["set()"]


def test_a_diverged_agent_is_frozen_and_the_others_go_on() -> None:
    population, state = a_population("dqn")
    for ring in (state.replay.observation, state.replay.reward):
        ring.normal_()
    for cursor in (state.replay.rows, state.replay.written):
        cursor.fill_(90)
    state.step.fill_(40)
    state.replay.reward[1] = float("inf")  # every target of agent 1 is infinite
    before = {name: value.clone() for name, value in state.online.parameters.items()}
    learn(population, state)
    state.step.fill_(41)
    learn(population, state)

    assert state.diverged_at.tolist() == [-1, 40, -1]
    for name, value in state.online.parameters.items():
        assert torch.equal(value[1], before[name][1])
        assert torch.isfinite(value).all()
        if "weight" in name:
            assert not torch.equal(value[0], before[name][0])
            assert not torch.equal(value[2], before[name][2])


def test_the_table_must_be_one_population() -> None:
    table = agent_table("CartPole-v1", ["dqn", "rdq"], seeds=[0])
    spec = environment_spec("CartPole-v1", "gymnasium")
    with pytest.raises(ValueError, match="cannot share a population"):
        make_population(table, SETTINGS, spec, torch.device("cpu"))
    with pytest.raises(ValueError, match="1 environments and 2 specs: give one spec per environment"):
        make_population(table[:1], SETTINGS, [spec, spec], torch.device("cpu"))
    assert [g["algorithm"].to_list() for g in populations(table)] == [["dqn"], ["rdq"]]
    assert isinstance(table, pl.DataFrame)
