"""Groups in threads: who waits for whom, and how all end when one of them fails."""

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from slow_environments import SlowEnvironments

from valueshare.envs import environment_spec
from valueshare.envs.base import EnvironmentSpec, StepResult
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.agents import agent_table
from valueshare.population.engine import Engine, make_engine
from valueshare.population.execution import threaded
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.groups import Group, GroupedPopulation
from valueshare.population.execution.learner import is_due
from valueshare.population.execution.threaded import UpdateBarrier
from valueshare.population.loop import OnStep
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import initial_state, make_population

SETTINGS = TrainingSettings(
    steps=60,
    checkpoint_interval=60,
    eval_interval=60,
    hidden=(8,),
    batch_size=4,
    learning_starts=10,
    update_interval=4,
    target_update_interval=6,
)
LONG = replace(SETTINGS, steps=10**9, checkpoint_interval=10**9, eval_interval=10**9, replay_capacity=100)


def made(groups: int, settings: TrainingSettings = SETTINGS) -> Engine:
    table = agent_table("tests/Chain-v0", "dqn", seeds=range(6))
    spec = environment_spec("tests/Chain-v0")
    population = make_population(table, settings, spec, torch.device("cpu"))
    engine = make_engine(population, initial_state(population), compiled=False, groups=groups, evaluates=False)
    engine.executor.reset(range(6))
    return engine


def grouped(engine: Engine) -> GroupedPopulation:
    assert isinstance(engine.executor, GroupExecutor)
    return engine.executor.grouped


def with_groups(engine: Engine, groups: Iterable[Group], **other: Any) -> Engine:
    changed = grouped(engine)._replace(groups=tuple(groups), **other)
    return engine._replace(executor=GroupExecutor(changed))


def run(engine: Engine, start: int, end: int, on_step: OnStep = lambda step: None) -> None:
    engine.executor.run(range(start, end), on_step, None)


def test_steps_are_counted_for_the_agents_that_made_them() -> None:
    episodes = TrainingEpisodes(3)
    nobody, both = np.zeros(2, np.bool_), np.ones(2, np.bool_)
    seen = np.zeros((2, 1), np.float32)
    reward = np.array([1.0, 2.0], np.float32)
    episodes.step(slice(1, 3), StepResult(seen, reward, nobody, nobody, seen))
    episodes.step(slice(1, 3), StepResult(seen, reward, nobody, both, seen))
    episodes.step(slice(0, 1), StepResult(seen[:1], reward[:1], nobody[:1], nobody[:1], seen[:1]))
    assert episodes.return_sum.tolist() == [0.0, 2.0, 4.0]
    assert episodes.episode_count.tolist() == [0, 1, 1]
    assert episodes.episode_return.tolist() == [1.0, 0.0, 0.0]


def test_updates_are_due_after_the_replay_has_started() -> None:
    due = [t for t in range(25) if is_due(SETTINGS, t)]
    assert due == [12, 16, 18, 20, 24]  # multiples of 4, and of 6 for the target network


def test_the_last_to_arrive_makes_the_update() -> None:
    made_by: list[str] = []
    barrier = UpdateBarrier(2, lambda t: made_by.append(f"{t} by {threading.current_thread().name}"))

    def first() -> None:
        barrier.arrive(4)
        barrier.wait(4)

    thread = threading.Thread(target=first, name="first")
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
    assert made_by == []
    barrier.arrive(4)
    thread.join(60)
    assert made_by == [f"4 by {threading.current_thread().name}"]


class Broken(SlowEnvironments):
    """Environments that fail after so many steps."""

    left = 0

    def receive(self) -> StepResult:
        if self.left == 0:
            raise RuntimeError("the emulator is gone")
        self.left -= 1
        return super().receive()


def with_broken(engine: Engine, failing: int, steps: int) -> Engine:
    groups = list(grouped(engine).groups)
    broken = Broken(groups[failing], 0)
    broken.left = steps
    groups[failing] = groups[failing]._replace(environments=broken)
    return with_groups(engine, groups)


def group_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("valueshare-group")]


# After 0 steps; after 12, when the others wait for the update of step 12; and without updates.
@pytest.mark.parametrize(("steps", "learning_starts"), [(0, 10), (12, 10), (5, 10**8)])
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_what_one_group_raises_ends_all_and_is_raised(failing: int, steps: int, learning_starts: int) -> None:
    engine = with_broken(made(3, replace(LONG, learning_starts=learning_starts)), failing, steps)
    with pytest.raises(RuntimeError, match="the emulator is gone"):
        run(engine, 0, 10**9)
    assert group_threads() == []


def test_what_an_update_raises_ends_all_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(learner: object, settings: object, t: int, on_release: object) -> None:
        if t == 16:
            raise RuntimeError("no update")

    monkeypatch.setattr(threaded, "update_due", failing)
    with pytest.raises(RuntimeError, match="no update"):
        run(made(3), 0, 10**9)
    assert group_threads() == []


def test_a_thread_that_cannot_begin_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(threads: int) -> None:
        raise RuntimeError("no threads")

    monkeypatch.setattr(torch, "set_num_threads", refused)
    with pytest.raises(RuntimeError, match="no threads"):
        run(made(2), 0, 10**9)


def test_who_waits_for_slower_groups_still_polls() -> None:
    engine = made(2, replace(LONG, learning_starts=10**8))
    let_go = threading.Event()

    class Stuck(SlowEnvironments):
        def receive(self) -> StepResult:
            let_go.wait(10)
            return super().receive()

    first, second = grouped(engine).groups
    stuck = second._replace(environments=Stuck(second, 0))
    free = replace(engine.population, env=other_backend(engine))
    engine = with_groups(engine, (first, stuck), population=free)
    polled: list[int] = []

    def poll(step: int) -> None:
        polled.append(step)
        if len(polled) == 4:
            let_go.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(engine, 0, 3, poll)
    assert polled == [0, 1, 2, 2]


def other_backend(engine: Engine) -> EnvironmentSpec:
    """As if its environments were not Gymnasium's, which step one group at a time."""
    return replace(engine.population.env, backend="envpool")


def test_environments_of_gymnasium_step_one_group_at_a_time() -> None:
    inside: set[int] = set()
    together: list[int] = []

    class Watched(SlowEnvironments):
        def receive(self) -> StepResult:
            inside.add(id(self))
            together.append(len(inside))
            result = super().receive()
            inside.discard(id(self))
            return result

    def stepped(engine: Engine) -> int:
        groups = [group._replace(environments=Watched(group, 0)) for group in grouped(engine).groups]
        together.clear()
        run(with_groups(engine, groups), 0, 10)
        return max(together)

    engine = made(3)
    assert stepped(engine) == 1
    free = replace(engine.population, env=other_backend(engine))
    assert stepped(with_groups(engine, grouped(engine).groups, population=free)) > 1


def test_no_steps_are_nothing() -> None:
    engine = made(2)
    run(engine, 5, 5)
    assert int(engine.state.step) == 0
    assert engine.state.replay.written.tolist() == [0] * 6


def test_what_is_polled_may_end_the_steps() -> None:
    engine = made(3)
    polled: list[int] = []

    def poll(step: int) -> None:
        polled.append(step)
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(engine, 0, 10**9, poll)
    assert polled == list(range(31))
    assert group_threads() == []
