"""Environments in a separate process: the parent's side."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from valueshare.children import Child
from valueshare.envs.base import Actions, Environments, EnvironmentSpec, Seeds, StepResult, as_keys
from valueshare.envs.processes import child
from valueshare.envs.processes.memory import SharedArrays, fence, shared_fields
from valueshare.envs.step_arrays import StepArrays
from valueshare.errors import EnvironmentFailed

PAUSE = 0.0001  # seconds between polls
LIVENESS_SECONDS = 0.1  # seconds between checks that the process is alive
END_SECONDS = 5.0  # for steps under way, when something has failed


class EnvironmentProcess(Environments):
    """E environments that step whenever actions are in the memory that both processes share.

    Whoever writes them there by other means than `send` adds to `requested`.
    """

    def __init__(self, names: Sequence[str], spec: EnvironmentSpec, *, threads: int, protocol: str | None) -> None:
        """`spec` must fit all of these names; the process is starting when this returns."""
        self.spec, self.count = spec, len(names)
        self._name = " and ".join(dict.fromkeys(names))
        self.memory = SharedArrays(shared_fields(spec, self.count))
        self.requested = 0  # steps, since the process started
        self._commands, self._has_sent = 0, False
        environments = {
            "env_ids": list(names),
            "count": self.count,
            "backend": spec.backend,
            "threads": threads,
            "protocol": protocol,
            "lockstep": True,
        }
        self.memory.arrays["action"].fill(-1)
        text = json.dumps({"environments": environments, "memory": self.memory.descriptor})
        self._child: Child | None = None
        try:
            self._child = Child(child.__name__, text, files=[self.memory.descriptor])
        except BaseException:
            self.memory.close()
            raise

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        """New episodes everywhere; steps under way are dropped. Shapes: [E] -> [E, ...]."""
        self._command([int(key) for key in as_keys(seeds, self.count)])
        return self.memory.arrays["observation"].copy()

    def pause(self) -> None:
        """Take no actions until the next reset."""
        self._command(None)

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        if active is not None:
            raise RuntimeError("environments of a process step together")
        if self._has_sent:
            raise RuntimeError("send follows reset or receive")
        self.requested += 1
        self._has_sent = True
        self.memory.arrays["action"][:] = actions

    def receive(self) -> StepResult:
        if not self._has_sent:
            raise RuntimeError("receive follows send")
        self.wait(self.requested)
        self._has_sent = False
        step = StepArrays(*(self.memory.arrays[name].copy() for name in StepArrays._fields))
        final = step.observation.copy()
        final[step.ended] = step.final_observation[step.ended]
        truncated = step.ended & ~step.terminated
        return StepResult(step.observation, step.reward, step.terminated, truncated, final)

    def wait(self, steps: int, poll: Callable[[], None] = lambda: None, *, pause: float = PAUSE) -> None:
        """Wait until `steps` steps are made and counted (see `requested`), looking every `pause` seconds.

        `poll` is called meanwhile.
        """
        self._wait("counted", steps, poll, pause)

    def check(self) -> None:
        """Raise what ended the process, if something did."""
        if self._child is None:
            raise EnvironmentFailed(f"the process of {self._name} was ended")
        if self._child.has_ended():
            result = self._child.result()
            result.raise_if_fixable()
            raise EnvironmentFailed(f"the environments of {self._name} ended: {result.reason}")

    def close(self) -> None:
        """End the process. Whoever waits for its steps continues, with meaningless results."""
        if self._child is not None:
            ended, self._child = self._child, None
            try:
                ended.kill()
                ended.close()
            finally:  # also where the wait for its end is interrupted
                self.memory.arrays["stepped"][0] = self.requested % 2**32
                self.memory.close()

    def is_idle(self) -> bool:
        """Whether it has made all requested steps, or has ended and is closed."""
        if self._child is not None and self._child.has_ended():
            self.close()
        return self._child is None or not self._is_behind("counted", self.requested)

    def _command(self, seeds: list[int] | None) -> None:
        """A reset, or None to pause; executed when this returns."""
        self.check()
        assert self._child is not None
        self._child.send(json.dumps(seeds))
        self._commands += 1
        self._wait("commands", self._commands, lambda: None)
        self.requested, self._has_sent = int(self.memory.arrays["stepped"][0]), False

    def _wait(self, word: str, value: int, poll: Callable[[], None], pause: float = PAUSE) -> None:
        checked = time.perf_counter()
        while self._is_behind(word, value):
            time.sleep(pause)
            if time.perf_counter() - checked > LIVENESS_SECONDS:
                checked = time.perf_counter()
                self.check()
                poll()
        fence()

    def _is_behind(self, word: str, value: int) -> bool:
        return 0 < (value - int(self.memory.arrays[word][0])) % 2**32 < 2**31  # modulo 2^32


def wait_until_idle(processes: Sequence[EnvironmentProcess]) -> None:
    """Wait until all have made the requested steps; those that cannot are ended.

    A step may depend on another process, so all of them have the same deadline.
    """
    until = time.perf_counter() + END_SECONDS
    try:
        while [process for process in processes if not process.is_idle()]:
            if time.perf_counter() > until:
                break
            time.sleep(PAUSE)
    finally:  # also where the wait is interrupted
        with ExitStack() as rest:
            for process in processes:
                if not process.is_idle():
                    rest.callback(process.close)
