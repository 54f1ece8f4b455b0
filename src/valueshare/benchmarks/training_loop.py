"""Training loops to be timed, on a full replay, and their parts alone."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from valueshare.envs.base import Environments
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.engine import Engine
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.groups import choose_actions
from valueshare.population.execution.learner import update_due
from valueshare.population.loop import Loop
from valueshare.replay.transitions import SPARE, Transitions


class TrainingLoop:
    """Steps of every agent as in a phase; `t` is where the schedule is."""

    def __init__(self, engine: Engine, t: int) -> None:
        self.engine, self.t = engine, t
        self._episodes = TrainingEpisodes(engine.population.size)

    def run(self, steps: int) -> None:
        steps_now = range(self.t, self.t + steps)
        self.engine.executor.run(steps_now, lambda step: None, self._episodes)
        self.t += steps

    def steps_per_second(self, seconds: float) -> float:
        """Over about `seconds` in stretches, each long enough that its ends cost nothing."""
        device, every = (self.engine.population.device, self.engine.population.settings.update_interval)
        rate = every * turns_per_second(lambda: self.run(every), seconds / 10, device)
        stretch = max(1, round(seconds / 2 * rate))
        return stretch * turns_per_second(lambda: self.run(stretch), seconds * 0.9, device)


class Parts(NamedTuple):
    """Parts of a training loop, each done when it returns, or launched on CUDA."""

    agents: int  # that act and store; all of them learn
    learn: Callable[[int], None]  # the updates of a step
    act: Callable[[], None]
    store: Callable[[], None]


def parts_of(engine: Engine) -> Parts:
    """The parts of an engine: of all agents, or acting and storing of its first group."""
    executor, settings = engine.executor, engine.population.settings
    if isinstance(executor, Loop):
        loop = executor

        def learn(t: int) -> None:
            if t % settings.target_update_interval == 0:
                loop.update_target()
            if t % settings.update_interval == 0:
                for _ in range(settings.gradient_steps):
                    loop.learn()
            engine.state.step.add_(1)  # or every update would sample the same transitions

        return Parts(engine.population.size, learn, loop.act, loop.store)
    assert isinstance(executor, GroupExecutor)
    grouped = executor.grouped
    group = grouped.groups[0]

    def learn_jointly(t: int) -> None:
        update_due(grouped.learner, settings, t)
        engine.state.step.add_(1)

    def act() -> None:
        choose_actions(group)
        group.buffers.action.wait_filled()

    def store() -> None:
        group.buffers.result.upload()
        group.store()
        if engine.population.device.type == "cuda":  # only then may the buffers be filled again
            torch.cuda.synchronize(engine.population.device)

    return Parts(group.population.size, learn_jointly, act, store)


def environments_of(engine: Engine) -> Environments:
    """The environments of all agents, or of the first group."""
    executor = engine.executor
    if isinstance(executor, Loop):
        return executor.environments
    assert isinstance(executor, GroupExecutor)
    return executor.grouped.groups[0].environments


def turns_per_second(turn: Callable[[], None], seconds: float, device: torch.device) -> float:
    """Turns a second, over about `seconds`."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    count = 0
    while count == 0 or time.perf_counter() - began < seconds:
        turn()
        count += 1
    if cuda:
        torch.cuda.synchronize(device)
    return count / (time.perf_counter() - began)


def fill_with_copies(replay: Transitions) -> None:
    """Repeat what is there to the rings' ends, in place: twice as much at a time.

    Transition i then starts from row i, as if no episode had ended.
    """
    capacity, rows = replay.action.shape[1], replay.observation.shape[1]
    known = min(int(replay.written.min()), capacity)
    for ring in (replay.action, replay.reward, replay.discount):
        _repeat(ring, known)
    _repeat(replay.observation, min(int(replay.rows.min()), rows))
    number = torch.arange(capacity, device=replay.row.device)
    replay.row.copy_(number.expand_as(replay.row))
    if len(replay.back):
        replay.age.copy_(number.clamp(max=len(replay.back) - 1).expand_as(replay.age))
    replay.written.fill_(capacity)
    replay.rows.fill_(capacity + 1)
    replay.oldest.fill_(SPARE)
    replay.frame_age.fill_(max(len(replay.back) - 1, 0))


def _repeat(ring: torch.Tensor, known: int) -> None:
    length = ring.shape[1]
    while known < length:
        more = min(known, length - known)
        ring[:, known : known + more] = ring[:, :more]
        known += more
