"""Staging buffers: tensors on the device, each with a copy on the host."""

import math
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.envs.processes.memory import SharedArrays
from valueshare.envs.step_arrays import StepArrays, aligned_slices, step_fields
from valueshare.population.execution.cuda_driver import device_view
from valueshare.population.state import Population, torch_dtype
from valueshare.population.store import StepTensors

SPIN_SECONDS = 0.05  # that the host polls its own memory before it asks the device
MAPPED_BYTES = 4_096  # of a step, up to which kernels copy it: a copy engine takes longer to start

ShapeAndType = tuple[tuple[int, ...], torch.dtype]


class StagingBuffer:
    """A tensor on the device with its staging copy on the host: pinned memory on CUDA.

    `inside` makes it a slice of a larger buffer, which is copied as a whole. `host` is host memory
    that exists already; without it, the host side on a CPU is the tensor itself. `mapped` is that
    host memory as kernels of the device address it: the copies are then made by kernels.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        *,
        inside: "tuple[StagingBuffer, slice] | None" = None,  # and its bytes there
        host: Tensor | None = None,
        mapped: Tensor | None = None,
    ) -> None:
        self.mapped = mapped
        if inside is None:
            self.tensor = torch.zeros(shape, dtype=dtype, device=device)
            if host is None:
                cuda = device.type == "cuda"
                host = torch.zeros(shape, dtype=dtype, pin_memory=True) if cuda else self.tensor
            self.host = host
        else:
            whole, where = inside
            self.tensor = whole.tensor[where].view(dtype).reshape(shape)
            self.host = whole.host[where].view(dtype).reshape(shape)
        self._shares_memory = self.host.data_ptr() == self.tensor.data_ptr()
        self.array: NDArray[Any] = self.host.numpy()
        # Recorded after every copy: the host side may be read or written once it has passed.
        self._copied: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._copied = _event() if inside is None else inside[0]._copied

    def put(self, values: NDArray[Any]) -> None:
        """Copy from the host to the device, without waiting."""
        self.wait()
        np.copyto(self.array, values)
        self.upload()

    def get(self) -> NDArray[Any]:
        """Copy from the device to the host, and wait. The next call overwrites the array."""
        self.copy_to_host()
        self.record()
        self.wait()
        return self.array

    def wait(self) -> None:
        """Wait until the host side may be read or written again."""
        if self._copied is not None:
            self._copied.synchronize()

    def upload(self) -> None:
        """Launch the copy from the host side to the device."""
        self.copy_to_device()
        self.record()

    def copy_to_device(self) -> None:
        """The copy alone, which may be part of a graph; call `record` when it is launched."""
        if self.mapped is not None:
            _copy_by_kernel(self.mapped, self.tensor)
        elif not self._shares_memory:
            self.tensor.copy_(self.host, non_blocking=True)

    def copy_to_host(self) -> None:
        """The copy alone, in the other direction."""
        if self.mapped is not None:
            _copy_by_kernel(self.tensor, self.mapped)
        elif not self._shares_memory:
            self.host.copy_(self.tensor, non_blocking=True)

    def record(self) -> None:
        """Let `wait` wait for everything launched so far."""
        if self._copied is not None:
            self._copied.record()

    def clear(self) -> None:
        """Mark the host side as empty for `wait_filled`: its numbers are never negative."""
        if self._copied is not None:
            self.array.fill(-1)

    def wait_filled(self, *, alone: bool = True) -> NDArray[Any]:
        """The host side, as soon as the device has filled it.

        The host polls its own memory: an event would be another call at every step. Where this thread is not `alone`,
        others want the interpreter: it sleeps between polls, which takes 55 µs on Linux, even for a time of 0. Alone,
        it yields the core instead.
        """
        if self._copied is not None:
            until = time.perf_counter() + SPIN_SECONDS
            while self.array.min() < 0:
                if time.perf_counter() > until:
                    torch.cuda.current_stream().synchronize()  # raises the error of the device
                    break
                if alone:
                    os.sched_yield()
                else:
                    time.sleep(0)
        return self.array


def packed(
    parts: Sequence[ShapeAndType], device: torch.device, host: Tensor | None = None, mapped: Tensor | None = None
) -> tuple[StagingBuffer, list[StagingBuffer]]:
    """One buffer of bytes, copied as a whole, and the buffers that are slices of it.

    `host` and `mapped` start with all of it.
    """
    where = aligned_slices([math.prod(shape) * dtype.itemsize for shape, dtype in parts])
    size = where[-1].stop
    own_host, own_mapped = (None if each is None else each[:size] for each in (host, mapped))
    whole = StagingBuffer((size,), torch.uint8, device, host=own_host, mapped=own_mapped)
    return whole, [
        StagingBuffer(shape, dtype, device, inside=(whole, each))
        for (shape, dtype), each in zip(parts, where, strict=True)
    ]


class StepBuffers(NamedTuple):
    """The data of one step that passes between environments and agents."""

    result: StagingBuffer  # bytes: the five below, copied together
    observation: StagingBuffer
    final_observation: StagingBuffer
    reward: StagingBuffer
    terminated: StagingBuffer
    ended: StagingBuffer
    stored_action: StagingBuffer  # of the step to store; never copied: each side keeps its own
    action: StagingBuffer  # of the next step, or of the one under way
    obs: Tensor  # [P, ...]  what the network sees: `observation` itself, or stacks [P, S, ...]
    arrays: StepArrays  # the host sides of the five

    def store_last_actions(self) -> None:
        """The actions chosen last are those of the step to store."""
        self.stored_action.tensor.copy_(self.action.tensor)
        if self.stored_action.host is not self.stored_action.tensor:
            np.copyto(self.stored_action.array, self.action.array)

    def on_device(self) -> StepTensors:
        return StepTensors(*(buffer.tensor for buffer in self[1:7]))

    def on_host(self) -> StepTensors:
        return StepTensors(*(buffer.host for buffer in self[1:7]))


def make_step_buffers(population: Population, shared: SharedArrays | None = None) -> StepBuffers:
    """Buffers of one step; with `shared`, their host sides are memory that another process uses too.

    That memory is mapped on CUDA, and so is that of a small step.
    """
    p, env, device = population.size, population.env, population.device
    fields = step_fields(env, p)
    host = mapped = action_host = action_mapped = None
    *_, actions = aligned_slices([*(field.nbytes for field in fields), p * torch.int64.itemsize])
    if shared is not None:
        host, actions = torch.from_numpy(shared.bytes), shared.slices["action"]
    elif device.type == "cuda" and actions.stop <= MAPPED_BYTES:
        host = torch.zeros(actions.stop, dtype=torch.uint8, pin_memory=True)
    if host is not None:
        action_host = host[actions].view(torch.int64)
        if device.type == "cuda":
            mapped = device_view(host.numpy())
            action_mapped = mapped[actions].view(torch.int64)
    whole, parts = packed([(field.shape, torch_dtype(field.dtype)) for field in fields], device, host, mapped)
    obs = parts[0].tensor
    if env.stack:
        obs = torch.zeros((p, *env.network_shape), dtype=obs.dtype, device=device)
    stored_action = StagingBuffer((p,), torch.int64, device)
    action = StagingBuffer((p,), torch.int64, device, host=action_host, mapped=action_mapped)
    arrays = StepArrays(*(part.array for part in parts))
    return StepBuffers._make((whole, *parts, stored_action, action, obs, arrays))


def _copy_by_kernel(source: Tensor, target: Tensor) -> None:
    """Copy non-negative numbers by a kernel; `copy_` would use a copy engine."""
    torch.abs(source, out=target)


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    return event
