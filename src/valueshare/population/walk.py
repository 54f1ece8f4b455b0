"""Walking groups through their steps, each in a thread of its own.

The first group is walked by the calling thread, every other one by a thread and, on CUDA, on a
stream of its own. The last group to come to an update makes it (on CUDA: launches it), and one that
is ahead waits; between updates it need not.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import torch

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.engine import Engine
from valueshare.population.groups import Group, choose_actions, choose_and_store, send_actions
from valueshare.population.meeting import PATIENCE, Meeting, Turns
from valueshare.population.streams import Streams
from valueshare.population.updates import is_due, update_due


def walk(
    engine: Engine,
    steps: range,
    streams: Streams,
    poll: Callable[[int], None],
    episodes: TrainingEpisodes | None,
) -> None:
    """The steps of all groups, for which `streams` has begun; this thread alone calls `poll`."""
    learner, settings = engine.learner, engine.population.settings

    def update(t: int) -> None:
        with streams.joint():
            engine.state.step.fill_(t)
            if learner.follow is not None and t % settings.update_interval == 0:
                learner.follow()
            update_due(learner, settings, t, released=streams.release)

    meeting, turns = Meeting(len(engine.groups), update), Turns(engine)
    threads = torch.get_num_threads()

    def walk_one(group: Group, poll: Callable[[int], None]) -> None:
        with streams.of(group):
            _walk(engine, group, steps, meeting, turns, poll, episodes)

    def walk_in_thread(group: Group) -> None:
        with meeting.left_on_failure():
            if engine.population.device.type == "cpu":
                torch.set_num_threads(threads)  # or sums would be taken in other pieces
            walk_one(group, lambda step: None)

    first, *others = engine.groups
    pool = ThreadPoolExecutor(max(1, len(others)), "valueshare-group")
    with pool, meeting.left_on_failure():
        walks = [pool.submit(walk_in_thread, group) for group in others]
        walk_one(first, poll)
        while wait(walks, PATIENCE).not_done:
            poll(steps[-1])
    meeting.raise_failure()


def _walk(
    engine: Engine,
    group: Group,
    steps: range,
    meeting: Meeting,
    turns: Turns,
    poll: Callable[[int], None],
    episodes: TrainingEpisodes | None,
) -> None:
    """The steps of one group."""
    exchange, settings = group.exchange, engine.population.settings
    # Sampling on the host takes a while: that of step t comes when the environments are under way.
    comes_late = engine.learner.draw is not None and engine.population.device.type == "cuda"

    def come(t: int) -> None:
        if is_due(settings, t):
            meeting.come(t)

    with turns.computing:
        choose_actions(group)
    for t in steps:
        poll(t)
        meeting.check()
        if not comes_late:
            come(t)
        send_actions(group)
        if comes_late:
            come(t)
        with turns.stepping:
            result = group.environments.receive()
        exchange.fill(result)
        if is_due(settings, t):
            meeting.wait(t)
        with turns.computing:
            if t + 1 < steps.stop:
                choose_and_store(group)
            else:
                exchange.keep_actions()
                exchange.result.post()
                group.store()
        if episodes is not None:
            episodes.step(group.agents, result)
