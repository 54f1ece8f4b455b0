"""One step of several environments as arrays at fixed addresses, overwritten at every step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import EnvironmentSpec, StepResult
from valueshare.integers import round_up

ALIGNMENT = 64  # bytes: arrays in one block of memory start at multiples of it


class Field(NamedTuple):
    """An array that is part of a larger block of memory."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class StepArrays(NamedTuple):
    """One step of E environments."""

    observation: NDArray[Any]  # [E, ...] to act on next
    final_observation: NDArray[Any]  # [E, ...] the observation of the step itself, of those that `ended`
    reward: NDArray[np.float32]  # [E]
    terminated: NDArray[np.bool_]  # [E]
    ended: NDArray[np.bool_]  # [E] terminated or truncated

    def fill(self, result: StepResult) -> None:
        """Copy a result of the environments into the arrays."""
        self.ended[...] = result.terminated | result.truncated
        self.observation[...] = result.observation
        if np.count_nonzero(self.ended):  # the other rows are not read
            self.final_observation[self.ended] = result.final_observation[self.ended]
        self.reward[...] = result.reward
        self.terminated[...] = result.terminated


def step_fields(spec: EnvironmentSpec, count: int) -> list[Field]:
    """The arrays of `StepArrays` for `count` environments."""
    obs, flag = spec.observation_dtype, np.dtype(np.bool_)
    return [
        Field("observation", (count, *spec.observation_shape), obs),
        Field("final_observation", (count, *spec.observation_shape), obs),
        Field("reward", (count,), np.dtype(np.float32)),
        Field("terminated", (count,), flag),
        Field("ended", (count,), flag),
    ]


def aligned_slices(sizes: Sequence[int]) -> list[slice]:
    """Bytes of consecutive arrays of these sizes in one block, which ends with the last of them."""
    starts = [sum(round_up(size, ALIGNMENT) for size in sizes[:i]) for i in range(len(sizes))]
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
