"""The device's side of one tick: act, learn, store, as steps over tensors that never move.

A tick of the whole population is

    act -> actions to the host -> environments begin -> learn -> environments end -> store

so that learning overlaps the environments (on CUDA the host only launches it). The update of tick t
therefore samples transitions up to t-1: the one that is under way is not there yet.
"""

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


class Mailbox:
    """A tensor on the device with its letterbox on the host: page-locked memory on CUDA."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        cuda = device.type == "cuda"
        self._host = torch.zeros(shape, dtype=dtype, pin_memory=True) if cuda else self.tensor
        self._array: NDArray[Any] = self._host.numpy()
        self._fetched = _event() if cuda else None  # when the letterbox may be filled again

    def put(self, values: NDArray[Any]) -> None:
        """From the host to the device, without waiting for it."""
        if self._fetched is not None:
            self._fetched.synchronize()
        np.copyto(self._array, values)
        if self._fetched is not None:
            self.tensor.copy_(self._host, non_blocking=True)
            self._fetched.record()

    def get(self) -> NDArray[Any]:
        """From the device to the host; waits for it. The array is overwritten by the next call."""
        if self._fetched is not None:
            self._host.copy_(self.tensor, non_blocking=True)
            torch.cuda.current_stream(self.tensor.device).synchronize()
        return self._array


class Exchange(NamedTuple):
    """What passes between environments and agents in a tick."""

    observation: Mailbox  # [P, ...]  what the agents see now
    final_observation: Mailbox  # [P, ...]  where the last step led
    reward: Mailbox  # [P]
    terminated: Mailbox  # [P]
    ended: Mailbox  # [P]
    action: Mailbox  # [P]

    def put(self, result: StepResult) -> None:
        """Hand over what the environments answered."""
        self.observation.put(result.observation)
        self.final_observation.put(result.final_observation)
        self.reward.put(result.reward)
        self.terminated.put(result.terminated)
        self.ended.put(result.terminated | result.truncated)


class Steps(NamedTuple):
    """The device work of a tick; each is a call without arguments."""

    act: GraphedStep  # exchange.observation -> exchange.action
    learn: GraphedStep
    renew_target: GraphedStep  # copy the weights, then measure on a fresh minibatch
    store: GraphedStep  # exchange -> replay; the step is then over


def make_exchange(population: Population) -> Exchange:
    p, env, device = population.size, population.env, population.device
    observations = (p, *env.observation_shape), torch_dtype(env.observation_dtype)
    return Exchange(
        observation=Mailbox(*observations, device),
        final_observation=Mailbox(*observations, device),
        reward=Mailbox((p,), torch.float32, device),
        terminated=Mailbox((p,), torch.bool, device),
        ended=Mailbox((p,), torch.bool, device),
        action=Mailbox((p,), torch.int64, device),
    )


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
