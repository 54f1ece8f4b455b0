"""Staging buffers, with stand-ins for the events of a device."""

import resource
import sys
import threading
import time

import pytest
import torch

from valueshare.population.execution import buffers
from valueshare.population.execution.buffers import StagingBuffer


class CompleteEvent:
    """An event of a device that has done everything."""

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


def buffer_on_a_device(size: int, monkeypatch: pytest.MonkeyPatch) -> StagingBuffer:
    buffer = StagingBuffer((size,), torch.int64, torch.device("cpu"))
    monkeypatch.setattr(buffer, "_copied", CompleteEvent())
    return buffer


def test_the_host_waits_for_every_number_and_lets_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "SPIN_SECONDS", 60.0)
    buffer = buffer_on_a_device(3, monkeypatch)
    buffer.clear()

    def fill() -> None:
        for place in (1, 2, 0):
            time.sleep(0.002)
            buffer.array[place] = place

    filling = threading.Thread(target=fill)
    filling.start()
    assert buffer.wait_filled().tolist() == [0, 1, 2]
    filling.join()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts the switches of one thread")
def test_the_host_does_not_sleep_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    # A sleep of any length, 0 included, takes 55 µs or more on Linux, as long as a step of one agent.
    polls = iter([-1] * 1_000 + [0])

    class Polled:
        def min(self) -> int:
            return next(polls)

    buffer = buffer_on_a_device(1, monkeypatch)
    monkeypatch.setattr(buffers, "SPIN_SECONDS", 60.0)
    monkeypatch.setattr(buffer, "array", Polled())
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw  # a sleep is one of these
    buffer.wait_filled()
    assert next(polls, None) is None
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 100
