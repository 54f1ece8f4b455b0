"""A step of environments as it is handed over: arrays at fixed places, filled anew every time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import EnvironmentSpec, StepResult

ALIGNED = 64  # bytes: arrays that lie in one piece of memory begin at multiples of it


class Field(NamedTuple):
    """An array that is to lie in a larger piece of memory."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class StepArrays(NamedTuple):
    """One step of E environments."""

    observation: NDArray[Any]  # [E, ...] to act on next
    final_observation: NDArray[Any]  # [E, ...] where the step led, of those that `ended`
    reward: NDArray[np.float32]  # [E]
    terminated: NDArray[np.bool_]  # [E]
    ended: NDArray[np.bool_]  # [E] terminated or truncated

    def fill(self, result: StepResult) -> None:
        """With what the environments answered."""
        np.logical_or(result.terminated, result.truncated, out=self.ended)
        np.copyto(self.observation, result.observation)
        if np.count_nonzero(self.ended):  # the other rows are not read
            self.final_observation[self.ended] = result.final_observation[self.ended]
        np.copyto(self.reward, result.reward)
        np.copyto(self.terminated, result.terminated)


def letter_fields(spec: EnvironmentSpec, count: int) -> list[Field]:
    """The arrays of `StepArrays`, of so many environments."""
    seen, flag = spec.observation_dtype, np.dtype(np.bool_)
    return [
        Field("observation", (count, *spec.observation_shape), seen),
        Field("final_observation", (count, *spec.observation_shape), seen),
        Field("reward", (count,), np.dtype(np.float32)),
        Field("terminated", (count,), flag),
        Field("ended", (count,), flag),
    ]


def places(sizes: Sequence[int]) -> list[slice]:
    """Where parts of so many bytes lie, one after the other; the last one's end is that of all."""
    firsts = [sum(-(-size // ALIGNED) * ALIGNED for size in sizes[:i]) for i in range(len(sizes))]
    return [slice(first, first + size) for first, size in zip(firsts, sizes, strict=True)]
