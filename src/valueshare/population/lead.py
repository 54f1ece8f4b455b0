"""Leading groups whose environments go by themselves, each group's in a process of its own.

Such a process steps when its actions are there, and a group's stream goes on when its frames are:
neither passes through this thread. It launches everything some steps ahead, and the streams
know what waits for what. So groups go at their own pace, and what this thread does between
two launches delays nobody.
"""

from collections.abc import Callable
from functools import partial

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.envs.processes.environments import EnvironmentProcess, settle
from valueshare.population.cuda_driver import wait_for_word
from valueshare.population.engine import Engine
from valueshare.population.groups import Group
from valueshare.population.streams import Streams
from valueshare.population.updates import is_due, update_due

# Steps that may be launched and not yet made, and steps that may be stored after that of an update
# which has yet to sample: below `SPARE` of replay.
AHEAD = 8


def lead(
    engine: Engine,
    steps: range,
    streams: Streams,
    poll: Callable[[int], None],
    episodes: TrainingEpisodes | None,
) -> None:
    """The steps of all groups, for which `streams` has begun."""
    led = [(group, _process(group)) for group in engine.groups]
    counts = "returns_done", "finished"
    before = [[process.memory.arrays[name].copy() for name in counts] for _, process in led]
    on_cuda, settings = engine.population.device.type == "cuda", engine.population.settings
    try:
        for group, _ in led:
            streams.switch(group)
            group.act()
        for t in steps:
            streams.switch(None)
            poll(t)
            if t % AHEAD == 0:
                for group, _ in led:
                    streams.switch(group)
                    streams.after_learning()
            if is_due(settings, t):
                _update(engine, streams, t)
            for group, process in led:
                streams.switch(group)
                process.asked += 1
                if on_cuda:
                    wait_for_word(process.memory.arrays["stepped"], process.asked)
                else:
                    process.wait(process.asked, partial(poll, t))
                if t + 1 < steps.stop:
                    group.act_and_store()
                else:
                    _store_last(group)
            ahead = min(AHEAD, steps.stop - 1 - t)
            for _, process in led:
                process.wait(process.asked - ahead, partial(poll, t))
    finally:
        streams.switch(None)
        settle([process for _, process in led])
    if episodes is not None:
        for (group, process), (returns_done, finished) in zip(led, before, strict=True):
            counted = process.memory.arrays
            episodes.returns_done[group.agents] += counted["returns_done"] - returns_done
            episodes.finished[group.agents] += counted["finished"] - finished


def _update(engine: Engine, streams: Streams, t: int) -> None:
    """What is due at step t.

    Where acting lags, groups go on at once: each takes over, after its actions of step t, what was
    learned before, and the update begins when all have. They wait for it at the next one only.
    """
    learner, settings = engine.learner, engine.population.settings
    for group in engine.groups if t % settings.update_interval == 0 else ():
        if group.follow is not None:
            streams.switch(group)
            streams.after_learning()
            group.follow()
    with streams.joint():
        engine.state.step.fill_(t)
        if learner.lags:
            update_due(learner, settings, t)
            streams.note_learning()
        else:
            update_due(learner, settings, t, released=streams.release)


def _store_last(group: Group) -> None:
    """Store a step after which no actions are chosen: the process then waits for some."""
    exchange = group.exchange
    exchange.result.to_device()
    exchange.keep_actions()
    group.store()


def _process(group: Group) -> EnvironmentProcess:
    assert isinstance(group.environments, EnvironmentProcess)
    return group.environments
