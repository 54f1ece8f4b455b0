"""The features of quantile networks: those of the state times those of tau, features · relu(cosines · weightᵀ + bias).

P agents, B states, T quantiles of each, F features, I cosines (a power of two). The product is as large as the rest of
the network together: it is written once and, for the gradients, its own gradient is read once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from valueshare.nn.kernels.sizes import Tiles
from valueshare.nn.kernels.splitting import split

# Rows are quantiles, columns are features.
FORWARD = Tiles(rows=32, columns=128, warps=4, stages=3)
GRADIENT = Tiles(rows=64, columns=64, warps=4, stages=3)
STATES = 8  # of one program, forward
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
    """Offsets within a tile have 32 bits: only where it begins is a number of 64 bits."""
    agent = tl.program_id(2).to(tl.int64)
    first_f = tl.program_id(0) * TILE_F
    t, f, i = tl.arange(0, TILE_T), tl.arange(0, TILE_F), tl.arange(0, COSINES)
    in_f = f < F - first_f
    at = agent * F + first_f
    w = tl.load(weight + at * COSINES + f[:, None] * COSINES + i[None, :], mask=in_f[:, None], other=0)
    w_t = tl.trans(w)
    biases = tl.load(bias + at + f, mask=in_f, other=0)
    blocks = tl.cdiv(quantiles, TILE_T)
    first = tl.program_id(1) * STATES
    for step in range(tl.minimum(STATES, states - first) * blocks):
        row = agent * states + first + step // blocks
        start = step % blocks * TILE_T
        in_t = t < quantiles - start
        at = row * quantiles + start
        x = tl.load(features + row * F + first_f + f, mask=in_f, other=0)
        c = tl.load(cosines + at * COSINES + t[:, None] * COSINES + i[None, :], mask=in_t[:, None], other=0)
        embedding = tl.dot(c, w_t) + biases[None, :]
        embedding = tl.where(embedding < 0, 0.0, embedding)  # ReLU; NaN stays NaN
        places = output + at * F + first_f + t[:, None] * F + f[None, :]
        tl.store(places, embedding * x[None, :], mask=in_t[:, None] & in_f[None, :])


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
    """Features are the rows: what is computed for the weights is then the left factor of the next product.

    States and the blocks of their quantiles are one loop, so that the next block is loaded while one is computed.
    """
    agent = tl.program_id(2).to(tl.int64)
    first_f = tl.program_id(0) * TILE_F
    t, f, i = tl.arange(0, TILE_T), tl.arange(0, TILE_F), tl.arange(0, COSINES)
    in_f = f < F - first_f
    at = agent * F + first_f
    w = tl.load(weight + at * COSINES + f[:, None] * COSINES + i[None, :], mask=in_f[:, None], other=0)
    biases = tl.load(bias + at + f, mask=in_f, other=0)
    weight_sums = tl.zeros((TILE_F, COSINES), tl.float32)
    bias_sums = tl.zeros((TILE_F,), tl.float32)
    feature_sums = tl.zeros((TILE_F,), tl.float32)  # of one state
    blocks = tl.cdiv(quantiles, TILE_T)
    first = tl.program_id(1) * part
    for step in range(tl.minimum(part, states - first) * blocks):
        row = agent * states + first + step // blocks
        block = step % blocks
        in_t = t < quantiles - block * TILE_T
        at = row * quantiles + block * TILE_T
        x = tl.load(features + row * F + first_f + f, mask=in_f, other=0)
        c = tl.load(cosines + at * COSINES + t[:, None] * COSINES + i[None, :], mask=in_t[:, None], other=0)
        places = gradient + at * F + first_f + t[None, :] * F + f[:, None]
        g = tl.load(places, mask=in_t[None, :] & in_f[:, None], other=0)  # [TILE_F, TILE_T]
        embedding = tl.dot(w, tl.trans(c)) + biases[:, None]
        sums = tl.sum(tl.where(embedding <= 0, 0.0, g * embedding), 1)
        feature_sums = tl.where(block == 0, sums, feature_sums + sums)
        tl.store(features_gradient + row * F + first_f + f, feature_sums, mask=in_f)
        g = tl.where(embedding <= 0, 0.0, g * x[:, None])
        bias_sums += tl.sum(g, 1)
        high, low = split(g)
        c_high, c_low = split(c)
        weight_sums = tl.dot(high, c_high, weight_sums)
        weight_sums = tl.dot(high, c_low, weight_sums)
        weight_sums = tl.dot(low, c_high, weight_sums)
    at = (agent * tl.num_programs(1) + tl.program_id(1)) * F + first_f
    tl.store(weight_gradient + at * COSINES + f[:, None] * COSINES + i[None, :], weight_sums, mask=in_f[:, None])
    tl.store(bias_gradient + at + f, bias_sums, mask=in_f)


def forward(cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """features · relu(cosines · weightᵀ + bias).

    Shapes: [P, B, T, I], [P, F, I], [P, F], [P, B, F] -> [P, B, T, F].
    """
    agents, states, quantiles, count = cosines.shape
    width = features.shape[-1]
    output = features.new_empty((agents, states, quantiles, width))
    tiles = FORWARD
    _forward[(triton.cdiv(width, tiles.columns), triton.cdiv(states, STATES), agents)](
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
        TILE_T=tiles.rows,
        TILE_F=tiles.columns,
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
    _gradient[(triton.cdiv(width, tiles.columns), parts, agents)](
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
        TILE_T=tiles.rows,
        TILE_F=tiles.columns,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return weight_gradient, bias_gradient, features_gradient


def gradient_parts(agents: int, states: int, width: int) -> int:
    """The parts of the gradients: enough programs for the GPU."""
    return max(1, min(states, int(PROGRAMS // (agents * triton.cdiv(width, GRADIENT.columns)))))
