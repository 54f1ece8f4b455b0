"""Updates of the optimisers in one pass over memory, on a CPU, compiled by Numba.

As operations of PyTorch, an update of Adam reads and writes memory a dozen times, which takes as long as the gradients
of a small network. Here each weight is read and written once. PyTorch's compiler does the same; these are for training
without it.

Weights p, gradients g and moments m and v are [P, N], and one thread updates the agents `first` to `last`: an agent's
numbers do not depend on the number of threads, or on the other agents.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
PER_THREAD = 50_000  # weights: fewer are updated faster by one thread


@njit(nogil=True, cache=True, error_model="numpy")
def adam(
    first: int, last: int, active: Array, p: Array, g: Array, m: Array, v: Array, rate: Array, least: Array, x: Array
) -> None:
    """p -= rate·m / (sqrt(v) + least). x: 1 - beta1, beta2, 1 - beta2. Shapes: active, rate, least [P]."""
    for agent in range(first, last):
        if active[agent]:
            alpha, epsilon = rate[agent], least[agent]
            for i in range(p.shape[1]):
                gradient = g[agent, i]
                mean = m[agent, i] + x[0] * (gradient - m[agent, i])
                square = x[1] * v[agent, i] + x[2] * (gradient * gradient)
                m[agent, i], v[agent, i] = mean, square
                p[agent, i] -= alpha * mean / (np.sqrt(square) + epsilon)


@njit(nogil=True, cache=True, error_model="numpy")
def rmsprop(
    first: int, last: int, active: Array, p: Array, g: Array, m: Array, v: Array, rate: Array, x: Array
) -> None:
    """p -= rate·g / sqrt(v - m² + epsilon). x: decay, 1 - decay, epsilon. Shapes: active, rate [P]."""
    for agent in range(first, last):
        if active[agent]:
            alpha = rate[agent]
            for i in range(p.shape[1]):
                gradient = g[agent, i]
                mean = m[agent, i] + x[1] * (gradient - m[agent, i])
                square = x[0] * v[agent, i] + x[1] * (gradient * gradient)
                m[agent, i], v[agent, i] = mean, square
                variance = max(square - mean * mean, x[2] - x[2])  # rounding may end below 0
                p[agent, i] -= alpha * gradient / np.sqrt(variance + x[2])


def update(
    kernel: Callable[..., None],
    active: Tensor,
    tensors: Sequence[Tensor],
    per_agent: Sequence[Tensor],
    numbers: Sequence[float],
) -> None:
    """Run a kernel in as many threads as PyTorch uses. `tensors`: p, g, m and v, [P, ...]; `per_agent`: [P] each."""
    weights = tensors[0]
    rows = [_rows(tensor, weights) for tensor in tensors]
    rest = [*(values.numpy() for values in per_agent), np.array(numbers, dtype=rows[0].dtype)]
    agents = len(weights)
    threads = max(1, min(torch.get_num_threads(), agents, weights.numel() // PER_THREAD))
    ends = [agents * share // threads for share in range(threads + 1)]
    shares = [(first, last, active.numpy(), *rows, *rest) for first, last in pairwise(ends)]
    others = [_threads(os.getpid()).submit(kernel, *share) for share in shares[1:]]
    kernel(*shares[0])
    for other in others:
        other.result()


def _rows(tensor: Tensor, like: Tensor) -> Array:
    """A tensor [P, ...] as [P, N], with the N in the order in which `like` has them in memory."""
    if tensor.stride() != like.stride():
        tensor = torch.empty_like(like).copy_(tensor)
    rows: Array = tensor.as_strided((len(like), like[0].numel()), (like.stride(0), 1)).numpy()
    return rows


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Threads of a process; a fork has none of its parent's."""
    return ThreadPoolExecutor(max(1, torch.get_num_threads() - 1), f"optimiser-{process}")
