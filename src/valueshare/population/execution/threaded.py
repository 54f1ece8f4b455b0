"""A thread per group.

The calling thread runs the first group, every other group has a thread and, on CUDA, a stream of
its own. The last group to arrive at an update makes it (on CUDA: launches it).
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from valueshare.envs.backends import BACKENDS
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.execution.cuda_streams import Streams
from valueshare.population.execution.groups import Group, GroupedPopulation, choose_actions, store_last_step
from valueshare.population.execution.learner import is_due, update_due
from valueshare.population.loop import OnStep

POLL_SECONDS = 0.1  # between checks for signals, which a lock alone would not let through


class _Cancelled(Exception):
    """Another group has failed."""


class UpdateBarrier:
    """Groups arrive at an update: the last to arrive makes it, and none continues before that."""

    def __init__(self, groups: int, update: Callable[[int], None]) -> None:
        self._groups, self._update = groups, update
        self._changed = threading.Condition()
        self._arrived = 0
        self._updated: int | None = None  # the step of the last update
        self._failure: BaseException | None = None

    def arrive(self, t: int) -> None:
        """Arrive at the update of step t; the last group to arrive runs it."""
        with self._changed:
            self._arrived += 1
            if self._arrived == self._groups:
                self._arrived = 0
                self._update(t)
                self._updated = t
                self._changed.notify_all()

    def wait(self, t: int) -> None:
        """Wait until the update of step t is made."""
        with self._changed:
            while self._updated != t and self._failure is None:
                self._changed.wait(POLL_SECONDS)
        self.check()

    def check(self) -> None:
        """End the steps of this group if another has failed."""
        if self._failure is not None:
            raise _Cancelled

    @contextmanager
    def cancel_on_failure(self) -> Iterator[None]:
        """An exception within ends the steps of all groups; `raise_failure` then raises it."""
        try:
            yield
        except _Cancelled:
            pass
        except BaseException as failure:
            with self._changed:
                self._failure = self._failure or failure
                self._changed.notify_all()

    def raise_failure(self) -> None:
        """Raise the first failure, if any; it is not kept, because its frames refer to tensors."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure


def run_threaded(
    grouped: GroupedPopulation, steps: range, streams: Streams, on_step: OnStep, episodes: TrainingEpisodes | None
) -> None:
    """The steps of all groups, after `streams.begin`; this thread alone calls `on_step`."""
    population, learner, groups = grouped.population, grouped.learner, grouped.groups
    settings, on_cpu, alone = population.settings, population.device.type == "cpu", len(groups) == 1
    # Sampling on the host is slow, so it runs while the environments step.
    samples_after_send = learner.sample_on_host is not None and population.device.type == "cuda"
    # Work that only one group may do at a time. On a CPU all groups compute with one module, which holds one group's
    # weights at a time. Third-party Python code may not be thread-safe.
    unlocked: AbstractContextManager[object] = nullcontext()
    computing = unlocked if alone or not on_cpu else threading.Lock()
    third_party = BACKENDS[population.env.backend].is_third_party
    stepping = unlocked if alone or not third_party else threading.Lock()

    def update(t: int) -> None:
        with streams.joint():
            grouped.state.step.fill_(t)
            update_due(learner, settings, t, on_release=streams.release)

    barrier = UpdateBarrier(len(groups), update)
    threads = torch.get_num_threads()

    def run_group(group: Group, on_step: OnStep) -> None:
        with computing:
            choose_actions(group, stores=False)
        for t in steps:
            due = is_due(settings, t)
            on_step(t)
            barrier.check()
            if due and not samples_after_send:
                barrier.arrive(t)
            group.environments.send(group.buffers.action.wait_filled(alone=alone))
            if due and samples_after_send:
                barrier.arrive(t)
            with stepping:
                result = group.environments.receive()
            group.buffers.arrays.fill(result)  # the device chose the actions after it had read the result before
            if due:
                barrier.wait(t)
            with computing:
                if t + 1 < steps.stop:
                    choose_actions(group, stores=True)
                else:
                    store_last_step(group)
            if episodes is not None:
                episodes.step(group.agents, result)

    def run_in_thread(group: Group) -> None:
        with barrier.cancel_on_failure(), streams.of(group):
            if on_cpu:
                torch.set_num_threads(threads)  # or sums would be divided differently
            run_group(group, lambda step: None)

    first, *others = groups
    pool = ThreadPoolExecutor(max(1, len(others)), "valueshare-group")
    with pool, barrier.cancel_on_failure():
        running = [pool.submit(run_in_thread, group) for group in others]
        with streams.of(first):
            run_group(first, on_step)
        while wait(running, POLL_SECONDS).not_done:
            on_step(steps[-1])
    barrier.raise_failure()
