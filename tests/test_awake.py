"""Cores that are kept awake, and the processes that do it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from valueshare.awake import cores_awake

pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_IDLE"), reason="this system has no idle priority"
)


def test_every_core_has_a_process_of_idle_priority_while_it_lasts() -> None:
    with cores_awake():
        counting = _counting()
        assert sorted(counting.values()) == [{core} for core in sorted(os.sched_getaffinity(0))]
    _wait_until(lambda: not _alive(counting))


def test_not_wanted_there_is_nothing() -> None:
    with cores_awake(False):
        assert _counting() == {}


def test_they_end_with_a_process_that_is_killed() -> None:
    program = "from valueshare.awake import cores_awake\nimport time\nwith cores_awake():\n"
    program += "    print('in', flush=True)\n    time.sleep(30)\n"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        counting = _counting(process.pid)
        assert counting
        process.kill()
    _wait_until(lambda: not _alive(counting))


def _counting(root: int | None = None) -> dict[int, set[int]]:
    """Processes of idle priority below one, and the cores of each."""
    below = [root or os.getpid()]
    found = {}
    for process in below:
        for child in _children(process):
            below.append(child)
            if os.sched_getscheduler(child) == os.SCHED_IDLE:
                found[child] = os.sched_getaffinity(child)
    return found


def _children(process: int) -> list[int]:
    parts = [
        (task / "children").read_text().split() for task in Path(f"/proc/{process}/task").iterdir()
    ]
    return [int(child) for part in parts for child in part]


def _alive(processes: dict[int, set[int]]) -> list[int]:
    return [process for process in processes if Path(f"/proc/{process}").exists()]


def _wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)
