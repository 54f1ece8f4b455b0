"""A process with environments: it looks for actions, steps, and says when the letters are there.

    python -m valueshare.envs.processes.child

Nothing of a step passes through the parent. Actions are there when none of them is negative: the
parent's GPU may have written them. So that they are found at once, the process looks for them
without a pause, for as long as a step may take to be answered; later it looks now and then.
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
from valueshare.envs.letters import StepArrays
from valueshare.envs.processes.memory import SharedArrays, fence, shared_fields

LOOKED_FOR = 0.02  # seconds, without a pause
LONGEST_PAUSE = 0.02  # seconds


class Stepping:
    """Environments that go on by themselves."""

    def __init__(self, environments: Environments, memory: SharedArrays) -> None:
        arrays = memory.arrays
        self._environments = environments
        self._letters = StepArrays(*(arrays[name] for name in StepArrays._fields))
        self._action, self._stepped = arrays["action"], arrays["stepped"]
        self._counted, self._orders = arrays["counted"], arrays["orders"]
        self._episodes = TrainingEpisodes(environments.count)
        self._counts = arrays["returns_done"], arrays["finished"]
        self._episodes.returns_done, self._episodes.finished = self._counts
        self._all = slice(0, environments.count)
        self._steps = 0
        self._takes_actions = False

    def obey(self, seeds: list[int] | None) -> None:
        """New episodes from seeds, or a rest; actions that were there are forgotten."""
        self._takes_actions = seeds is not None
        if seeds is not None:
            self._letters.observation[:] = self._environments.reset(seeds)
            for sums in (self._episodes.running, *self._counts):
                sums.fill(0)
        self._action.fill(-1)
        fence()
        self._orders[0] = (int(self._orders[0]) + 1) % 2**32

    def has_actions(self) -> bool:
        return self._takes_actions and bool(self._action.min() >= 0)

    def step(self) -> None:
        self._environments.send(self._action)
        self._action.fill(-1)  # before new ones can come: they follow the letters
        result = self._environments.receive()
        self._letters.fill(result)
        fence()
        self._steps = (self._steps + 1) % 2**32
        self._stepped[0] = self._steps
        self._episodes.step(self._all, result)
        fence()
        self._counted[0] = self._steps


def serve(stepping: Stepping, orders: "deque[list[int] | None]") -> NoReturn:
    """Do what is ordered, and step where there are actions."""
    since = 0.0  # when it last had something to do
    while True:
        if orders:
            stepping.obey(orders.popleft())
            since = time.perf_counter()
        elif stepping.has_actions():
            stepping.step()
            since = time.perf_counter()
        elif (idle := time.perf_counter() - since) < LOOKED_FOR:
            os.sched_yield()
        else:
            time.sleep(min(idle / 20, LONGEST_PAUSE))


def main() -> None:
    orders: deque[list[int] | None] = deque()

    def work(text: str) -> None:
        asked = json.loads(text)
        environments = make_environments(**asked["environments"])
        fields = shared_fields(environments.spec, environments.count)
        serve(Stepping(environments, SharedArrays(fields, asked["memory"])), orders)

    serve_parent(work, lambda line: orders.append(json.loads(line)))


if __name__ == "__main__":
    main()
