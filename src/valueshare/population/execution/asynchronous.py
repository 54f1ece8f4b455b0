"""A process of environments per group, and all GPU work launched some steps ahead of them.

A process steps when its actions are in shared memory, and a group's CUDA stream continues when the
frames are there: neither passes through this thread, which only launches. So groups run at their
own speed, and the time this thread takes between two launches delays no group.
"""

from functools import partial

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.envs.processes.environments import PAUSE, EnvironmentProcess, wait_until_idle
from valueshare.population.execution.cuda_driver import stream_wait_value
from valueshare.population.execution.cuda_streams import Streams
from valueshare.population.execution.groups import Group, GroupedPopulation, store_last_step
from valueshare.population.execution.learner import is_due, update_due
from valueshare.population.loop import OnStep
from valueshare.replay.transitions import SAMPLING_LAG

AHEAD = 8  # most steps that are launched ahead of the environments
AHEAD_PAUSE = 0.0005  # seconds between polls of their progress; AHEAD steps take far longer
assert AHEAD < SAMPLING_LAG, "an update samples as of its step, at most SAMPLING_LAG steps ago"


def run_asynchronously(
    grouped: GroupedPopulation, steps: range, streams: Streams, on_step: OnStep, episodes: TrainingEpisodes | None
) -> None:
    """The steps of all groups, after `streams.begin`."""
    pairs = [(group, _process(group)) for group in grouped.groups]
    counts = "return_sum", "episode_count"
    before = [[process.memory.arrays[name].copy() for name in counts] for _, process in pairs]
    settings, on_cuda = grouped.population.settings, grouped.population.device.type == "cuda"
    try:
        for group, _ in pairs:
            streams.switch(group)
            group.act()
        for t in steps:
            streams.switch(None)
            on_step(t)
            if t % AHEAD == 0:
                for group, _ in pairs:
                    streams.switch(group)
                    streams.after_learning()
            if is_due(settings, t):
                _update(grouped, streams, t)
            for group, process in pairs:
                streams.switch(group)
                process.requested += 1
                if on_cuda:
                    stream_wait_value(process.memory.arrays["stepped"], process.requested)
                else:
                    process.wait(process.requested, partial(on_step, t))
                if t + 1 < steps.stop:
                    group.act_and_store()
                else:
                    store_last_step(group)
            ahead = min(AHEAD, steps.stop - 1 - t)
            pause = AHEAD_PAUSE if ahead == AHEAD else PAUSE
            for _, process in pairs:
                process.wait(process.requested - ahead, partial(on_step, t), pause=pause)
    finally:
        streams.switch(None)
        wait_until_idle([process for _, process in pairs])
    if episodes is not None:
        for (group, process), (return_sum, episode_count) in zip(pairs, before, strict=True):
            counted = process.memory.arrays
            episodes.return_sum[group.agents] += counted["return_sum"] - return_sum
            episodes.episode_count[group.agents] += counted["episode_count"] - episode_count


def _update(grouped: GroupedPopulation, streams: Streams, t: int) -> None:
    """The updates of step t.

    With delayed actor weights, groups continue at once: after its actions of step t, each copies
    the weights learned before, and the update begins when all have. They wait for it at the next.
    """
    learner, settings = grouped.learner, grouped.population.settings
    for group in grouped.groups if settings.learns_at(t) else ():
        if group.sync_actor is not None:
            streams.switch(group)
            streams.after_learning()
            group.sync_actor()
    with streams.joint():
        grouped.state.step.fill_(t)
        if learner.delayed:
            update_due(learner, settings, t)
            streams.record_learning()
        else:
            update_due(learner, settings, t, on_release=streams.release)


def _process(group: Group) -> EnvironmentProcess:
    assert isinstance(group.environments, EnvironmentProcess)
    return group.environments
