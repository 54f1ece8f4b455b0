"""Networks with two hidden layers of ReLUs: relu(relu(x · weight1ᵀ + bias1) · weight2ᵀ + bias2) · weight3ᵀ + bias3.

P agents, R rows, I inputs, F features (units of the first hidden layer), H hidden units (of the second), A outputs.
There are few inputs and outputs, so that the products with them are computed where the other products read or write
their factors: a forward pass reads the weights and little else, and a backward pass reads every unit once or twice.
"""

import triton
import triton.language as tl
from torch import Tensor

from valueshare.nn.kernels.sizes import ProductTiles, Tiles, padded

# Two warps: see `outputs.FORWARD`.
FORWARD = ProductTiles(rows=64, columns=128, inner=32, warps=2, stages=3)  # rows, hidden units, features
KEEPING_UNITS = ProductTiles(rows=64, columns=64, inner=32, warps=2, stages=3)  # the same, for the gradients
OF_FEATURES = ProductTiles(rows=64, columns=64, inner=32, warps=2, stages=4)  # rows, features, hidden units
OF_HIDDEN = Tiles(rows=32, columns=64, warps=2, stages=2)


@triton.jit
def _tile(first, row, column, row_size, column_size, width):
    """A tile of a matrix with rows of `width` numbers: their places, and whether they are within the sizes."""
    return first + row[:, None] * width + column[None, :], (row[:, None] < row_size) & (column[None, :] < column_size)


@triton.jit
def _load(first, row, column, row_size, column_size, width):
    places, inside = _tile(first, row, column, row_size, column_size, width)
    return tl.load(places, mask=inside, other=0)


@triton.jit
def _store(first, row, column, row_size, column_size, width, values):
    places, inside = _tile(first, row, column, row_size, column_size, width)
    tl.store(places, values, mask=inside)


@triton.jit
def _relu(x):
    return tl.where(x < 0, 0.0, x)  # NaN stays NaN


@triton.jit
def _forward(
    x,  # [P, R, I]
    weight1,  # [P, F, I]
    bias1,  # [P, F]
    weight2,  # [P, H, F]
    bias2,  # [P, H]
    weight3,  # [P, A, H]
    bias3,  # [P, A]
    output,  # [P, R, A]
    features,  # [P, R, F]
    hidden,  # [P, R, H]
    rows,
    INPUTS: tl.constexpr,
    F: tl.constexpr,
    H: tl.constexpr,
    OUTPUTS: tl.constexpr,
    KEEPS_UNITS: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    A: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_H: tl.constexpr,
    TILE_F: tl.constexpr,
):
    agent = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * TILE_R
    r, i, a = tl.arange(0, TILE_R), tl.arange(0, I), tl.arange(0, A)
    left, at = rows - first, agent * rows + first
    inputs = _load(x + at * INPUTS, r, i, left, INPUTS, INPUTS)
    outputs = tl.zeros((TILE_R, A), tl.float32)
    for first_h in range(0, H, TILE_H):
        h = first_h + tl.arange(0, TILE_H)
        sums = tl.zeros((TILE_R, TILE_H), tl.float32)
        for first_f in range(0, F, TILE_F):
            f = first_f + tl.arange(0, TILE_F)
            w1 = _load(weight1 + agent * F * INPUTS, f, i, F, INPUTS, INPUTS)
            b1 = tl.load(bias1 + agent * F + f, mask=f < F, other=0)
            units = _relu(tl.dot(inputs, tl.trans(w1)) + b1[None, :])
            if KEEPS_UNITS and first_h == 0:
                _store(features + at * F, r, f, left, F, F, units)
            w2 = _load(weight2 + agent * H * F, h, f, H, F, F)
            sums = tl.dot(units, tl.trans(w2), sums)
        units = _relu(sums + tl.load(bias2 + agent * H + h, mask=h < H, other=0)[None, :])
        if KEEPS_UNITS:
            _store(hidden + at * H, r, h, left, H, H, units)
        w3 = _load(weight3 + agent * OUTPUTS * H, a, h, OUTPUTS, H, H)
        outputs = tl.dot(units, tl.trans(w3), outputs)
    outputs += tl.load(bias3 + agent * OUTPUTS + a, mask=a < OUTPUTS, other=0)[None, :]
    _store(output + at * OUTPUTS, r, a, left, OUTPUTS, OUTPUTS, outputs)


@triton.jit
def _gradient_of_hidden(
    gradient,  # [P, R, A]
    hidden,  # [P, R, H]
    weight3,  # [P, A, H]
    of_hidden,  # [P, R, H]
    of_bias2,  # [P, H]
    of_weight3,  # [P, A, H]
    rows,
    H: tl.constexpr,
    OUTPUTS: tl.constexpr,
    A: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_H: tl.constexpr,
):
    """The gradients of the hidden units before their ReLU, of bias2 and of weight3, for a tile of hidden units."""
    agent = tl.program_id(1).to(tl.int64)
    a, h = tl.arange(0, A), tl.program_id(0) * TILE_H + tl.arange(0, TILE_H)
    w3 = _load(weight3 + agent * OUTPUTS * H, a, h, OUTPUTS, H, H)
    bias_sums = tl.zeros((TILE_H,), tl.float32)
    weight_sums = tl.zeros((A, TILE_H), tl.float32)
    for first in range(0, rows, TILE_R):
        r, left, at = tl.arange(0, TILE_R), rows - first, agent * rows + first
        g = _load(gradient + at * OUTPUTS, r, a, left, OUTPUTS, OUTPUTS)
        units = _load(hidden + at * H, r, h, left, H, H)
        of_units = tl.where(units <= 0, 0.0, tl.dot(g, w3))
        _store(of_hidden + at * H, r, h, left, H, H, of_units)
        bias_sums += tl.sum(of_units, 0)
        weight_sums = tl.dot(tl.trans(g), units, weight_sums)
    tl.store(of_bias2 + agent * H + h, bias_sums, mask=h < H)
    _store(of_weight3 + agent * OUTPUTS * H, a, h, OUTPUTS, H, H, weight_sums)


@triton.jit
def _gradient_of_features(
    of_hidden,  # [P, R, H]
    weight2,  # [P, H, F]
    features,  # [P, R, F]
    x,  # [P, R, I]
    of_weight1,  # [P, F, I]
    of_bias1,  # [P, F]
    rows,
    INPUTS: tl.constexpr,
    F: tl.constexpr,
    H: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    TILE_R: tl.constexpr,
    TILE_F: tl.constexpr,
    TILE_H: tl.constexpr,
):
    """The gradients of weight1 and bias1, for a tile of features; that of the features is not written."""
    agent = tl.program_id(1).to(tl.int64)
    r, i = tl.arange(0, TILE_R), tl.arange(0, I)
    f = tl.program_id(0) * TILE_F + tl.arange(0, TILE_F)
    weight_sums = tl.zeros((TILE_F, I), tl.float32)
    bias_sums = tl.zeros((TILE_F,), tl.float32)
    for first in range(0, rows, TILE_R):
        left, at = rows - first, agent * rows + first
        sums = tl.zeros((TILE_R, TILE_F), tl.float32)
        for first_h in range(0, H, TILE_H):
            h = first_h + tl.arange(0, TILE_H)
            of_units = _load(of_hidden + at * H, r, h, left, H, H)
            w2 = _load(weight2 + agent * H * F, h, f, H, F, F)
            sums = tl.dot(of_units, w2, sums)
        of_units = tl.where(_load(features + at * F, r, f, left, F, F) <= 0, 0.0, sums)
        bias_sums += tl.sum(of_units, 0)
        weight_sums = tl.dot(tl.trans(of_units), _load(x + at * INPUTS, r, i, left, INPUTS, INPUTS), weight_sums)
    tl.store(of_bias1 + agent * F + f, bias_sums, mask=f < F)
    _store(of_weight1 + agent * F * INPUTS, f, i, F, INPUTS, INPUTS, weight_sums)


def forward(
    x: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
    keeps_units: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, and features and hidden units after their ReLUs, or nothing of these.

    Shapes: [P, R, I], [P, F, I], [P, F], [P, H, F], [P, H], [P, A, H], [P, A] -> [P, R, A], [P, R, F], [P, R, H].
    """
    (agents, rows, inputs), (_, outputs, width), count = x.shape, weight3.shape, weight1.shape[1]
    output = x.new_empty((agents, rows, outputs))
    features, hidden = (x.new_empty((agents, rows if keeps_units else 0, units)) for units in (count, width))
    tiles = KEEPING_UNITS if keeps_units else FORWARD
    tile = min(tiles.rows, padded(rows))
    _forward[(triton.cdiv(rows, tile), agents)](
        x,
        weight1,
        bias1,
        weight2,
        bias2,
        weight3,
        bias3,
        output,
        features,
        hidden,
        rows,
        INPUTS=inputs,
        F=count,
        H=width,
        OUTPUTS=outputs,
        KEEPS_UNITS=keeps_units,
        I=padded(inputs),
        A=padded(outputs),
        TILE_R=tile,
        TILE_H=min(tiles.columns, padded(width)),
        TILE_F=min(tiles.inner, padded(count)),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return output, features, hidden


def gradient_of_hidden(gradient: Tensor, hidden: Tensor, weight3: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the hidden units before their ReLU, bias2 and weight3.

    Shapes: [P, R, A], [P, R, H], [P, A, H] -> [P, R, H], [P, H], [P, A, H].
    """
    (agents, rows, width), outputs = hidden.shape, weight3.shape[1]
    found = hidden.new_empty(hidden.shape), hidden.new_empty((agents, width)), hidden.new_empty(weight3.shape)
    tile = min(OF_HIDDEN.columns, padded(width))
    _gradient_of_hidden[(triton.cdiv(width, tile), agents)](
        gradient,
        hidden,
        weight3,
        *found,
        rows,
        H=width,
        OUTPUTS=outputs,
        A=padded(outputs),
        TILE_R=min(OF_HIDDEN.rows, padded(rows)),
        TILE_H=tile,
        num_warps=OF_HIDDEN.warps,
        num_stages=OF_HIDDEN.stages,
    )
    return found


def gradient_of_features(of_hidden: Tensor, weight2: Tensor, features: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of weight1 and bias1. Shapes: [P, R, H], [P, H, F], [P, R, F], [P, R, I] -> [P, F, I], [P, F]."""
    (agents, rows, count), inputs, width = features.shape, x.shape[2], of_hidden.shape[2]
    found = x.new_empty((agents, count, inputs)), x.new_empty((agents, count))
    tile = min(OF_FEATURES.columns, padded(count))
    _gradient_of_features[(triton.cdiv(count, tile), agents)](
        of_hidden,
        weight2,
        features,
        x,
        *found,
        rows,
        INPUTS=inputs,
        F=count,
        H=width,
        I=padded(inputs),
        TILE_R=min(OF_FEATURES.rows, padded(rows)),
        TILE_F=tile,
        TILE_H=min(OF_FEATURES.inner, padded(width)),
        num_warps=OF_FEATURES.warps,
        num_stages=OF_FEATURES.stages,
    )
    return found
