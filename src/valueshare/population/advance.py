"""Steps of a population: groups of agents go at their own pace, and meet where all of them learn.

A group's way through step t is

    send its actions -> its environments step -> choose the next actions -> store the step

and nothing of it is another group's. The update of step t is of all agents: it comes when every
group has stored step t - 1 and chosen its actions of step t, and before any of them chooses those
of step t + 1. The last group to come there makes it (on CUDA: launches it), and one that is ahead
waits; between updates it need not. So a slow emulator rarely holds up the other groups; and which
group comes last changes no number.

The first group is walked by the calling thread, every other one by a thread and, on CUDA, on a
stream of its own. There, what follows a step is launched while the environments still make it,
behind a gate that opens when they are done.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import torch
from numpy.typing import NDArray

from valueshare.envs.base import StepResult
from valueshare.population.engine import Engine
from valueshare.population.gate import Gate
from valueshare.population.groups import Group, choose_actions, choose_and_store, send_actions
from valueshare.population.meeting import PATIENCE, Meeting, Streams, Turns
from valueshare.population.settings import TrainingSettings
from valueshare.population.updates import renew_target, update


def advance(
    engine: Engine,
    start: int,
    end: int,
    *,
    poll: Callable[[int], None] = lambda step: None,
    episodes: "TrainingEpisodes | None" = None,
) -> None:
    """Steps `start`, ..., `end` - 1 of every agent; what is launched afterwards comes after them.

    `poll` gets the number of every step of the first group, in the calling thread, and that of the
    last one again while it waits for the others. What it raises ends the steps where they are, and
    leaves a state of no use.
    """
    if end <= start:
        return
    state, groups = engine.state, engine.groups
    streams = Streams(engine)

    def update_all(t: int) -> None:
        with streams.joint():
            state.step.fill_(t)
            _update(engine, t, streams.release)

    meeting, turns = Meeting(len(groups), update_all), Turns(engine)
    threads = torch.get_num_threads()

    def walk(group: Group, poll: Callable[[int], None]) -> None:
        with streams.of(group):
            try:
                _walk(engine, group, range(start, end), meeting, turns, poll, episodes)
            finally:
                if group.gate is not None:
                    group.gate.open()

    def walk_in_thread(group: Group) -> None:
        with meeting.left_on_failure():
            if engine.population.device.type == "cpu":
                torch.set_num_threads(threads)  # or sums would be taken in other pieces
            walk(group, lambda step: None)

    first, *others = groups
    state.step.fill_(start)
    streams.begin()
    pool = ThreadPoolExecutor(max(1, len(others)), "valueshare-group")
    with pool, meeting.left_on_failure():
        walks = [pool.submit(walk_in_thread, group) for group in others]
        walk(first, poll)
        while wait(walks, PATIENCE).not_done:
            poll(end - 1)
    try:
        streams.end(at_once=meeting.has_failed)
        state.step.fill_(end)
    finally:
        meeting.raise_failure()


def _walk(
    engine: Engine,
    group: Group,
    steps: range,
    meeting: Meeting,
    turns: Turns,
    poll: Callable[[int], None],
    episodes: "TrainingEpisodes | None",
) -> None:
    """The steps of one group."""
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
        with turns.computing:
            if goes_on:
                choose_and_store(group)
            else:
                exchange.keep_actions()
                exchange.result.post()
                group.store()
        if goes_on and not comes_late:
            come(t + 1)

    with turns.computing:
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
        with turns.stepping:
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


def _update(engine: Engine, t: int, release: Callable[[], None]) -> None:
    """What is due at step t; `release` is called when the groups may go on."""
    settings, learner = engine.population.settings, engine.learner
    renews = t % settings.target_every == 0
    if t % settings.update_every == 0:
        if renews:
            update(learner)
        else:
            update(learner, release)
    if renews:
        renew_target(learner)
        release()


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
        if np.count_nonzero(ended):
            self.returns_done[agents][ended] += running[ended]
            running[ended] = 0.0
            self.finished[agents] += ended
