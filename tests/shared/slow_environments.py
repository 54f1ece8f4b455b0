"""Environments that take a random while for each step, so that groups arrive in another order every time."""

import time
from typing import Any

import numpy as np

from valueshare.envs.base import StepResult
from valueshare.population.execution.groups import Group


class SlowEnvironments:
    """The environments of a group, delayed."""

    def __init__(self, group: Group, seed: int) -> None:
        self._inner, self._rng = group.environments, np.random.default_rng(seed)

    def receive(self) -> StepResult:
        time.sleep(float(self._rng.exponential(0.002)))
        return self._inner.receive()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
