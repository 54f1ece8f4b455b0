"""Keeping the cores awake while environments wait for their agents.

Emulators on threads of their own wait some 0.3 ms for every action. A core that has nothing to do
meanwhile goes to sleep, and on a virtual machine its host has to wake it, which takes about as long
again. Here every core always has something to do: a process that counts, at the lowest priority
there is (SCHED_IDLE), and gives way to anything else at once.

This file is also the program of these processes: it imports nothing of the package.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TURN = 100_000  # counts, some milliseconds, between two looks whether it is over


@contextmanager
def cores_awake(wanted: bool = True) -> Iterator[None]:
    """Keep all cores of this process awake until the end of the block.

    Does nothing where not `wanted`, or where the system has no such priority (Linux has). The
    processes end with this one, however it ends: a pipe from it closes then.
    """
    if not (wanted and hasattr(os, "SCHED_IDLE")):
        yield
        return
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    command = [sys.executable, "-I", "-S", __file__, *cores]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        if process.stdout is not None:
            process.stdout.readline()  # all of them are at work
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # on a busy core, they would be long in ending


def _main(cores: list[int]) -> None:
    children = []
    for core in cores:
        child = os.fork()
        if child == 0:
            os.close(1)
            _count()
            os._exit(0)
        os.sched_setaffinity(child, [core])
        os.sched_setscheduler(child, os.SCHED_IDLE, os.sched_param(0))
        children.append(child)
    print("awake", flush=True)
    for child in children:
        os.waitpid(child, 0)


def _count() -> None:
    """Until standard input closes."""
    while not select.select([0], [], [], 0)[0]:
        for _ in range(TURN):
            pass


if __name__ == "__main__":
    _main([int(core) for core in sys.argv[1:]])
