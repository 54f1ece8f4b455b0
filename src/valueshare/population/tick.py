"""The device's side of one tick: act, learn, store, as steps over tensors that never move.

A tick of the whole population is

    act -> actions to the host -> environments begin -> learn -> environments end -> store

so that learning overlaps the environments (on CUDA the host only launches it). The update of tick t
therefore samples transitions up to t-1: the one that is under way is not there yet.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.envs.base import StepResult
from valueshare.population.act import act
from valueshare.population.graph import GraphedStep, capture_all
from valueshare.population.learn import copy_to_target, learn, measure
from valueshare.population.state import Population, State, flat, load_, torch_dtype
from valueshare.replay import transitions

ALIGNED = 64  # bytes; parts of a mailbox begin at multiples of it


class Mailbox:
    """A tensor on the device with its letterbox on the host: page-locked memory on CUDA.

    `inside` makes it a part of a larger one, whose parts then travel together in one copy.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        *,
        inside: "tuple[Mailbox, int] | None" = None,  # and the byte at which the part begins
    ) -> None:
        if inside is None:
            self.tensor = torch.zeros(shape, dtype=dtype, device=device)
            cuda = device.type == "cuda"
            self._host = torch.zeros(shape, dtype=dtype, pin_memory=True) if cuda else self.tensor
        else:
            whole, first = inside
            bytes_ = slice(first, first + math.prod(shape) * dtype.itemsize)
            self.tensor = whole.tensor[bytes_].view(dtype).reshape(shape)
            self._host = whole._host[bytes_].view(dtype).reshape(shape)
        self.array: NDArray[Any] = self._host.numpy()
        # When the letterbox may be filled again: a part has the whole's, because it is in it.
        self._fetched: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._fetched = _event() if inside is None else inside[0]._fetched

    def put(self, values: NDArray[Any]) -> None:
        """From the host to the device, without waiting for it."""
        self.wait()
        np.copyto(self.array, values)
        self.post()

    def wait(self) -> None:
        """Until the letterbox may be filled again."""
        if self._fetched is not None:
            self._fetched.synchronize()

    def post(self) -> None:
        """Have the device fetch what is in the letterbox."""
        if self._fetched is not None:
            self.tensor.copy_(self._host, non_blocking=True)
            self._fetched.record()

    def get(self) -> NDArray[Any]:
        """From the device to the host; waits for it. The array is overwritten by the next call."""
        if self._fetched is not None:
            self._host.copy_(self.tensor, non_blocking=True)
            torch.cuda.current_stream(self.tensor.device).synchronize()
        return self.array


class Exchange(NamedTuple):
    """What passes between environments and agents in a tick."""

    result: Mailbox  # bytes: the five below, which travel together
    observation: Mailbox  # [P, ...]  what the agents see now
    final_observation: Mailbox  # [P, ...]  where the last step led
    reward: Mailbox  # [P]
    terminated: Mailbox  # [P]
    ended: Mailbox  # [P]
    action: Mailbox  # [P]

    def put(self, result: StepResult) -> None:
        """Hand over what the environments answered."""
        self.result.wait()
        np.copyto(self.observation.array, result.observation)
        np.copyto(self.final_observation.array, result.final_observation)
        np.copyto(self.reward.array, result.reward)
        np.copyto(self.terminated.array, result.terminated)
        np.logical_or(result.terminated, result.truncated, out=self.ended.array)
        self.result.post()


class Steps(NamedTuple):
    """The device work of a tick; each is a call without arguments."""

    act: GraphedStep  # exchange.observation -> exchange.action
    learn: GraphedStep
    renew_target: GraphedStep  # copy the weights, then measure on a fresh minibatch
    store: GraphedStep  # exchange -> replay; the step is then over


def make_exchange(population: Population) -> Exchange:
    p, env, device = population.size, population.env, population.device
    observation = (p, *env.observation_shape), torch_dtype(env.observation_dtype)
    parts = (
        observation,
        observation,
        ((p,), torch.float32),
        ((p,), torch.bool),
        ((p,), torch.bool),
    )
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in parts]
    firsts = [sum(-(-size // ALIGNED) * ALIGNED for size in sizes[:i]) for i in range(len(parts))]
    whole = Mailbox((firsts[-1] + sizes[-1],), torch.uint8, device)
    mailboxes = [
        Mailbox(shape, dtype, device, inside=(whole, first))
        for (shape, dtype), first in zip(parts, firsts, strict=True)
    ]
    return Exchange._make((whole, *mailboxes, Mailbox((p,), torch.int64, device)))


def make_steps(
    population: Population, state: State, exchange: Exchange, *, compiled: bool
) -> Steps:
    """The steps of a population that has not begun: on CUDA they are captured here.

    Capturing runs them. The small tensors are put back; what remains of it in the rings of replay
    lies where the cursors have not been, and is overwritten before it can be sampled.
    """

    def act_step() -> None:
        exchange.action.tensor.copy_(act(population, state, exchange.observation.tensor))

    def learn_step() -> None:
        learn(population, state)

    def renew_target_step() -> None:
        copy_to_target(state)
        measure(population, state)

    def store_step() -> None:
        store(population, state, exchange)

    steps = Steps(
        *(
            GraphedStep(function, population.device, compiled=compiled)
            for function in (act_step, learn_step, renew_target_step, store_step)
        )
    )
    before = {name: tensor.clone() for name, tensor in flat(state).items()}
    capture_all(steps, population.device)
    load_(state, before)
    return steps


@torch.no_grad()
def store(population: Population, state: State, exchange: Exchange) -> None:
    """Remember the step that the environments have just taken."""
    terminated = exchange.terminated.tensor
    transitions.append(
        state.replay,
        exchange.action.tensor,
        training_reward(population, exchange.reward.tensor),
        population.own.discount.masked_fill(terminated, 0.0),
        exchange.final_observation.tensor,
        exchange.ended.tensor,
        exchange.observation.tensor,
    )
    state.step.add_(1)


def training_reward(population: Population, reward: Tensor) -> Tensor:
    """Rewards as the agents learn from them."""
    scaled = reward * population.settings.reward_scale
    return scaled.sign() if population.settings.clip_rewards else scaled


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    return event
