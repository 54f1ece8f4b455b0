"""A process of environments, as its parent sees it."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from valueshare.children import Child
from valueshare.envs.base import Actions, EnvironmentSpec, Seeds, StepResult, as_keys
from valueshare.envs.letters import StepArrays
from valueshare.envs.processes import child
from valueshare.envs.processes.memory import SharedArrays, fence, shared_fields
from valueshare.errors import EnvironmentFailed

PAUSE = 0.0001  # seconds between looks
PATIENCE = 0.1  # seconds between looks at whether the process is alive
END_SECONDS = 5.0  # for steps under way, when something has failed


class EnvironmentProcess:
    """E environments that step whenever actions are in the memory that both processes share.

    Whoever puts them there by other means than `send` adds to `asked`.
    """

    def __init__(
        self,
        names: Sequence[str],
        spec: EnvironmentSpec,
        *,
        threads: int,
        protocol: str | None,
    ) -> None:
        """`spec` must suit all of these names; the process is on its way when this returns."""
        self.spec, self.count = spec, len(names)
        self._name = " and ".join(dict.fromkeys(names))
        self.memory = SharedArrays(shared_fields(spec, self.count))
        self.asked = 0  # steps, since the process began
        self._orders, self._has_sent = 0, False
        how = {
            "env_ids": list(names),
            "count": self.count,
            "backend": spec.backend,
            "threads": threads,
            "protocol": protocol,
            "lockstep": True,
        }
        self.memory.arrays["action"].fill(-1)
        text = json.dumps({"environments": how, "memory": self.memory.descriptor})
        self._child: Child | None = None
        try:
            self._child = Child(child.__name__, text, files=[self.memory.descriptor])
        except BaseException:
            self.memory.close()
            raise

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        """New episodes everywhere; steps under way are dropped. Shapes: [E] -> [E, ...]."""
        self._order([int(key) for key in as_keys(seeds, self.count)])
        return self.memory.arrays["observation"].copy()

    def rest(self) -> None:
        """Take no actions until the next reset."""
        self._order(None)

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        if active is not None:
            raise RuntimeError("environments of a process step together")
        if self._has_sent:
            raise RuntimeError("send follows reset or receive")
        self.asked += 1
        self._has_sent = True
        self.memory.arrays["action"][:] = actions

    def receive(self) -> StepResult:
        if not self._has_sent:
            raise RuntimeError("receive follows send")
        self.wait(self.asked)
        self._has_sent = False
        letters = StepArrays(*(self.memory.arrays[name].copy() for name in StepArrays._fields))
        final = letters.observation.copy()
        final[letters.ended] = letters.final_observation[letters.ended]
        truncated = letters.ended & ~letters.terminated
        return StepResult(letters.observation, letters.reward, letters.terminated, truncated, final)

    def step(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> StepResult:
        self.send(actions, active)
        return self.receive()

    def wait(self, steps: int, poll: Callable[[], None] = lambda: None) -> None:
        """Until so many steps are made and counted, as `asked` counts; `poll` now and then."""
        self._wait("counted", steps, poll)

    def check(self) -> None:
        """Raise what ended the process, if something did."""
        if self._child is None:
            raise EnvironmentFailed(f"the process of {self._name} was ended")
        if self._child.has_ended():
            answer = self._child.result()
            answer.raise_if_fixable()
            raise EnvironmentFailed(f"the environments of {self._name} ended: {answer.reason}")

    def close(self) -> None:
        """End the process. Whoever waits for its steps goes on, with letters that mean nothing."""
        if self._child is not None:
            ended, self._child = self._child, None
            try:
                ended.kill()
                ended.close()
            finally:  # also where somebody no longer wants to wait for its end
                self.memory.arrays["stepped"][0] = self.asked % 2**32
                self.memory.close()

    def is_settled(self) -> bool:
        """Whether it has made all steps that were asked for, or has ended and is closed."""
        if self._child is not None and self._child.has_ended():
            self.close()
        return self._child is None or not self._is_behind("counted", self.asked)

    def _order(self, seeds: list[int] | None) -> None:
        """A reset, or None for a rest; done when this returns."""
        self.check()
        assert self._child is not None
        self._child.send(json.dumps(seeds))
        self._orders += 1
        self._wait("orders", self._orders, lambda: None)
        self.asked, self._has_sent = int(self.memory.arrays["stepped"][0]), False

    def _wait(self, word: str, value: int, poll: Callable[[], None]) -> None:
        looked = time.perf_counter()
        while self._is_behind(word, value):
            time.sleep(PAUSE)
            if time.perf_counter() - looked > PATIENCE:
                looked = time.perf_counter()
                self.check()
                poll()
        fence()

    def _is_behind(self, word: str, value: int) -> bool:
        return 0 < (value - int(self.memory.arrays[word][0])) % 2**32 < 2**31  # in a circle


def settle(processes: Sequence[EnvironmentProcess]) -> None:
    """Until all have made the steps that were asked for; those that cannot are ended.

    A step may need another process's, so all of them have the same time.
    """
    until = time.perf_counter() + END_SECONDS
    try:
        while [process for process in processes if not process.is_settled()]:  # a look at each
            if time.perf_counter() > until:
                break
            time.sleep(PAUSE)
    finally:  # also where somebody no longer wants to wait
        with ExitStack() as rest:
            for process in processes:
                if not process.is_settled():
                    rest.callback(process.close)
