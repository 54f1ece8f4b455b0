"""Optimisers of a whole population, in place, with one step size per agent.

Parameters, gradients and moments are stacked tensors by name, each with the agents first, [P, ...]. Agents that are not
`active` keep their weights, moments and counts, whatever their gradients hold: a diverged agent stays as it was, and
its NaN stays its own. Nothing here reads a tensor on the host, so it can be compiled and captured in a CUDA graph.
Compiled, an update is one pass over memory; as operations of PyTorch it is a dozen, which is why each of them works in
place. Without compilation on a CPU, `fused` makes it one pass too.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.learning import fused
from valueshare.nn.stacking import per_agent

Tensors = Mapping[str, Tensor]


class Moments(NamedTuple):
    """Running means of the gradients and of their squares, and how many updates there were."""

    first: dict[str, Tensor]  # [P, ...] each
    second: dict[str, Tensor]  # [P, ...] each
    updates: Tensor  # [P] int64


def zero_moments(parameters: Tensors) -> Moments:
    """The moments before the first update."""
    first = next(iter(parameters.values()))
    return Moments(
        {name: _zeros_in_layout_of(p) for name, p in parameters.items()},
        {name: _zeros_in_layout_of(p) for name, p in parameters.items()},
        torch.zeros(first.shape[0], dtype=torch.int64, device=first.device),
    )


def _zeros_in_layout_of(tensor: Tensor) -> Tensor:
    """`torch.zeros_like`, which imports SymPy for tensors on the meta device."""
    zeros = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return zeros.zero_()


@torch.no_grad()
def adam_(
    parameters: Tensors,
    gradients: Tensors,
    moments: Moments,
    step_size: Tensor,
    active: Tensor,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> None:
    """Adam, bias-corrected, epsilon outside the root: p -= alpha·m̂ / (sqrt(v̂) + epsilon).

    m̂ = m / (1 - beta1^t), v̂ = v / (1 - beta2^t). Shapes: step_size [P], active [P] bool.
    """
    moments.updates.add_(active.to(torch.int64))
    t = moments.updates.clamp(min=1).to(step_size.dtype)  # 0 only where frozen from the start
    root = _one_minus_exp(t * _log(beta2)).sqrt()  # [P]
    # The same with numerator and denominator times the root of 1 - beta2^t, which takes fewer passes.
    rate = (step_size * root / _one_minus_exp(t * _log(beta1))).masked_fill(~active, 0.0)  # [P]
    eps_hat = (epsilon * root).masked_fill(~active, 1.0)  # [P]
    for name, p in parameters.items():
        g, m, v = gradients[name], moments.first[name], moments.second[name]
        if _use_fused(p, m, v):
            fused.adam(p, g, m, v, active, rate, eps_hat, beta1=beta1, beta2=beta2)
            continue
        _accumulate_(m, v, g, active, beta1, beta2)
        if torch.compiler.is_compiling() and p.device.type == "cpu":
            # As one expression that selects by agent: other forms become a second pass over memory.
            updated = p - m * per_agent(rate, p) / (v.sqrt() + per_agent(eps_hat, p))
            p.copy_(torch.where(per_agent(active, p), updated, p))
            continue
        p.addcdiv_(m * per_agent(rate, p), v.sqrt().add_(per_agent(eps_hat, p)), value=-1.0)


@torch.no_grad()
def rmsprop_(
    parameters: Tensors,
    gradients: Tensors,
    moments: Moments,
    step_size: Tensor,
    active: Tensor,
    *,
    decay: float = 0.95,
    epsilon: float = 0.01,
) -> None:
    """Centred RMSprop, epsilon inside the root: p -= alpha·g / sqrt(v - m² + epsilon).

    m and v are running means of g and g²; there is no momentum.
    Shapes: step_size [P], active [P] bool.
    """
    moments.updates.add_(active.to(torch.int64))
    for name, p in parameters.items():
        g, m, v = gradients[name], moments.first[name], moments.second[name]
        if _use_fused(p, m, v):
            fused.rmsprop(p, g, m, v, active, step_size, decay=decay, epsilon=epsilon)
            continue
        _accumulate_(m, v, g, active, decay, decay)
        variance = torch.addcmul(v, m, m, value=-1.0).clamp_(min=0.0)  # rounding may end below 0
        change = variance.add_(epsilon).rsqrt_().mul_(g).mul_(per_agent(step_size, p))
        p.sub_(change.masked_fill_(per_agent(~active, p), 0.0))


def _use_fused(p: Tensor, m: Tensor, v: Tensor) -> bool:
    """Whether `fused` updates them: not on a GPU, and not in code that PyTorch compiles."""
    return not torch.compiler.is_compiling() and p.device.type == "cpu" and fused.is_supported(p, m, v)


def _accumulate_(m: Tensor, v: Tensor, gradient: Tensor, active: Tensor, decay1: float, decay2: float) -> None:
    """m = decay1·m + (1 - decay1)·g and v = decay2·v + (1 - decay2)·g², where active.

    For the other agents the decay is 1 and g counts as 0: multiplying a NaN by 0 would keep it.
    """
    g = gradient.masked_fill(per_agent(~active, m), 0.0)
    ones = torch.ones_like(active, dtype=m.dtype)  # [P]
    m.lerp_(g, per_agent(ones.mul(1 - decay1).masked_fill(~active, 0.0), m))
    v.mul_(per_agent(ones.masked_fill(active, decay2), v)).addcmul_(g, g, value=1 - decay2)
    if m.device.type == "cpu" and m.dtype != torch.float16:  # of which all numbers are near its smallest ones
        for moment, smallest in zip((m, v), fused.smallest_moments(m.dtype), strict=True):
            moment.masked_fill_((moment.abs() < smallest) & per_agent(active, moment), 0.0)


def _one_minus_exp(x: Tensor) -> Tensor:
    """1 - e^x = (1 + e^x)·tanh(-x/2), with all digits for x near 0, where 1 - 0.999 loses five.

    Not -expm1(x), the same number: torch.compile would fuse that into the update of the weights and
    compute it again for every few of them. This form is computed once per agent.
    """
    return (1 + torch.exp(x)) * torch.tanh(-0.5 * x)


def _log(beta: float) -> float:
    """log beta, and -inf of 0: the correction is then 1."""
    return math.log(beta) if beta else -math.inf
