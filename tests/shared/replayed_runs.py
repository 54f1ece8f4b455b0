"""The random numbers of tabular runs, in whole numbers of Python."""

import numpy as np
from numpy.typing import NDArray

from valueshare.tabular.randomness import run_keys

Floats = NDArray[np.float64]


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


class Replay:
    """One run's random numbers."""

    def __init__(self, k: float, step_size: float, seed: int) -> None:
        key = int(run_keys(np.array([seed]), np.array([k]), np.array([step_size]))[0])
        self.actions, self.transitions, self.starts = (mix(key ^ name) for name in (1, 2, 3))

    @staticmethod
    def bits(stream: int, step: int) -> int:
        return mix((stream + step * 0x9E3779B97F4A7C15) % 2**64)

    def pick(self, stream: int, step: int, probabilities: Floats) -> int:
        """The first index at which the running sum exceeds a uniform number."""
        point = (self.bits(stream, step) >> 11) / 2**53
        return int(np.searchsorted(np.cumsum(probabilities), point, side="right"))

    def act(self, z: Floats, epsilon: float, step: int) -> int:
        """The high half of a draw is the coin; the low half picks among all, or the best."""
        draw = self.bits(self.actions, step)
        best = np.flatnonzero(z == z.max())
        among = np.arange(len(z)) if draw >> 32 < epsilon * 2**32 else best
        return int(among[(draw % 2**32) * len(among) >> 32])
