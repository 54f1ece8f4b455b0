"""The features of quantile networks: those of the state times those of tau, features · relu(cosines · weightᵀ + bias).

P agents, B states, T quantiles of each, F features, I cosines (a power of two). The product is as large as the rest of
the network together: it is written once and, for the gradients, its own gradient is read once.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from valueshare.nn.kernels.splitting import split


class _Tiles(NamedTuple):
    """Sizes of what one program computes at a time, measured on an H200."""

    quantiles: int
    features: int
    warps: int
    stages: int


FORWARD = _Tiles(quantiles=32, features=64, warps=2, stages=2)
GRADIENT = _Tiles(quantiles=64, features=64, warps=4, stages=1)
STATES = 16  # of one program, forward
PROGRAMS = 1_056  # of the gradient: eight for each multiprocessor of an H200


@triton.jit
def _forward(
    cosines,  # [P, B, T, I]
    weight,  # [P, F, I]
    bias,  # [P, F]
    features,  # [P, B, F]
    output,  # [P, B, T, F]
    states,
    quantiles,
    F: tl.constexpr,
    COSINES: tl.constexpr,
    STATES: tl.constexpr,
    TILE_T: tl.constexpr,
    TILE_F: tl.constexpr,
):
    agent = tl.program_id(2).to(tl.int64)
    f = tl.program_id(0) * TILE_F + tl.arange(0, TILE_F)
    i = tl.arange(0, COSINES)
    w = tl.load(weight + (agent * F + f)[:, None] * COSINES + i[None, :], mask=(f < F)[:, None], other=0)
    w_t = tl.trans(w)
    biases = tl.load(bias + agent * F + f, mask=f < F, other=0)
    first = tl.program_id(1) * STATES
    for state in range(first, tl.minimum(first + STATES, states)):
        row = agent * states + state
        x = tl.load(features + row * F + f, mask=f < F, other=0)
        for start in range(0, quantiles, TILE_T):
            t = start + tl.arange(0, TILE_T)
            places = row * quantiles + t
            c = tl.load(cosines + places[:, None] * COSINES + i[None, :], mask=(t < quantiles)[:, None], other=0)
            embedding = tl.dot(c, w_t) + biases[None, :]
            embedding = tl.where(embedding < 0, 0.0, embedding)  # ReLU; NaN stays NaN
            inside = (t < quantiles)[:, None] & (f < F)[None, :]
            tl.store(output + places[:, None] * F + f[None, :], embedding * x[None, :], mask=inside)


@triton.jit
def _gradient(
    gradient,  # [P, B, T, F]
    cosines,
    weight,
    bias,
    features,
    weight_gradient,  # [P, parts, F, I]
    bias_gradient,  # [P, parts, F]
    features_gradient,  # [P, B, F]
    states,
    quantiles,
    part,  # states of one part
    F: tl.constexpr,
    COSINES: tl.constexpr,
    TILE_T: tl.constexpr,
    TILE_F: tl.constexpr,
):
    """Features are the rows: what is computed for the weights is then the left factor of the next product."""
    agent = tl.program_id(2).to(tl.int64)
    f = tl.program_id(0) * TILE_F + tl.arange(0, TILE_F)
    i = tl.arange(0, COSINES)
    w = tl.load(weight + (agent * F + f)[:, None] * COSINES + i[None, :], mask=(f < F)[:, None], other=0)
    biases = tl.load(bias + agent * F + f, mask=f < F, other=0)
    weight_sums = tl.zeros((TILE_F, COSINES), tl.float32)
    bias_sums = tl.zeros((TILE_F,), tl.float32)
    first = tl.program_id(1) * part
    for state in range(first, tl.minimum(first + part, states)):
        row = agent * states + state
        x = tl.load(features + row * F + f, mask=f < F, other=0)
        feature_sums = tl.zeros((TILE_F,), tl.float32)
        for start in range(0, quantiles, TILE_T):
            t = start + tl.arange(0, TILE_T)
            places = row * quantiles + t
            c = tl.load(cosines + places[:, None] * COSINES + i[None, :], mask=(t < quantiles)[:, None], other=0)
            inside = (t < quantiles)[None, :] & (f < F)[:, None]
            g = tl.load(gradient + places[None, :] * F + f[:, None], mask=inside, other=0)  # [TILE_F, TILE_T]
            embedding = tl.dot(w, tl.trans(c)) + biases[:, None]
            feature_sums += tl.sum(tl.where(embedding <= 0, 0.0, g * embedding), 1)
            g = tl.where(embedding <= 0, 0.0, g * x[:, None])
            bias_sums += tl.sum(g, 1)
            high, low = split(g)
            c_high, c_low = split(c)
            weight_sums = tl.dot(high, c_high, weight_sums)
            weight_sums = tl.dot(high, c_low, weight_sums)
            weight_sums = tl.dot(low, c_high, weight_sums)
        tl.store(features_gradient + row * F + f, feature_sums, mask=f < F)
    rows = (agent * tl.num_programs(1) + tl.program_id(1)) * F + f
    tl.store(weight_gradient + rows[:, None] * COSINES + i[None, :], weight_sums, mask=(f < F)[:, None])
    tl.store(bias_gradient + rows, bias_sums, mask=f < F)


def forward(cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """features · relu(cosines · weightᵀ + bias).

    Shapes: [P, B, T, I], [P, F, I], [P, F], [P, B, F] -> [P, B, T, F].
    """
    agents, states, quantiles, count = cosines.shape
    width = features.shape[-1]
    output = features.new_empty((agents, states, quantiles, width))
    tiles = FORWARD
    _forward[(triton.cdiv(width, tiles.features), triton.cdiv(states, STATES), agents)](
        cosines,
        weight,
        bias,
        features,
        output,
        states,
        quantiles,
        F=width,
        COSINES=count,
        STATES=STATES,
        TILE_T=tiles.quantiles,
        TILE_F=tiles.features,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return output


def gradient(
    gradient: Tensor, cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of weights and biases, in parts whose sums they are, and of the features.

    Shapes: [P, B, T, F] and those of `forward` -> [P, parts, F, I], [P, parts, F], [P, B, F].
    """
    agents, states, quantiles, count = cosines.shape
    width = features.shape[-1]
    tiles, parts = GRADIENT, gradient_parts(agents, states, width)
    weight_gradient = features.new_empty((agents, parts, width, count))
    bias_gradient = features.new_empty((agents, parts, width))
    features_gradient = torch.empty_like(features)
    _gradient[(triton.cdiv(width, tiles.features), parts, agents)](
        gradient,
        cosines,
        weight,
        bias,
        features,
        weight_gradient,
        bias_gradient,
        features_gradient,
        states,
        quantiles,
        triton.cdiv(states, parts),
        F=width,
        COSINES=count,
        TILE_T=tiles.quantiles,
        TILE_F=tiles.features,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return weight_gradient, bias_gradient, features_gradient


def gradient_parts(agents: int, states: int, width: int) -> int:
    """The parts of the gradients: enough programs for the GPU."""
    return max(1, min(states, int(PROGRAMS // (agents * triton.cdiv(width, GRADIENT.features)))))
