"""Shared memory: arrays that two processes read and write, and the order of their writes."""

import mmap
import os
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import EnvironmentSpec
from valueshare.envs.step_arrays import Field, aligned_slices, step_fields


def shared_fields(spec: EnvironmentSpec, count: int) -> list[Field]:
    """The arrays that a process of `count` environments shares with its parent."""
    word = np.dtype(np.uint32)
    return [
        *step_fields(spec, count),
        Field("action", (count,), np.dtype(np.int64)),  # negative: already used, or not chosen yet
        Field("stepped", (1,), word),  # steps whose results are written, modulo 2^32
        Field("counted", (1,), word),  # steps whose episodes are counted as well
        Field("commands", (1,), word),  # of the parent that are executed
        Field("return_sum", (count,), np.dtype(np.float64)),  # since the last reset, as the next
        Field("episode_count", (count,), np.dtype(np.int64)),
    ]


class SharedArrays:
    """Arrays at fixed offsets of one block of memory, which is a file without a name."""

    def __init__(self, fields: Sequence[Field], descriptor: int | None = None) -> None:
        """Allocate the arrays, or map those of another process: `descriptor` and the same fields."""
        where = aligned_slices([field.nbytes for field in fields])
        self.descriptor = _new_file(where[-1].stop) if descriptor is None else descriptor
        self.bytes: NDArray[np.uint8] = np.frombuffer(mmap.mmap(self.descriptor, where[-1].stop), np.uint8)
        self.slices = {field.name: span for field, span in zip(fields, where, strict=True)}
        self.arrays: dict[str, NDArray[Any]] = {
            field.name: self.bytes[self.slices[field.name]].view(field.dtype).reshape(field.shape) for field in fields
        }

    def close(self) -> None:
        """Close the file; the arrays stay valid while something refers to them."""
        os.close(self.descriptor)


def fence() -> None:
    """A memory barrier: a reader that sees a write after this call sees every write before it.

    On some processors, stores become visible to others in another order. Those before the release of a lock become
    visible before it, and those after its next acquisition after that. Every call has its own lock, because several
    threads may call this at once.
    """
    lock = threading.Lock()
    lock.acquire()
    lock.release()
    lock.acquire()


def _new_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("valueshare")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, size)
    return descriptor
