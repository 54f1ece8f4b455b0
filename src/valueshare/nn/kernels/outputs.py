"""The output layer of a stream, with the bias and the ReLU of its hidden layer: relu(hidden + bias) · weightᵀ + bias.

P agents, R rows, H hidden units, A outputs. There are few outputs, so that the time is that of reading `hidden`:
the ReLU is computed again for the gradients instead of being written.
"""

import triton
import triton.language as tl
from torch import Tensor

from valueshare.nn.kernels.sizes import Tiles, padded
from valueshare.nn.kernels.splitting import split

# Columns are hidden units.
# Two warps: with four, Triton 3.6 overwrites rows that Hopper's asynchronous products may still have to read.
FORWARD = Tiles(rows=64, columns=64, warps=2, stages=3)
# Two stages: with one, Triton 3.6 computed wrong gradients of 18 x 512 weights on an H200.
GRADIENT = Tiles(rows=64, columns=64, warps=4, stages=2)
PROGRAMS = 528  # of the gradient: four for each multiprocessor of an H200


@triton.jit
def _forward(
    hidden,  # [P, R, H], before the bias
    hidden_bias,  # [P, H]
    weight,  # [P, A, H]
    bias,  # [P, A]
    output,  # [P, R, A]
    rows,
    H: tl.constexpr,
    OUTPUTS: tl.constexpr,
    A: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_H: tl.constexpr,
):
    agent = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * TILE_R
    r, a = tl.arange(0, TILE_R), tl.arange(0, A)
    in_r, in_a = r < rows - first, a < OUTPUTS
    at = agent * rows + first
    sums = tl.zeros((TILE_R, A), tl.float32)
    for start in range(0, H, TILE_H):
        h = start + tl.arange(0, TILE_H)
        in_h = h < H
        x = tl.load(hidden + at * H + r[:, None] * H + h[None, :], mask=in_r[:, None] & in_h[None, :], other=0)
        x += tl.load(hidden_bias + agent * H + h, mask=in_h, other=0)[None, :]
        x = tl.where(x < 0, 0.0, x)  # ReLU; NaN stays NaN
        weights = weight + agent * OUTPUTS * H + a[:, None] * H + h[None, :]
        w = tl.load(weights, mask=in_a[:, None] & in_h[None, :], other=0)
        sums = tl.dot(x, tl.trans(w), sums)
    sums += tl.load(bias + agent * OUTPUTS + a, mask=in_a, other=0)[None, :]
    places = output + at * OUTPUTS + r[:, None] * OUTPUTS + a[None, :]
    tl.store(places, sums, mask=in_r[:, None] & in_a[None, :])


@triton.jit
def _gradient(
    gradient,  # [P, R, A]
    hidden,
    hidden_bias,
    weight,
    of_hidden,  # [P, R, H]
    of_hidden_t,  # [P, H, R]
    of_bias,  # [P, parts, H]
    of_weight,  # [P, parts, A, H]
    rows,
    part,  # rows of one part
    H: tl.constexpr,
    OUTPUTS: tl.constexpr,
    A: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_H: tl.constexpr,
):
    """Hidden units are the rows: what is computed of them is then the left factor of the weights' gradient."""
    agent = tl.program_id(2).to(tl.int64)
    r, a = tl.arange(0, TILE_R), tl.arange(0, A)
    h = tl.program_id(0) * TILE_H + tl.arange(0, TILE_H)
    in_h, in_a = h < H, a < OUTPUTS
    biases = tl.load(hidden_bias + agent * H + h, mask=in_h, other=0)
    weights = weight + agent * OUTPUTS * H + a[None, :] * H + h[:, None]
    w = tl.load(weights, mask=in_a[None, :] & in_h[:, None], other=0)  # [TILE_H, A]
    bias_sums = tl.zeros((TILE_H,), tl.float32)
    weight_sums = tl.zeros((TILE_H, A), tl.float32)
    begin = tl.program_id(1) * part
    for first in range(begin, tl.minimum(begin + part, rows), TILE_R):
        in_r = r < rows - first
        at = agent * rows + first
        inside = in_r[None, :] & in_h[:, None]
        x = tl.load(hidden + at * H + r[None, :] * H + h[:, None], mask=inside, other=0)  # [TILE_H, TILE_R]
        x += biases[:, None]
        gradients = gradient + at * OUTPUTS + r[:, None] * OUTPUTS + a[None, :]
        g = tl.load(gradients, mask=in_r[:, None] & in_a[None, :], other=0)  # [TILE_R, A]
        d = tl.where(x <= 0, 0.0, tl.dot(w, tl.trans(g)))
        bias_sums += tl.sum(d, 1)
        tl.store(of_hidden_t + agent * H * rows + h[:, None] * rows + first + r[None, :], d, mask=inside)
        tl.store(of_hidden + at * H + r[:, None] * H + h[None, :], tl.trans(d), mask=in_r[:, None] & in_h[None, :])
        high, low = split(tl.where(x < 0, 0.0, x))
        g_high, g_low = split(g)
        weight_sums = tl.dot(high, g_high, weight_sums)
        weight_sums = tl.dot(high, g_low, weight_sums)
        weight_sums = tl.dot(low, g_high, weight_sums)
    at = agent * tl.num_programs(1) + tl.program_id(1)
    tl.store(of_bias + at * H + h, bias_sums, mask=in_h)
    places = of_weight + at * OUTPUTS * H + a[None, :] * H + h[:, None]
    tl.store(places, weight_sums, mask=in_a[None, :] & in_h[:, None])


def forward(hidden: Tensor, hidden_bias: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(hidden + hidden_bias) · weightᵀ + bias. Shapes: [P, R, H], [P, H], [P, A, H], [P, A] -> [P, R, A]."""
    agents, rows, width = hidden.shape
    outputs = weight.shape[1]
    output = hidden.new_empty((agents, rows, outputs))
    tile = min(FORWARD.rows, padded(rows))
    _forward[(triton.cdiv(rows, tile), agents)](
        hidden,
        hidden_bias,
        weight,
        bias,
        output,
        rows,
        H=width,
        OUTPUTS=outputs,
        A=padded(outputs),
        TILE_R=tile,
        TILE_H=FORWARD.columns,
        num_warps=FORWARD.warps,
        num_stages=FORWARD.stages,
    )
    return output


def gradient(
    gradient: Tensor, hidden: Tensor, hidden_bias: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of `hidden`, also transposed, and of the hidden biases and the weights, in parts whose sums they are.

    Shapes: [P, R, A] and those of `forward` -> [P, R, H], [P, H, R], [P, parts, H], [P, parts, A, H].
    """
    agents, rows, width = hidden.shape
    outputs, parts = weight.shape[1], gradient_parts(*hidden.shape)
    of_hidden, of_hidden_t = hidden.new_empty(hidden.shape), hidden.new_empty((agents, width, rows))
    of_bias = hidden.new_empty((agents, parts, width))
    of_weight = hidden.new_empty((agents, parts, outputs, width))
    tile = min(GRADIENT.rows, padded(rows))
    _gradient[(triton.cdiv(width, GRADIENT.columns), parts, agents)](
        gradient,
        hidden,
        hidden_bias,
        weight,
        of_hidden,
        of_hidden_t,
        of_bias,
        of_weight,
        rows,
        triton.cdiv(triton.cdiv(rows, parts), tile) * tile,
        H=width,
        OUTPUTS=outputs,
        A=padded(outputs),
        TILE_R=tile,
        TILE_H=GRADIENT.columns,
        num_warps=GRADIENT.warps,
        num_stages=GRADIENT.stages,
    )
    return of_hidden, of_hidden_t, of_bias, of_weight


def gradient_parts(agents: int, rows: int, width: int) -> int:
    """The parts of the gradients: enough programs for the GPU."""
    programs = agents * triton.cdiv(width, GRADIENT.columns)
    return max(1, min(int(triton.cdiv(rows, GRADIENT.rows)), int(PROGRAMS // programs)))
