"""What passes between host and device: tensors there, each with its letterbox here."""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.envs.base import StepResult
from valueshare.envs.letters import StepArrays, letter_fields, places
from valueshare.envs.processes.memory import SharedArrays
from valueshare.population.cuda_driver import as_device_sees
from valueshare.population.state import Population, torch_dtype

LOOKED_FOR = 0.05  # seconds into a letterbox, before the host asks the device

Part = tuple[tuple[int, ...], torch.dtype]  # shape and type


class Mailbox:
    """A tensor on the device with its letterbox on the host: page-locked memory on CUDA.

    `inside` makes it a part of a larger one, whose parts then travel together in one copy. `host`
    is a letterbox that is there already; without it, a CPU's letterbox is the tensor itself. And
    `mapped` is that letterbox as kernels of the device see it: they then do the copies.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        *,
        inside: "tuple[Mailbox, slice] | None" = None,  # and its bytes there
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
            whole, place = inside
            self.tensor = whole.tensor[place].view(dtype).reshape(shape)
            self.host = whole.host[place].view(dtype).reshape(shape)
        self._is_one = self.host.data_ptr() == self.tensor.data_ptr()
        self.array: NDArray[Any] = self.host.numpy()
        # When the letterbox may be read or filled again: a part has the whole's, being in it.
        self._fetched: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._fetched = _event() if inside is None else inside[0]._fetched

    def put(self, values: NDArray[Any]) -> None:
        """From the host to the device, without waiting for it."""
        self.wait()
        np.copyto(self.array, values)
        self.post()

    def wait(self) -> None:
        """Until the letterbox may be read or filled again."""
        if self._fetched is not None:
            self._fetched.synchronize()

    def post(self) -> None:
        """Have the device fetch what is in the letterbox."""
        self.to_device()
        self.note()

    def fetch(self) -> None:
        """Have the device send what it has, when it has done what it was given so far."""
        self.to_host()
        self.note()

    def to_device(self) -> None:
        """The copy alone, which may be part of a graph; `note` when it is launched."""
        if self.mapped is not None:
            _copy_by_kernel(self.mapped, self.tensor)
        elif not self._is_one:
            self.tensor.copy_(self.host, non_blocking=True)

    def to_host(self) -> None:
        """The same the other way."""
        if self.mapped is not None:
            _copy_by_kernel(self.tensor, self.mapped)
        elif not self._is_one:
            self.host.copy_(self.tensor, non_blocking=True)

    def note(self) -> None:
        """What was launched so far is what `wait` waits for."""
        if self._fetched is not None:
            self._fetched.record()

    def arrived(self) -> NDArray[Any]:
        """What was fetched; waits for it, and for nothing that was launched later."""
        self.wait()
        return self.array

    def empty(self) -> None:
        """So that `filled` sees when the device has sent numbers, none of which is negative."""
        if self._fetched is not None:
            self.array.fill(-1)

    def filled(self) -> NDArray[Any]:
        """What the device sends into an empty letterbox, as soon as it is there.

        The host looks into the letterbox itself: an event would be another call for every step.
        """
        if self._fetched is not None:
            until = time.perf_counter() + LOOKED_FOR
            while self.array.min() < 0:
                if time.perf_counter() > until:
                    torch.cuda.current_stream().synchronize()  # says what went wrong
                    break
                time.sleep(0)  # other threads may want the interpreter
        return self.array

    def get(self) -> NDArray[Any]:
        """From the device to the host; waits for it. The array is overwritten by the next call."""
        self.fetch()
        return self.arrived()


def travelling_together(
    parts: Sequence[Part],
    device: torch.device,
    host: Tensor | None = None,
    mapped: Tensor | None = None,
) -> tuple[Mailbox, list[Mailbox]]:
    """A mailbox of bytes, and the mailboxes in it; `host` and `mapped` begin with all of it."""
    where = places([math.prod(shape) * dtype.itemsize for shape, dtype in parts])
    size = where[-1].stop
    own_host, own_mapped = (None if each is None else each[:size] for each in (host, mapped))
    whole = Mailbox((size,), torch.uint8, device, host=own_host, mapped=own_mapped)
    return whole, [
        Mailbox(shape, dtype, device, inside=(whole, place))
        for (shape, dtype), place in zip(parts, where, strict=True)
    ]


class Letters(NamedTuple):
    """One step of every agent, on the device or on the host."""

    observation: Tensor  # [P, ...]  what the environments show now: the newest frame of a stack
    final_observation: Tensor  # [P, ...]  where the last step led, if it `ended` an episode
    reward: Tensor  # [P]
    terminated: Tensor  # [P]
    ended: Tensor  # [P]
    taken: Tensor  # [P]  the actions of that step


class Exchange(NamedTuple):
    """What passes between environments and agents in a tick."""

    result: Mailbox  # bytes: the five below, which travel together
    observation: Mailbox
    final_observation: Mailbox
    reward: Mailbox
    terminated: Mailbox
    ended: Mailbox
    taken: Mailbox  # the actions that led to it; never sent: each side keeps its own
    action: Mailbox  # of the step that is next, or under way
    seen: Tensor  # [P, ...]  what the agents see: `observation` itself, or stacks [P, S, ...]
    letterboxes: StepArrays  # of the five

    def fill(self, result: StepResult) -> None:
        """Put what the environments answered into the letterboxes; `result.post` is for later."""
        self.result.wait()
        self.letterboxes.fill(result)

    def keep_actions(self) -> None:
        """The last ones chosen are those of the step to store."""
        self.taken.tensor.copy_(self.action.tensor)
        if self.taken.host is not self.taken.tensor:
            np.copyto(self.taken.array, self.action.array)

    def on_device(self) -> Letters:
        return Letters(*(box.tensor for box in self[1:7]))

    def on_host(self) -> Letters:
        return Letters(*(box.host for box in self[1:7]))


def make_exchange(population: Population, shared: SharedArrays | None = None) -> Exchange:
    """With `shared`, the letterboxes that environments use are those of another process too."""
    p, env, device = population.size, population.env, population.device
    fields = letter_fields(env, p)
    host = mapped = chosen = chosen_mapped = None
    if shared is not None:
        host, chosen = torch.from_numpy(shared.bytes), torch.from_numpy(shared.arrays["action"])
        if device.type == "cuda":
            mapped = as_device_sees(shared.bytes)
            chosen_mapped = mapped[shared.places["action"]].view(torch.int64)
    whole, parts = travelling_together(
        [(field.shape, torch_dtype(field.dtype)) for field in fields], device, host, mapped
    )
    seen = parts[0].tensor
    if env.stack:
        seen = torch.zeros((p, *env.network_shape), dtype=seen.dtype, device=device)
    taken = Mailbox((p,), torch.int64, device)
    action = Mailbox((p,), torch.int64, device, host=chosen, mapped=chosen_mapped)
    letterboxes = StepArrays(*(part.array for part in parts))
    return Exchange._make((whole, *parts, taken, action, seen, letterboxes))


def shifted(seen: Tensor, frame: Tensor, first: Tensor) -> Tensor:
    """Stacks with their newest frame: the oldest goes; where `first`, all of it is that frame.

    Shapes: seen [..., S, H, W], frame [..., H, W], first [...] bool -> [..., S, H, W].
    """
    axis = first.ndim
    newest = frame.unsqueeze(axis)
    later = torch.cat([seen.narrow(axis, 1, seen.shape[axis] - 1), newest], axis)
    fresh = first.reshape(*first.shape, *(1,) * (seen.ndim - axis))
    return torch.where(fresh, newest, later)


def _copy_by_kernel(source: Tensor, target: Tensor) -> None:
    """Of numbers that are never negative: `copy_` itself would be a copy engine's."""
    torch.abs(source, out=target)


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    return event
