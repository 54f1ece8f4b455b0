"""A process with environments: it waits for actions, steps, and reports when results are written.

    python -m valueshare.envs.processes.child

Steps do not pass through the parent. Actions are complete when none of them is negative: the parent's GPU may have
written them. To see them at once, the process polls without a pause for about as long as a step of the agents takes;
later it polls now and then.
"""

import json
import os
import time
from collections import deque
from typing import NoReturn

from valueshare.children import serve as serve_parent
from valueshare.envs import make_environments
from valueshare.envs.base import Environments
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.envs.processes.memory import SharedArrays, fence, shared_fields
from valueshare.envs.step_arrays import StepArrays

SPIN_SECONDS = 0.02  # for so long it polls without a pause
MAX_PAUSE = 0.02  # seconds


class Stepper:
    """Environments that step whenever there are actions."""

    def __init__(self, environments: Environments, memory: SharedArrays) -> None:
        arrays = memory.arrays
        self._environments = environments
        self._result = StepArrays(*(arrays[name] for name in StepArrays._fields))
        self._action, self._stepped = arrays["action"], arrays["stepped"]
        self._counted, self._commands = arrays["counted"], arrays["commands"]
        self._episodes = TrainingEpisodes(environments.count)
        self._counts = arrays["return_sum"], arrays["episode_count"]
        self._episodes.return_sum, self._episodes.episode_count = self._counts
        self._all = slice(0, environments.count)
        self._steps = 0
        self._takes_actions = False

    def execute(self, seeds: list[int] | None) -> None:
        """Start new episodes from seeds, or pause (None); actions already there are dropped."""
        self._takes_actions = seeds is not None
        if seeds is not None:
            self._result.observation[:] = self._environments.reset(seeds)
            for sums in (self._episodes.episode_return, *self._counts):
                sums.fill(0)
        self._action.fill(-1)
        fence()
        self._commands[0] = (int(self._commands[0]) + 1) % 2**32

    def has_actions(self) -> bool:
        return self._takes_actions and bool(self._action.min() >= 0)

    def step(self) -> None:
        self._environments.send(self._action)
        self._action.fill(-1)  # before new ones can come: they follow the results
        result = self._environments.receive()
        self._result.fill(result)
        fence()
        self._steps = (self._steps + 1) % 2**32
        self._stepped[0] = self._steps
        self._episodes.step(self._all, result)
        fence()
        self._counted[0] = self._steps


def run(stepper: Stepper, commands: "deque[list[int] | None]") -> NoReturn:
    """Execute commands, and step where there are actions."""
    last_busy = 0.0
    while True:
        if commands:
            stepper.execute(commands.popleft())
            last_busy = time.perf_counter()
        elif stepper.has_actions():
            stepper.step()
            last_busy = time.perf_counter()
        elif (idle := time.perf_counter() - last_busy) < SPIN_SECONDS:
            os.sched_yield()
        else:
            time.sleep(min(idle / 20, MAX_PAUSE))


def main() -> None:
    commands: deque[list[int] | None] = deque()

    def work(text: str) -> None:
        request = json.loads(text)
        environments = make_environments(**request["environments"])
        fields = shared_fields(environments.spec, environments.count)
        run(Stepper(environments, SharedArrays(fields, request["memory"])), commands)

    serve_parent(work, lambda line: commands.append(json.loads(line)))


if __name__ == "__main__":
    main()
