"""Stacks of frames: against environments that give whole stacks, wherever the replay is."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from valueshare.envs import environment_spec
from valueshare.envs.base import EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.nn.torsos import NetworkShape
from valueshare.population.act import stack_frames
from valueshare.population.agents import agent_table, populations
from valueshare.population.settings import AgentSettings, ReplayDevice, TrainingSettings
from valueshare.population.state import state_dict
from valueshare.population.train import TrainingResult, train_population
from valueshare.replay import transitions

STACK = 3
SETTINGS = TrainingSettings(
    steps=150,
    checkpoint_interval=30,
    eval_interval=60,
    batch_size=8,
    replay_capacity=70,  # smaller than the run, and no multiple of a phase
    learning_starts=10,
    update_interval=2,
    target_update_interval=10,
    eval_episodes=3,
    eval_envs=2,
)
OWN = AgentSettings(epsilon_steps=50, step_size=1e-2)


def network(shape: NetworkShape, k: float) -> nn.Module:
    """The flattened stack through one hidden layer."""
    inputs = STACK * 3 * 2
    assert shape.observation == (STACK, 3, 2)
    return nn.Sequential(Bytes(), nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, shape.actions))


class Bytes(nn.Module):
    """Shapes: [B, S, 3, 2] uint8 -> [B, S·6]."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return frames.flatten(-3).float() / 255


@pytest.fixture(autouse=True)
def _stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Films are seen as stacks, which Gymnasium's specs know nothing of."""

    def spec(env: str, *arguments: Any) -> EnvironmentSpec:
        found = environment_spec(env, *arguments)
        return dataclasses.replace(found, stack=STACK) if "Film-" in env else found

    monkeypatch.setattr("valueshare.population.train.environment_spec", spec)


def train(env: str = "tests/Film-v0", settings: TrainingSettings = SETTINGS, **options: Any) -> TrainingResult:
    table = agent_table(env, "dqn", seeds=[0, 1, 2], agent_settings=OWN)
    return train_population(table, settings, network=network, **options)


@cache
def trained(settings: TrainingSettings = SETTINGS) -> TrainingResult:
    """The run in one go, which several tests compare with."""
    return train(settings=settings)


def assert_same(one: TrainingResult, other: TrainingResult, *, rings: bool = True) -> None:
    assert one.finished
    assert other.finished
    assert one.records.equals(other.records)
    tensors = state_dict(other.state)
    for name, value in state_dict(one.state).items():
        assert torch.equal(value, tensors[name]), name
    for ring in ("action", "reward", "discount", "row") if rings else ():
        assert torch.equal(getattr(one.state.replay, ring), getattr(other.state.replay, ring))


def test_shifting_by_hand() -> None:
    # Two agents with stacks of three frames of one pixel; the second one's episode has just begun.
    seen = torch.tensor([[[1], [2], [3]], [[4], [5], [6]]])
    found = stack_frames(seen, torch.tensor([[7], [8]]), torch.tensor([False, True]))
    assert found.squeeze(-1).tolist() == [[2, 3, 7], [8, 8, 8]]


def test_single_frames_train_as_whole_stacks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rings of frames forget a little earlier than rings of whole stacks: with room enough neither
    # forgets but by its capacity, and the two runs are one to the bit, evaluations included.
    monkeypatch.setattr(transitions, "default_rows", lambda capacity, stack=0: 3 * capacity)
    frames, stacks = train("tests/Film-v0"), train("tests/MovingPixels-v0")
    assert frames.population.env.observation_shape == (3, 2)
    assert stacks.population.env.observation_shape == (STACK, 3, 2)
    assert stacks.population.env.stack == 0
    assert frames.records["train_episodes"].sum() > 10
    assert frames.records["overestimation"].null_count() == 0
    assert_same(frames, stacks)


def test_an_extended_run_of_stacks_is_a_run_of_that_length(tmp_path: Path) -> None:
    # Phases of five steps begin new episodes: more often than every 128 steps.
    short = dataclasses.replace(SETTINGS, checkpoint_interval=5, replay_capacity=1_000)
    long = dataclasses.replace(short, steps=300)
    assert train(settings=short, directory=tmp_path).finished
    extended = train(settings=long, directory=tmp_path, extended_from=[short.steps])
    assert_same(extended, train(settings=long))


@pytest.mark.parametrize(
    ("replay_device", "delayed"),
    [
        ("cpu", False),
        ("disk", True),
        pytest.param("cpu", True, marks=pytest.mark.slow),
        pytest.param("disk", False, marks=pytest.mark.slow),
    ],
)
def test_a_replay_on_the_host_or_on_disk_gives_the_same_run(
    tmp_path: Path, replay_device: ReplayDevice, delayed: bool
) -> None:
    settings = dataclasses.replace(SETTINGS, delayed_actor=delayed)
    on_device = trained(settings)
    on_host = train(
        settings=dataclasses.replace(settings, replay_device=replay_device),
        directory=tmp_path if replay_device == "disk" else None,
    )
    assert_same(on_host, on_device)
    assert torch.equal(on_host.state.replay.observation, on_device.state.replay.observation)
    scratch = [path for path in tmp_path.iterdir() if path.is_file()]
    assert scratch == []  # the file of the ring has no name


@pytest.mark.parametrize(
    ("groups", "replay_device"),
    [
        (3, None),
        (2, "cpu"),
        pytest.param(2, None, marks=pytest.mark.slow),
        pytest.param(3, "cpu", marks=pytest.mark.slow),
    ],
)
def test_groups_that_take_turns_give_the_same_run(groups: int, replay_device: ReplayDevice | None) -> None:
    settings = dataclasses.replace(SETTINGS, replay_device=replay_device)
    assert_same(train(settings=settings, groups=groups), trained())


@pytest.mark.parametrize(
    ("replay_device", "stop_after"),
    [
        (None, 25),
        (None, 190),
        ("disk", 110),
        pytest.param(None, 110, marks=pytest.mark.slow),
        pytest.param("disk", 25, marks=pytest.mark.slow),
        pytest.param("disk", 190, marks=pytest.mark.slow),
    ],
)
def test_resumed_is_uninterrupted(tmp_path: Path, replay_device: ReplayDevice | None, stop_after: int) -> None:
    ticks = iter(range(10**9))
    settings = dataclasses.replace(SETTINGS, replay_device=replay_device, delayed_actor=True)
    stopped = train(settings=settings, directory=tmp_path, should_stop=lambda: next(ticks) >= stop_after)
    assert not stopped.finished
    # Where the replay is may change from one part of a run to the next.
    settings = dataclasses.replace(settings, replay_device="cpu" if replay_device is None else None)
    whole = trained(settings)
    assert_same(train(settings=settings, directory=tmp_path), whole)
    # The end is loaded, which is stored without its replay.
    assert_same(train(settings=settings, directory=tmp_path), whole, rings=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of its own modules, on import
def test_compiled_steps_are_the_eager_ones() -> None:
    settings = dataclasses.replace(SETTINGS, delayed_actor=True)
    eager = train(settings=settings)
    compiled = train(settings=settings, groups=2, compiled=True)
    # Fused kernels round differently in the last bits; actions of so short a run are the same.
    assert torch.equal(eager.state.replay.action, compiled.state.replay.action)
    assert torch.equal(eager.state.replay.observation, compiled.state.replay.observation)
    for name, value in eager.state.online.parameters.items():
        found = compiled.state.online.parameters[name]
        torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-5)


def test_frames_of_live_transitions_are_kept(tmp_path: Path) -> None:
    train(directory=tmp_path)
    folder = tmp_path / "checkpoints/population-0"
    # After phase 3 live transitions begin at 120 - 70 = 50, in phase 1.
    assert sorted(path.name for path in folder.glob("frames-*")) == [
        f"frames-{phase:06d}-0000.safetensors" for phase in (1, 2, 3)
    ]


def test_damaged_frames_are_noticed_and_the_checkpoint_before_used(tmp_path: Path) -> None:
    phases: list[int] = []
    options: dict[str, Any] = {
        "directory": tmp_path,
        "on_phase": lambda report: phases.append(report.phase),
    }
    train(should_stop=lambda: 3 in phases, **options)
    path = tmp_path / "checkpoints/population-0/frames-000003-0000.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    phases.clear()
    again = train(**options)
    assert phases == [3, 4]
    assert_same(again, trained())


def test_a_replay_on_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="`replay_device = 'cuda'` needs"):
        train(settings=dataclasses.replace(SETTINGS, replay_device="cuda"))
    with pytest.raises(InvalidInput, match="write one of cpu, cuda, disk"):
        dataclasses.replace(SETTINGS, replay_device="tape")  # type: ignore[arg-type]


def test_populations_by_family() -> None:
    table = agent_table(["a", "b", "c"], ["dqn", "iqn"], seeds=[0])
    own = [group["env"].to_list() for group in populations(table)]
    assert own == [["a"], ["a"], ["b"], ["b"], ["c"], ["c"]]
    family = {"a": "atari", "b": "atari", "c": "other"}
    together = [(g["env"].to_list(), g["algorithm"][0]) for g in populations(table, family)]
    assert together == [
        *((["a", "b"], "dqn"), (["a", "b"], "iqn")),
        *((["c"], "dqn"), (["c"], "iqn")),
    ]
    assert populations(table, family)[0].columns == table.columns
