"""Steps of a population: groups of agents go at their own pace, and meet where all of them learn.

A group's way through step t is

    send its actions -> its environments step -> choose the next actions -> store the step

and nothing of it is another group's. The update of step t is of all agents: it comes when every
group has stored step t - 1 and chosen its actions of step t, and before any of them chooses those
of step t + 1. The last group to come there makes it (on CUDA: launches it), and one that is ahead
waits. So a slow emulator holds up the other groups only when they are a whole step ahead; and which
group comes last changes no number.

The first group is walked by the calling thread, every other one by a thread and, on CUDA, on a
stream of its own. There, what follows a step is launched while the environments still make it,
behind a gate that opens when they are done.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from valueshare.envs.base import StepResult
from valueshare.population.engine import Engine
from valueshare.population.gate import Gate
from valueshare.population.groups import Group, choose_actions, send_actions
from valueshare.population.settings import TrainingSettings
from valueshare.population.updates import join, renew_target, update


def advance(
    engine: Engine,
    start: int,
    end: int,
    *,
    poll: Callable[[int], None] = lambda step: None,
    episodes: "TrainingEpisodes | None" = None,
) -> None:
    """Steps `start`, ..., `end` - 1 of every agent; nothing of them is under way afterwards.

    `poll` gets the number of every step of the first group, in the calling thread. What it raises
    ends the steps where they are, and leaves a state of no use.
    """
    state, groups = engine.state, engine.groups
    streams = [group.stream for group in groups if group.stream is not None]
    joint = torch.cuda.current_stream(engine.population.device) if streams else None

    def update_all(t: int) -> None:
        with _after_and_before(streams, joint):
            state.step.fill_(t)
            _update(engine, t)

    meeting = Meeting(len(groups), update_all)
    on_cpu = engine.population.device.type == "cpu"
    turn = threading.Lock() if on_cpu and len(groups) > 1 else nullcontext()
    threads = torch.get_num_threads()

    def walk(group: Group, polled: Callable[[int], None]) -> None:
        if on_cpu and threading.current_thread() is not caller:
            torch.set_num_threads(threads)  # sums would be taken in other pieces
        with _stream_of(group), meeting.left_on_failure():
            try:
                _walk(engine, group, range(start, end), meeting, turn, polled, episodes)
            finally:
                if group.gate is not None:
                    group.gate.open()

    caller = threading.current_thread()
    first, *others = groups
    with _after_and_before(streams, joint):
        state.step.fill_(start)
    with ThreadPoolExecutor(max(1, len(others)), "valueshare-group") as pool:
        for group in others:
            pool.submit(walk, group, lambda step: None)
        walk(first, poll)
    try:
        with _after_and_before(streams, joint):
            join(engine.learner)
            state.step.fill_(end)
    finally:
        meeting.raise_failure()


def _walk(
    engine: Engine,
    group: Group,
    steps: range,
    meeting: "Meeting",
    turn: AbstractContextManager[object],
    poll: Callable[[int], None],
    episodes: "TrainingEpisodes | None",
) -> None:
    """The steps of one group. `turn` is held while it computes."""
    exchange, settings = group.exchange, engine.population.settings
    # Sampling on the host takes a while: that of step t comes when the environments are under way.
    comes_late = engine.learner.draw is not None and engine.population.device.type == "cuda"

    def come(t: int) -> None:
        if is_due(settings, t):
            meeting.come(t)

    def follow(t: int, gate: Gate | None = None) -> None:
        """What follows step t, behind a gate or at once."""
        if is_due(settings, t):
            meeting.wait(t)
        if gate is not None:
            gate.close()
        goes_on = t + 1 < steps.stop
        with turn:
            if goes_on:  # first of all: the environments wait for it
                choose_actions(group)
            else:
                exchange.keep_actions()
                exchange.result.post()
            group.store()
        if goes_on and not comes_late:
            come(t + 1)

    with turn:
        choose_actions(group)
    if not comes_late:
        come(steps.start)
    for t in steps:
        poll(t)
        meeting.check()
        send_actions(group)
        if comes_late:
            come(t)
        # Not behind the last step: its letterbox would wait for what waits for it.
        gate = group.gate if t + 1 < steps.stop else None
        if gate is not None:
            follow(t, gate)
        result = group.environments.receive()
        exchange.fill(result)
        if gate is not None:
            gate.open()
        else:
            follow(t)
        if episodes is not None:
            episodes.step(group.agents, result)


def is_due(settings: TrainingSettings, t: int) -> bool:
    """Whether step t has an update, of the weights or of the target network."""
    learning = t >= settings.replay_start
    return learning and (t % settings.update_every == 0 or t % settings.target_every == 0)


def _update(engine: Engine, t: int) -> None:
    """What is due at step t."""
    settings = engine.population.settings
    if t % settings.update_every == 0:
        update(engine.learner)
    if t % settings.target_every == 0:
        renew_target(engine.learner)


class Meeting:
    """Where groups meet for an update: the last to come makes it, and nobody goes on before."""

    def __init__(self, groups: int, update: Callable[[int], None]) -> None:
        self._groups, self._update = groups, update
        self._changed = threading.Condition()
        self._came = 0
        self._updated: int | None = None  # the step of the last update
        self._failure: BaseException | None = None

    def come(self, t: int) -> None:
        """To the update of step t."""
        with self._changed:
            self._came += 1
            if self._came == self._groups:
                self._came = 0
                self._update(t)
                self._updated = t
                self._changed.notify_all()

    def wait(self, t: int) -> None:
        """Until the update of step t is made."""
        with self._changed:
            self._changed.wait_for(lambda: self._updated == t or self._failure is not None)
        self.check()

    def check(self) -> None:
        """End the steps of this group if another has failed."""
        if self._failure is not None:
            raise _Ended

    @contextmanager
    def left_on_failure(self) -> Iterator[None]:
        """What is raised within ends the steps of all groups; `raise_failure` then raises it."""
        try:
            yield
        except _Ended:
            pass
        except BaseException as failure:
            with self._changed:
                self._failure = self._failure or failure
                self._changed.notify_all()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class _Ended(Exception):
    """Another group has failed."""


@contextmanager
def _after_and_before(
    streams: "Sequence[torch.cuda.Stream]", joint: "torch.cuda.Stream | None"
) -> Iterator[None]:
    """What is launched within comes after all that `streams` have, and before all that they get."""
    if joint is None:
        yield
        return
    with torch.cuda.stream(joint):
        for stream in streams:
            joint.wait_stream(stream)
        yield
        done = joint.record_event()
        for stream in streams:
            stream.wait_event(done)


@contextmanager
def _stream_of(group: Group) -> Iterator[None]:
    """A group's stream is the current one of this thread, where it has one."""
    with ExitStack() as stack:
        if group.stream is not None:
            stack.enter_context(torch.cuda.device(group.stream.device))
            stack.enter_context(torch.cuda.stream(group.stream))
        yield


class TrainingEpisodes:
    """Returns of training episodes, of the finished ones only."""

    def __init__(self, agents: int) -> None:
        self.running: NDArray[np.float64] = np.zeros(agents)
        self.returns_done: NDArray[np.float64] = np.zeros(agents)
        self.finished: NDArray[np.int64] = np.zeros(agents, np.int64)

    def step(self, agents: slice, result: StepResult) -> None:
        """A step of these agents; different ones may be counted at the same time."""
        ended = result.terminated | result.truncated
        running = self.running[agents]
        running += result.reward
        if ended.any():
            self.returns_done[agents][ended] += running[ended]
            running[ended] = 0.0
            self.finished[agents] += ended
