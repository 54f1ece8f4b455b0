"""Environments that take a random while for each step, so that groups arrive in another order every time."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import Actions, Environments, Seeds, StepResult
from valueshare.population.execution.groups import Group


class SlowEnvironments(Environments):
    """The environments of a group, delayed."""

    def __init__(self, group: Group, seed: int) -> None:
        self._inner, self._rng = group.environments, np.random.default_rng(seed)
        self.spec, self.count = self._inner.spec, self._inner.count

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        return self._inner.reset(seeds)

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        self._inner.send(actions, active)

    def receive(self) -> StepResult:
        time.sleep(float(self._rng.exponential(0.002)))
        return self._inner.receive()

    def close(self) -> None:
        self._inner.close()
