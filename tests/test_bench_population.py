"""The population benchmark measures what it says, on rings that are really full."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from valueshare.benchmarks.population import (
    PARTS,
    Timing,
    _check_memory,
    measure,
    preset_named,
    run,
)
from valueshare.benchmarks.training_loop import fill_with_copies, parts_of, training_engine
from valueshare.envs import environment_spec
from valueshare.envs.gymnax import GymnaxEnvironments
from valueshare.errors import InvalidInput
from valueshare.population import memory
from valueshare.population.agents import agent_table
from valueshare.population.engine import Engine
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.on_device import DeviceExecutor
from valueshare.population.loop import SerialExecutor
from valueshare.population.presets import Preset
from valueshare.population.state import initial_state, make_population
from valueshare.replay import transitions


def small() -> Preset:
    preset = preset_named("generic")
    changes = {"hidden": (8,), "batch_size": 4, "replay_capacity": 300, "steps": 300}
    return preset._replace(settings=replace(preset.settings, **changes))  # type: ignore[arg-type]


def test_shares_and_rates_are_arithmetic_of_the_milliseconds() -> None:
    timing = Timing(8, dict(zip(PARTS, (4.0, 5.0, 1.0, 0.5, 10.0), strict=True)))
    assert timing.limit == "learning"  # 5 ms against 4 ms
    assert timing.share == 0.5  # 5 ms of 10 ms
    assert timing.rate("whole loop") == 800.0  # 8 agents in 10 ms


def test_every_part_is_timed_and_can_be_left_out() -> None:
    timing = measure(2, small(), env="CartPole-v1", seconds=0.2)
    assert tuple(timing.ms) == PARTS
    assert all(ms > 0 for ms in timing.ms.values())
    one = measure(2, small(), env="CartPole-v1", seconds=0.1, only=("whole loop",))
    assert tuple(one.ms) == ("whole loop",)


@pytest.mark.parametrize("groups", [1, 2])
def test_learning_alone_is_that_of_training(groups: int) -> None:
    changes = {"learning_starts": 10, "update_interval": 4, "gradient_steps": 2, "delayed_actor": True}
    settings = replace(small().settings, **changes)  # type: ignore[arg-type]
    table = agent_table("CartPole-v1", "dqn", seeds=range(2))
    population = make_population(table, settings, environment_spec("CartPole-v1"), torch.device("cpu"))
    state = initial_state(population)
    engine = training_engine(population, state, compiled=False, threads=1, groups=groups)
    executor, parts = engine.executor, parts_of(engine)
    if isinstance(executor, SerialExecutor):
        actor = executor.actor.online.parameters
    else:
        assert isinstance(executor, GroupExecutor)
        actor = executor.grouped.learner.actor
    one = torch.ones(2)
    transitions.add(state.replay, one.long(), one, one, torch.ones((2, 4)), one < 0, torch.ones((2, 4)))
    before: dict[str, torch.Tensor] = {}
    for t in range(20):
        if t == 16:
            before = {name: value.clone() for name, value in state.online.parameters.items()}
        parts.learn(t)
    engine.close()
    assert int(state.updates) == 4  # two each at 12 and 16
    for name, value in before.items():  # agents act by the weights before the updates of step 16
        assert torch.equal(actor[name], value), name
    assert any(not torch.equal(state.online.parameters[name], value) for name, value in before.items())


def test_environments_on_the_device_are_measured_there() -> None:
    """The executor of Gymnax's environments with JAX on a GPU; on a CPU, JAX and PyTorch share memory as well."""
    pytest.importorskip("gymnax")
    games = ["Breakout-MinAtar"] * 2
    table = agent_table(games[0], "dqn", seeds=range(2))
    settings = replace(small().settings, learning_starts=1, update_interval=1)
    population = make_population(table, settings, environment_spec(games), torch.device("cpu"))
    state = initial_state(population)
    executor = DeviceExecutor(population, state, GymnaxEnvironments(games), compiled=False)
    executor.reset([1, 2])
    parts = parts_of(Engine(population, state, executor, None))
    for t in range(3):
        parts.act()
        parts.step(np.array([t, 5 - t]))
        parts.store()
        parts.learn(t)
    assert state.replay.written.tolist() == [3, 3]
    assert int(state.updates) == 2  # at steps 1 and 2
    assert executor.sent_action.tolist() == [2, 3]


def test_a_filled_ring_holds_copies_of_real_steps_to_its_end() -> None:
    replay = transitions.empty(1, 10, (1,))
    transitions.begin_episodes(replay, torch.tensor([[0.0]]))
    for t in (1.0, 2.0, 3.0):  # observations 0, 1, 2, 3; rewards 1, 2, 3
        seen, no = torch.tensor([[t]]), torch.tensor([False])
        number = torch.tensor([int(t)])
        transitions.add(replay, number, torch.tensor([t]), torch.tensor([0.9]), seen, no, seen)
    fill_with_copies(replay)
    assert int(transitions.size(replay)) == 10
    batch = transitions.gather(replay, torch.arange(10).unsqueeze(0))
    # Rows repeat 0 1 2 3, transitions repeat 1 2 3; the oldest are the slack, and evicted.
    kept = range(transitions.SAMPLING_LAG, transitions.SAMPLING_LAG + 10)
    assert batch.obs_tm1.flatten().tolist() == [a % 4 for a in kept]
    assert batch.r_t.flatten().tolist() == [1 + a % 3 for a in kept]


def test_the_table_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    run(agents=1, preset="CartPole-v1", env="CartPole-v1", device="cpu", seconds=0.1)
    said = capsys.readouterr().out
    for part in ("environments alone", "learning alone", "acting alone", "whole loop"):
        assert part in said
    assert "torch" in said


def test_bad_input_is_one_line() -> None:
    with pytest.raises(InvalidInput, match="agents = 0"):
        measure(0, small())
    with pytest.raises(InvalidInput, match="seconds = 0"):
        measure(1, small(), seconds=0)
    with pytest.raises(InvalidInput, match="write one of generic, lunarlander-paper, CartPole-v1"):
        preset_named("chess")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidInput, match="CUDA device not available"):
            measure(1, small(), device="cuda")


def test_more_agents_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of agents whose very table would not fit; as many as are said to fit, do."""
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2 * 10**9)
    with pytest.raises(InvalidInput, match="would fit; write fewer agents") as caught:
        measure(10**15, small(), env="CartPole-v1")
    fit = int(str(caught.value).split("in reserve: about ")[1].split(" would")[0].replace(",", ""))
    preset, cpu = small(), torch.device("cpu")
    _check_memory(fit, preset, "CartPole-v1", cpu)
    with pytest.raises(InvalidInput, match=f": about {fit:,} would fit"):
        _check_memory(fit + 1, preset, "CartPole-v1", cpu)
