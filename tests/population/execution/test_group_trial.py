"""The trial of numbers of groups: what is chosen, what is closed, and that it changes nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from valueshare.envs import environment_spec
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.population import engine as engines
from valueshare.population.agents import agent_table
from valueshare.population.checkpoints.files import read_manifest
from valueshare.population.devices import release_memory
from valueshare.population.engine import (
    TRIAL_STEPS,
    Engine,
    asynchronous_groups,
    candidate_groups,
    has_trial,
    make_engine,
)
from valueshare.population.execution import group_trial
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all
from valueshare.population.execution.group_trial import GroupTrial, measured_rates
from valueshare.population.loop import OnStep
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, initial_state, make_population, state_dict
from valueshare.population.train import TrainingResult, train_population
from valueshare.records import CheckpointPaths

AGENTS = agent_table("CartPole-v1", "ib-dqn", seeds=range(4), k=[2.0])
SETTINGS = TrainingSettings(
    steps=60,
    checkpoint_interval=20,
    eval_interval=60,
    eval_episodes=1,
    eval_envs=1,
    eval_episode_limit=10,
    hidden=(8,),
    batch_size=4,
    learning_starts=6,
    update_interval=4,
    target_update_interval=6,
    replay_capacity=20,  # so that rings wrap, in the trial too
    delayed_actor=True,
)


ON_GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EnvironmentProcess]:
    """Environments are in processes, on 16 cores; the processes that were started."""
    processes: list[EnvironmentProcess] = []

    class Noted(EnvironmentProcess):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            processes.append(self)

    monkeypatch.setattr(engines, "EnvironmentProcess", Noted)
    monkeypatch.setattr(engines, "prefers_processes", lambda *_: True)
    monkeypatch.setattr(engines, "available_cores", lambda: 16)
    monkeypatch.setattr(group_trial, "ROUND_SECONDS", 0.01)
    return processes


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """The rates that a trial finds: its loops do run, but not by the clock."""
    found = {2: 100.0, 4: 200.0}

    def measured(*args: Any) -> dict[int, list[float]]:
        return {count: [found[count]] for count in measured_rates(*args)}

    monkeypatch.setattr(group_trial, "measured_rates", measured)
    return found


def four_agents(device: str = "cpu") -> Population:
    return make_population(AGENTS, SETTINGS, environment_spec("CartPole-v1", "gymnasium"), torch.device(device))


def made(device: str = "cpu", **options: Any) -> Engine:
    population = four_agents(device)
    return make_engine(population, initial_state(population), compiled=False, evaluates=False, **options)


def numbers(engine: Engine) -> dict[str, torch.Tensor]:
    """All that training has written; of the rings only what can be sampled, by its number."""
    replay = engine.state.replay
    values = {name: value.clone() for name, value in state_dict(engine.state).items()}
    for agent in range(AGENTS.height):
        stored = torch.arange(int(replay.oldest[agent]), int(replay.written[agent]), device=replay.action.device)
        live = stored % replay.action.shape[1]
        for name in ("action", "reward", "discount", "row"):
            values[f"{name} of {agent}"] = getattr(replay, name)[agent, live].clone()
        rows = replay.row[agent, live] % replay.observation.shape[1]
        values[f"observation of {agent}"] = replay.observation[agent, rows].clone()
    return values


def trained(engine: Engine) -> dict[str, torch.Tensor]:
    episodes = TrainingEpisodes(AGENTS.height)
    for start, end in ((0, 31), (31, 60)):
        engine.executor.reset(range(start, start + AGENTS.height))
        engine.executor.run(range(start, end), lambda step: None, episodes)
    engine.close()
    returns = {"returns": torch.from_numpy(episodes.return_sum), "count": torch.from_numpy(episodes.episode_count)}
    return {name: value.cpu() for name, value in {**numbers(engine), **returns}.items()}


def are_closed(processes: Sequence[EnvironmentProcess]) -> list[bool]:
    return [process._child is None for process in processes]


class Clocked:
    """An executor whose steps take so many seconds by a clock that only they move."""

    def __init__(self, now: list[float], seconds: Callable[[float], float]) -> None:
        self._now, self._seconds = now, seconds
        self.ranges: list[range] = []
        self.resets = 0

    def reset(self, seeds: Sequence[int]) -> None:
        self.resets += 1

    def run(self, steps: range, on_step: OnStep, episodes: TrainingEpisodes | None) -> None:
        self.ranges.append(steps)
        self._now[0] += len(steps) * self._seconds(self._now[0])

    def close(self) -> None:
        pass


def test_rates_are_those_of_steps_with_updates_in_turn() -> None:
    population = four_agents()
    now = [0.0]
    two, four = Clocked(now, lambda _: 0.0125), Clocked(now, lambda _: 0.00625)
    found = measured_rates(population, initial_state(population), {2: two, 4: four}, lambda step: None, lambda: now[0])
    # Four agents: 4 / 0.0125 and 4 / 0.00625 agent-steps per second.
    assert found == {2: pytest.approx([320.0] * 3), 4: pytest.approx([640.0] * 3)}
    assert two.resets == four.resets == group_trial.ROUNDS
    # Of three ranges in each round, the last is timed: 0.5 s are 40 and 80 steps, with 10 and 20 updates.
    assert [len(steps) for steps in two.ranges[2::3]] == [40] * 3
    assert [len(steps) for steps in four.ranges[2::3]] == [80] * 3
    # No step is made twice. The first update is at step 8, as in training.
    everything = sorted([*two.ranges, *four.ranges], key=lambda steps: steps.start)
    assert everything[0] == range(8 + 4 * group_trial.WARM_UP_UPDATES)
    assert all(one.stop == other.start for one, other in pairwise(everything))


def test_a_machine_that_becomes_slower_does_not_favour_the_first() -> None:
    population, now = four_agents(), [0.0]
    two = Clocked(now, lambda t: 0.010 if t < 2 else 0.030)
    four = Clocked(now, lambda t: 0.008 if t < 2 else 0.024)
    found = measured_rates(population, initial_state(population), {2: two, 4: four}, lambda step: None, lambda: now[0])
    # Two groups had a fast round, four groups had none. The medians of three rounds: 4 / 0.030 and 4 / 0.024.
    assert GroupTrial(found, default=2).rates == pytest.approx({2: 400 / 3, 4: 500 / 3})


@pytest.mark.parametrize(
    ("rounds", "default", "chosen"),
    [
        ({2: [1.0, 1.0], 4: [3.0, 3.0], 8: [2.0, 2.0]}, 2, 4),
        ({2: [3.0, 3.0], 4: [3.0, 3.0]}, 4, 4),  # not faster
        ({4: [3.0, 3.0], 8: [2.9, 9.0]}, 4, 4),  # faster by the median, in one round of two
        ({4: [3.0, 9.0], 8: [3.1, 9.1]}, 4, 8),  # faster in both
        ({8: [3.0], 4: [3.0], 2: [1.0]}, 1, 4),  # one group was not tried: of equal numbers the smaller
    ],
)
def test_a_number_other_than_the_default_is_faster_in_every_round(
    rounds: dict[int, list[float]], default: int, chosen: int
) -> None:
    assert GroupTrial(rounds, default).chosen == chosen


def test_a_trial_in_one_line() -> None:
    trial = GroupTrial({2: [12_576.4], 4: [13_353.0]}, default=2)
    assert trial.summary == "groups of agents: 4, the fastest of a trial (2: 12,576, 4: 13,353 agent-steps/s)"
    assert trial._replace(default=4).summary == (
        "groups of agents: 4, no other number was faster in every round of a trial (2: 12,576, 4: 13,353 agent-steps/s)"
    )


@pytest.mark.parametrize(
    ("agents", "threads", "candidates"),
    [
        (16, 16, (2, 4, 8)),
        (16, 64, (2, 4, 8)),  # sixteen are not tried
        (16, 15, (2, 4)),  # eight would have fewer than two threads each
        (7, 16, (2, 4)),
        (3, 16, ()),  # only two would fit
        (16, 7, ()),
    ],
)
def test_candidates_fit_the_agents_and_the_threads(agents: int, threads: int, candidates: tuple[int, ...]) -> None:
    assert candidate_groups(agents, threads) == candidates


@pytest.mark.parametrize(
    ("best", "device"),
    [(2, "cpu"), (4, "cpu"), pytest.param(2, "cuda", marks=ON_GPU), pytest.param(4, "cuda", marks=ON_GPU)],
)
def test_a_run_after_a_trial_is_the_run_with_that_number_of_groups(
    started: list[EnvironmentProcess], rates: dict[int, float], best: int, device: str
) -> None:
    rates[best] = 1_000.0
    expected = trained(made(device, groups=best))
    started.clear()
    engine = made(device, trial=True)
    assert engine.trial is not None
    assert (engine.groups, engine.trial.rates) == (best, rates)
    assert are_closed(started) == [count != best for count in (2, 4) for _ in range(count)]
    found = trained(engine)
    assert are_closed(started) == [True] * 6
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert int(found["updates"]) == 13  # at 8, 12, ..., 56: those of the trial are not counted
    assert found["count"].sum() > 0


def test_a_trial_leaves_the_state_as_it_was(started: list[EnvironmentProcess], rates: dict[int, float]) -> None:
    population = four_agents()
    fresh, state = initial_state(population), initial_state(population)
    make_engine(population, state, compiled=False, evaluates=False, trial=True).close()
    before = state_dict(fresh)
    for name, value in state_dict(state).items():
        assert torch.equal(value, before[name]), name
    assert state.replay.action.any()  # the loops did run
    assert started


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_memory_of_a_released_graph_is_free() -> None:
    device, megabytes = torch.device("cuda"), 64
    total = torch.zeros((), device=device)

    def add() -> None:
        total.add_(torch.ones(megabytes * 2**18, device=device).sum())  # 4 bytes each

    step = GraphedStep(add, device, compiled=False)
    capture_all([step], device)
    release_memory(device)
    held = torch.cuda.memory_reserved()
    step.release()
    release_memory(device)
    assert held - torch.cuda.memory_reserved() >= megabytes * 2**20


def test_a_trial_that_is_ended_leaves_no_processes(started: list[EnvironmentProcess]) -> None:
    steps = iter(range(10**9))

    def stop() -> None:
        if next(steps) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(trial=True, on_trial_step=stop)
    assert are_closed(started) == [True] * 6


@pytest.mark.parametrize(("given", "threads", "groups"), [(3, None, 3), (None, 4, 1)])
def test_a_given_number_and_few_threads_have_no_trial(
    started: list[EnvironmentProcess], given: int | None, threads: int | None, groups: int
) -> None:
    engine = made(trial=True, groups=given, threads=threads)
    engine.close()
    assert (engine.groups, engine.trial, len(started)) == (groups, None, groups)  # processes, so asynchronous


def train(directory: Path | None, stop_after: int | None = None, **options: Any) -> tuple[TrainingResult, list[str]]:
    """Train in a folder; with `stop_after`, until that phase is finished. Also the notes."""
    notes: list[str] = []
    phases: list[int] = []
    result = train_population(
        AGENTS,
        SETTINGS,
        directory=directory,
        backend="gymnasium",
        on_phase=lambda report: phases.append(report.phase),
        should_stop=lambda: stop_after in phases,
        on_note=notes.append,
        **options,
    )
    return result, notes


def stored_groups(directory: Path, phase: int) -> int | None:
    return read_manifest(CheckpointPaths(directory, "population-0").manifest(phase)).groups


def test_a_resumed_run_has_the_number_that_was_found(
    tmp_path: Path, started: list[EnvironmentProcess], rates: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "TRIAL_STEPS", 60)
    rates[2] = 300.0
    _, notes = train(tmp_path, stop_after=0)
    assert notes == ["groups of agents: 2, the fastest of a trial (2: 300, 4: 200 agent-steps/s)"]
    assert (len(started), stored_groups(tmp_path, 0)) == (2 + 4, 2)
    rates[4] = 400.0  # would be chosen now
    resumed, notes = train(tmp_path)
    assert (len(started), notes) == (2 + 4 + 2, [])
    assert [stored_groups(tmp_path, phase) for phase in (1, 2)] == [2, 2]
    assert all(are_closed(started))
    at_once, _ = train(None, groups=2)
    for name, value in state_dict(at_once.state).items():
        assert torch.equal(state_dict(resumed.state)[name], value), name
    assert resumed.records.equals(at_once.records)


def test_a_run_of_one_phase_that_is_extended_keeps_its_number(
    tmp_path: Path, started: list[EnvironmentProcess], rates: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last phase, the only one, is run again."""
    monkeypatch.setattr(engines, "TRIAL_STEPS", 20)
    short = replace(SETTINGS, steps=20, eval_interval=20)
    rates[2] = 300.0
    train_population(AGENTS, short, directory=tmp_path, backend="gymnasium")
    assert stored_groups(tmp_path, 0) == 2
    rates[4] = 400.0
    notes: list[str] = []
    longer = replace(short, steps=40)
    train_population(AGENTS, longer, directory=tmp_path, backend="gymnasium", on_note=notes.append, extended_from=(20,))
    assert (notes, [stored_groups(tmp_path, phase) for phase in (0, 1)]) == ([], [2, 2])


def test_groups_in_threads_are_not_stored(tmp_path: Path) -> None:
    train(tmp_path, stop_after=0, groups=2)
    assert stored_groups(tmp_path, 0) is None


def test_long_update_intervals_have_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TRIAL_STEPS", 60)
    assert has_trial(SETTINGS)
    assert not has_trial(replace(SETTINGS, update_interval=100))


def test_a_number_that_is_given_wins_over_the_stored_one(
    tmp_path: Path, started: list[EnvironmentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "TRIAL_STEPS", 60)
    _, notes = train(tmp_path, stop_after=0, groups=3)
    assert (len(started), notes, stored_groups(tmp_path, 0)) == (3, [], 3)
    resumed, _ = train(tmp_path, stop_after=1, groups=1)  # the same run: its fingerprint has no groups
    assert (len(started), stored_groups(tmp_path, 1)) == (3 + 1, 1)
    assert not resumed.finished


def test_a_checkpoint_of_an_earlier_version_is_resumed_without_a_trial(
    tmp_path: Path, started: list[EnvironmentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "TRIAL_STEPS", 60)
    with monkeypatch.context() as earlier:
        earlier.setattr(Engine, "process_groups", None)  # it stored none
        train(tmp_path, stop_after=0, groups=2)
    manifest = CheckpointPaths(tmp_path, "population-0").manifest(0)
    assert '"groups"' not in manifest.read_text()
    _, notes = train(tmp_path)
    assert (len(started), notes) == (2 + asynchronous_groups(4, 16), [])


def test_a_short_run_has_no_trial(started: list[EnvironmentProcess]) -> None:
    assert SETTINGS.steps < TRIAL_STEPS
    assert not has_trial(SETTINGS)
    _, notes = train(None)
    assert (len(started), notes) == (asynchronous_groups(4, 16), [])


def test_a_request_to_stop_ends_a_trial(started: list[EnvironmentProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TRIAL_STEPS", 60)
    polls = iter(range(10**9))
    result = train_population(AGENTS, SETTINGS, backend="gymnasium", should_stop=lambda: next(polls) == 10)
    assert (result.finished, result.records.height) == (False, 0)
    assert are_closed(started) == [True] * 6
