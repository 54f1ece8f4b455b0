"""Steps of a population: groups of agents go at their own pace, and meet where all of them learn.

A group's way through step t is

    actions are there -> its environments step -> choose the next actions -> store the step

and nothing of it is another group's. The update of step t is of all agents: it comes when every
group has stored step t - 1 and chosen its actions of step t, and before any of them chooses those
of step t + 1. So a slow emulator rarely holds up the other groups; and which group comes last
changes no number.

Groups go in one of two ways. Where environments have processes of their own they are led
(`lead`): all is launched ahead of them. Otherwise each is walked by a thread (`walk`).
"""

from collections.abc import Callable
from contextlib import suppress

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.engine import Engine
from valueshare.population.lead import lead
from valueshare.population.past import begin_at
from valueshare.population.streams import Streams
from valueshare.population.walk import walk


def advance(
    engine: Engine,
    start: int,
    end: int,
    *,
    poll: Callable[[int], None] = lambda step: None,
    episodes: TrainingEpisodes | None = None,
) -> None:
    """Steps `start`, ..., `end` - 1 of every agent; what is launched afterwards comes after them.

    `poll` gets the number of every step, in the calling thread, and some again where that thread
    has to wait. What it raises ends the steps where they are, and leaves a state of no use.
    """
    if end <= start:
        return
    state, streams = engine.state, Streams(engine)

    state.step.fill_(start)
    if engine.learner.past is not None:
        begin_at(engine.learner.past, state.replay, start)
    streams.begin()
    go = lead if engine.is_led else walk
    try:
        go(engine, range(start, end), streams, poll, episodes)
    except BaseException:
        with suppress(RuntimeError):  # what went wrong on the device may be the reason
            streams.end(at_once=True)
        raise
    streams.end()
    state.step.fill_(end)
