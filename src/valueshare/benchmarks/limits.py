"""The time that an update takes at least: its arithmetic, at the speed that this machine reaches with large tensors.

An update is products of matrices, counted from the shapes, and then one pass of the optimiser over weights, gradients
and moments. How fast a large product and a large copy are is measured in the same run.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from valueshare.benchmarks.training_loop import calls_per_second
from valueshare.learning.algorithms import Taus
from valueshare.population.state import Population, State, torch_dtype
from valueshare.replay.transitions import Batch

SIDE = {"cpu": 1_536, "cuda": 8_192}  # of the square matrices
COPIED = {"cpu": 64_000_000, "cuda": 1_000_000_000}  # numbers; caches hold less
ROUNDS = 3  # the fastest counts: this is a limit
LIMIT = "products and optimiser at the machine's speed"


class Speed(NamedTuple):
    """Rates that this machine reaches with large tensors, per second."""

    flops: float  # of float32 products; on CUDA of TF32 ones where they are allowed
    bytes: float  # read and written


class Work(NamedTuple):
    """Operations and bytes of one update of all agents."""

    flops: int
    bytes: int

    def seconds(self, speed: Speed) -> float:
        return self.flops / speed.flops + self.bytes / speed.bytes


def measured_speed(device: torch.device, seconds: float = 1.0) -> Speed:
    """The speed of a large product and of a large copy, measured for `seconds`."""
    side, count = SIDE[device.type], COPIED[device.type]
    left, right, product = (torch.ones((side, side), device=device) for _ in range(3))
    source, destination = (torch.ones(count, device=device) for _ in range(2))

    def multiply() -> None:
        torch.mm(left, right, out=product)

    def copy() -> None:
        destination.copy_(source)

    products, copies = (
        max(calls_per_second(call, seconds / ROUNDS / 2, device) for _ in range(ROUNDS)) for call in (multiply, copy)
    )
    return Speed(products * 2 * side**3, copies * 2 * source.nbytes)


def update_work(population: Population, state: State) -> Work:
    """The operations and bytes of one update of all agents.

    The operations are those of the loss and its gradient, counted for one agent on the meta device. The optimiser reads
    and writes weights, gradients and moments once.
    """
    weights = sum(tensor.nbytes for tensor in state.online.parameters.values())
    moments = sum(tensor.nbytes for moment in state.moments[:2] for tensor in moment.values())
    return Work(population.size * _flops_per_agent(population), 2 * (2 * weights + moments))


def _flops_per_agent(population: Population) -> int:
    env, settings, algorithm = population.env, population.settings, population.algorithm
    meta = torch.device("meta")
    size = settings.batch_size
    dtype = torch_dtype(env.observation_dtype)
    before, after = (torch.empty((1, size, *env.network_shape), dtype=dtype, device=meta) for _ in range(2))
    action = torch.empty((1, size), dtype=torch.int64, device=meta)
    reward, discount = (torch.empty((1, size), device=meta) for _ in range(2))
    counts = population.quantile_counts
    taus = Taus(*(torch.empty((1, size, count), device=meta) for count in counts)) if counts.learn else None
    hyperparameters = {name: values[:1].to(meta) for name, values in population.hyperparameters.items()}
    loss_settings = replace(population, hyperparameters=hyperparameters).loss_settings

    def forward(obs: torch.Tensor, tau: torch.Tensor | None) -> torch.Tensor:
        inputs = (obs[0],) if tau is None else (obs[0], tau[0])
        return population.network(*inputs).unsqueeze(0)  # type: ignore[no-any-return]

    with FlopCounterMode(display=False) as counter:
        batch = Batch(before, action, reward, discount, after)
        algorithm.loss(forward, forward, batch, loss_settings, taus).loss.sum().backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops())
