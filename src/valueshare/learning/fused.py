"""Updates of the optimisers in one pass over memory, on a CPU, compiled by Numba.

As operations of PyTorch, an update of Adam reads and writes memory a dozen times, which takes as long as the gradients
of a small network. Here each weight is read and written once. PyTorch's compiler does the same. This module is for
training without compilation.

Weights p, gradients g and moments m and v are [P, ...]. An agent's numbers do not depend on the number of threads or
on other agents; agents that are not `active` [P] are unchanged.
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
WEIGHTS_PER_THREAD = 50_000  # fewer are updated faster by one thread


def is_supported(p: Tensor, m: Tensor, v: Tensor) -> bool:
    """Whether each agent has one block of memory, with its numbers in the same order in all three."""
    block = p.shape[1:].numel()
    span = 1 + sum((size - 1) * stride for size, stride in zip(p.shape[1:], p.stride()[1:], strict=True))
    in_blocks = span == block and (len(p) == 1 or p.stride(0) == block)
    return in_blocks and p.dtype in (torch.float32, torch.float64) and p.stride() == m.stride() == v.stride()


def adam(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    active: Tensor,
    rate: Tensor,
    eps_hat: Tensor,
    *,
    beta1: float,
    beta2: float,
) -> None:
    """p -= rate·m / (sqrt(v) + eps_hat), without bias correction. Shapes: rate [P], eps_hat [P]."""
    _run(_adam, (p, g, m, v), (active, rate, eps_hat), (1 - beta1, beta2, 1 - beta2))


def rmsprop(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, active: Tensor, step_size: Tensor, *, decay: float, epsilon: float
) -> None:
    """p -= step_size·g / sqrt(v - m² + epsilon). Shapes: step_size [P]."""
    _run(_rmsprop, (p, g, m, v), (active, step_size), (decay, 1 - decay, epsilon))


@njit(nogil=True, cache=True, error_model="numpy")
def _adam(
    first: int,
    last: int,
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    active: Array,
    rate: Array,
    eps_hat: Array,
    one_minus_beta1: Any,
    beta2: Any,
    one_minus_beta2: Any,
    smallest_mean: Any,
    smallest_square: Any,
) -> None:
    """Agents `first` to `last - 1` of [P, N]."""
    zero = smallest_mean - smallest_mean  # float32 for float32
    for agent in range(first, last):
        if active[agent]:
            alpha, epsilon = rate[agent], eps_hat[agent]
            for i in range(p.shape[1]):
                gradient = g[agent, i]
                mean = m[agent, i] + one_minus_beta1 * (gradient - m[agent, i])
                mean = zero if abs(mean) < smallest_mean else mean
                square = beta2 * v[agent, i] + one_minus_beta2 * (gradient * gradient)
                square = zero if square < smallest_square else square
                m[agent, i], v[agent, i] = mean, square
                p[agent, i] -= alpha * mean / (np.sqrt(square) + epsilon)


@njit(nogil=True, cache=True, error_model="numpy")
def _rmsprop(
    first: int,
    last: int,
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    active: Array,
    step_size: Array,
    decay: Any,
    one_minus_decay: Any,
    epsilon: Any,
    smallest_mean: Any,
    smallest_square: Any,
) -> None:
    """Agents `first` to `last - 1` of [P, N]."""
    zero = epsilon - epsilon  # has the type of p
    for agent in range(first, last):
        if active[agent]:
            alpha = step_size[agent]
            for i in range(p.shape[1]):
                gradient = g[agent, i]
                mean = m[agent, i] + one_minus_decay * (gradient - m[agent, i])
                mean = zero if abs(mean) < smallest_mean else mean
                square = decay * v[agent, i] + one_minus_decay * (gradient * gradient)
                square = zero if square < smallest_square else square
                m[agent, i], v[agent, i] = mean, square
                variance = max(square - mean * mean, zero)  # rounding may end below 0
                p[agent, i] -= alpha * gradient / np.sqrt(variance + epsilon)


def smallest_moments(dtype: torch.dtype) -> tuple[float, float]:
    """The smallest means of gradients, and of their squares, that are not set to 0 on a CPU.

    The moments of a unit that is never active again shrink by the same factor at every update. They would end as
    subnormal numbers, below 1.2e-38 in float32, and stay there: 0.9 times the smallest number, rounded, is that number.
    A CPU takes up to a hundred times as long for each of them. A mean is also multiplied by the step size, so its limit
    is higher, 7.9e-31: with PyTorch's epsilon of 1e-8 it changes a weight by less than 1e-22 times the step size.
    """
    smallest = torch.finfo(dtype).smallest_normal
    return smallest * 2**26, smallest


def _run(
    kernel: Callable[..., None], tensors: Sequence[Tensor], per_agent: Sequence[Tensor], numbers: Sequence[float]
) -> None:
    """Run a kernel in as many threads as PyTorch uses, on an equal share of the agents each."""
    p = tensors[0]
    threads = max(1, min(torch.get_num_threads(), len(p), p.numel() // WEIGHTS_PER_THREAD))
    rows = [_as_rows(tensor, p) for tensor in tensors]
    numbers = (*numbers, *smallest_moments(p.dtype))
    arguments = (*rows, *(values.numpy() for values in per_agent), *map(rows[0].dtype.type, numbers))
    ranges = list(pairwise(len(p) * share // threads for share in range(threads + 1)))
    futures = [_thread_pool(os.getpid()).submit(kernel, *agents, *arguments) for agents in ranges[1:]]
    kernel(*ranges[0], *arguments)
    for future in futures:
        future.result()


def _as_rows(tensor: Tensor, like: Tensor) -> Array:
    """A tensor [P, ...] as [P, N], with the N in the order in which `like` has them in memory."""
    if tensor.stride() != like.stride():  # a gradient
        tensor = torch.empty_like(like).copy_(tensor)
    rows: Array = tensor.as_strided((len(like), like.shape[1:].numel()), (like.stride(0), 1)).numpy()
    return rows


@cache
def _thread_pool(process: int) -> ThreadPoolExecutor:
    """One pool per process: a forked child does not inherit its parent's threads."""
    return ThreadPoolExecutor(max(1, torch.get_num_threads() - 1), f"optimiser-{process}")
