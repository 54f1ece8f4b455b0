"""A thread per group.

The calling thread runs the first group, every other group has a thread and, on CUDA, a stream of
its own. The last group to arrive at an update makes it (on CUDA: launches it).
"""

from concurrent.futures import ThreadPoolExecutor, wait

import torch

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.execution.barrier import POLL_SECONDS, Locks, UpdateBarrier
from valueshare.population.execution.cuda_streams import Streams
from valueshare.population.execution.grouped import GroupedPopulation
from valueshare.population.execution.groups import Group, choose_actions, choose_and_store, send_actions
from valueshare.population.execution.learner import Learner, is_due, update_due
from valueshare.population.loop import OnStep


def run_threaded(
    grouped: GroupedPopulation, steps: range, streams: Streams, on_step: OnStep, episodes: TrainingEpisodes | None
) -> None:
    """The steps of all groups, after `streams.begin`; this thread alone calls `on_step`."""
    population, learner = grouped.population, grouped.learner
    settings = population.settings

    def update(t: int) -> None:
        with streams.joint():
            grouped.state.step.fill_(t)
            if learner.sync_actor is not None and t % settings.update_interval == 0:
                learner.sync_actor()
            update_due(learner, settings, t, on_release=streams.release)

    barrier = UpdateBarrier(len(grouped.groups), update)
    locks = Locks(population, len(grouped.groups))
    threads = torch.get_num_threads()

    def run_one(group: Group, on_step: OnStep) -> None:
        with streams.of(group):
            _run_group(group, learner, steps, barrier, locks, on_step, episodes)

    def run_in_thread(group: Group) -> None:
        with barrier.cancel_on_failure():
            if population.device.type == "cpu":
                torch.set_num_threads(threads)  # or sums would be divided differently
            run_one(group, lambda step: None)

    first, *others = grouped.groups
    pool = ThreadPoolExecutor(max(1, len(others)), "valueshare-group")
    with pool, barrier.cancel_on_failure():
        running = [pool.submit(run_in_thread, group) for group in others]
        run_one(first, on_step)
        while wait(running, POLL_SECONDS).not_done:
            on_step(steps[-1])
    barrier.raise_failure()


def _run_group(
    group: Group,
    learner: Learner,
    steps: range,
    barrier: UpdateBarrier,
    locks: Locks,
    on_step: OnStep,
    episodes: TrainingEpisodes | None,
) -> None:
    """The steps of one group."""
    buffers, population = group.buffers, group.population
    # Sampling on the host takes a while, so it comes when the environments are running.
    arrives_late = learner.sample_on_host is not None and population.device.type == "cuda"

    def arrive(t: int) -> None:
        if is_due(population.settings, t):
            barrier.arrive(t)

    with locks.computing:
        choose_actions(group)
    for t in steps:
        on_step(t)
        barrier.check()
        if not arrives_late:
            arrive(t)
        send_actions(group)
        if arrives_late:
            arrive(t)
        with locks.stepping:
            result = group.environments.receive()
        buffers.fill(result)
        if is_due(population.settings, t):
            barrier.wait(t)
        with locks.computing:
            if t + 1 < steps.stop:
                choose_and_store(group)
            else:
                buffers.keep_actions()
                buffers.result.upload()
                group.store()
        if episodes is not None:
            episodes.step(group.agents, result)
