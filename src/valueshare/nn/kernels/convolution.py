"""Convolutions of a population: patches are read where they lie in the images, and are never written.

P agents, B states, images of H x W x C, H' x W' patches of K = kernel² · C numbers each, N outputs. The K numbers are
in the order (channel, row, column) for images whose channels come first in memory, else (row, column, channel).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from valueshare.nn.kernels.patches import Patches, patch_numbers, patch_starts
from valueshare.nn.kernels.sizes import Tiles, padded
from valueshare.nn.kernels.splitting import split

# Rows are patches, or pixels of an image's gradient; columns are numbers of each, or columns of a weight's gradient.
FORWARD = Tiles(rows=128, columns=32, warps=4, stages=3)
# Two warps: with four, Triton 3.6 overwrites pixels that Hopper's asynchronous products may still have to read.
FORWARD_OF_BYTES = Tiles(rows=64, columns=32, warps=2, stages=3)
FORWARD_OF_FEW_ROWS = Tiles(rows=16, columns=128, warps=4, stages=3)  # larger ones leave most of the GPU idle
WEIGHT_GRADIENT = Tiles(rows=32, columns=64, warps=4, stages=3)
WEIGHT_GRADIENT_OF_BYTES = Tiles(rows=64, columns=128, warps=4, stages=2)
IMAGE_GRADIENT = Tiles(rows=64, columns=32, warps=4, stages=2)
FEW_ROWS = 1_024  # of one agent: a batch of 32 frames has more, one frame has fewer
PROGRAMS = 528  # of a weight's gradient: four for each multiprocessor of an H200


@triton.jit
def _forward(
    image,
    weight,  # [P, N, K]
    bias,  # [P, N]
    output,  # [P, B, H', W', N]
    scale,
    count,  # B·H'·W'
    agent_stride,
    CHANNELS: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    STATE: tl.constexpr,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    CHANNEL: tl.constexpr,
    CHANNELS_FIRST: tl.constexpr,
    OUTPUTS: tl.constexpr,
    N: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    agent = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n = tl.arange(0, N)
    numbers: tl.constexpr = CHANNELS * KERNEL * KERNEL
    starts = patch_starts(rows, STRIDE, DOWN, ACROSS, STATE, ROW, COLUMN)
    patches = image + agent * agent_stride + starts[:, None]
    weights = weight + agent * OUTPUTS * numbers + n[:, None] * numbers
    sums = tl.zeros((TILE, N), tl.float32)
    for first in range(0, numbers, DEPTH):
        k = first + tl.arange(0, DEPTH)
        within = (k < numbers)[None, :]
        offsets = patch_numbers(k, CHANNELS, KERNEL, ROW, COLUMN, CHANNEL, CHANNELS_FIRST)
        x = tl.load(patches + offsets[None, :], mask=(rows < count)[:, None] & within, other=0).to(tl.float32)
        w = tl.load(weights + k[None, :], mask=(n < OUTPUTS)[:, None] & within, other=0)
        sums = tl.dot(x, tl.trans(w), sums)
    biases = tl.load(bias + agent * OUTPUTS + n, mask=n < OUTPUTS, other=0)
    values = sums * scale + biases[None, :]
    values = tl.where(values < 0, 0.0, values)  # ReLU; NaN stays NaN
    places = output + agent * count * OUTPUTS + rows[:, None] * OUTPUTS + n[None, :]
    tl.store(places, values, mask=(rows < count)[:, None] & (n < OUTPUTS)[None, :])


@triton.jit
def _weight_gradient(
    gradient,  # [P, B, H', W', N]
    image,
    of_weight,  # [P, parts, N, K]
    of_bias,  # [P, parts, N]
    count,
    part,  # rows of one part
    agent_stride,
    CHANNELS: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    STATE: tl.constexpr,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    CHANNEL: tl.constexpr,
    CHANNELS_FIRST: tl.constexpr,
    OUTPUTS: tl.constexpr,
    N: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    agent = tl.program_id(2).to(tl.int64)
    n = tl.arange(0, N)
    k = tl.program_id(0) * DEPTH + tl.arange(0, DEPTH)
    numbers: tl.constexpr = CHANNELS * KERNEL * KERNEL
    within = k < numbers
    offsets = patch_numbers(k, CHANNELS, KERNEL, ROW, COLUMN, CHANNEL, CHANNELS_FIRST)
    columns = image + agent * agent_stride + offsets[:, None]
    gradients = gradient + agent * count * OUTPUTS + n[None, :]
    sums = tl.zeros((DEPTH, N), tl.float32)
    bias_sums = tl.zeros((TILE, N), tl.float32)
    start = tl.program_id(1) * part
    for first in range(start, start + part, TILE):
        rows = first + tl.arange(0, TILE)
        inside = rows < count
        starts = patch_starts(rows, STRIDE, DOWN, ACROSS, STATE, ROW, COLUMN)
        x = tl.load(columns + starts[None, :], mask=inside[None, :] & within[:, None], other=0)  # [DEPTH, TILE]
        g = tl.load(gradients + rows[:, None] * OUTPUTS, mask=inside[:, None] & (n < OUTPUTS)[None, :], other=0)
        bias_sums += g
        high, low = split(g)
        if x.dtype == tl.uint8:  # whole numbers up to 255 are exact in bfloat16
            exact = x.to(tl.bfloat16)
            sums = tl.dot(exact, high, sums)
            sums = tl.dot(exact, low, sums)
        else:
            x_high, x_low = split(x)
            sums = tl.dot(x_high, high, sums)
            sums = tl.dot(x_high, low, sums)
            sums = tl.dot(x_low, high, sums)
    place = (agent * tl.num_programs(1) + tl.program_id(1)) * OUTPUTS
    places = of_weight + place * numbers + n[None, :] * numbers + k[:, None]
    tl.store(places, sums, mask=(n < OUTPUTS)[None, :] & within[:, None])
    # The programs of all columns have the same sums.
    tl.store(of_bias + place + n, tl.sum(bias_sums, 0), mask=(n < OUTPUTS) & (tl.program_id(0) == 0))


@triton.jit
def _image_gradient(
    gradient,  # [P, B, H', W', N]
    weight,  # [P, K, N], K in the order (row, column, channel)
    output,  # [P, B, H, W, C]
    states,
    OUTPUTS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    C: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Pixels of equal row and column modulo the stride are in the same places of their patches."""
    agent = tl.program_id(2).to(tl.int64)
    y_first, x_first = tl.program_id(1) // STRIDE, tl.program_id(1) % STRIDE
    high: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    wide: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    pixels = tl.program_id(0) * TILE + tl.arange(0, TILE)
    state, position = pixels // (high * wide), pixels % (high * wide)
    down, across = position // wide, position % wide
    y, x = down * STRIDE + y_first, across * STRIDE + x_first
    c = tl.arange(0, C)
    gradients = gradient + agent * states * (DOWN * ACROSS * OUTPUTS)
    weights = weight + agent * (KERNEL * KERNEL * CHANNELS * OUTPUTS)
    sums = tl.zeros((TILE, C), tl.float32)
    blocks: tl.constexpr = (OUTPUTS + DEPTH - 1) // DEPTH
    m: tl.constexpr = (KERNEL + STRIDE - 1) // STRIDE
    for step in range(m * m * blocks):
        place, block = step // blocks, step % blocks
        i, j = place // m, place % m
        n = block * DEPTH + tl.arange(0, DEPTH)
        from_y, from_x = down - i, across - j  # the patch
        row, column = y_first + STRIDE * i, x_first + STRIDE * j  # the pixel's place in it
        covered = (state < states) & (from_y >= 0) & (from_y < DOWN) & (from_x >= 0) & (from_x < ACROSS)
        covered = covered & (row < KERNEL) & (column < KERNEL)
        patch = (state * DOWN + from_y) * ACROSS + from_x
        within = (n < OUTPUTS)[None, :]
        g = tl.load(gradients + patch[:, None] * OUTPUTS + n[None, :], mask=covered[:, None] & within, other=0)
        k = (row * KERNEL + column) * CHANNELS + c
        kept = ((c < CHANNELS) & (row < KERNEL) & (column < KERNEL))[:, None] & within
        w = tl.load(weights + k[:, None] * OUTPUTS + n[None, :], mask=kept, other=0)
        sums = tl.dot(g, tl.trans(w), sums)
    pixel = (state * HEIGHT + y) * WIDTH + x
    places = output + agent * states * (HEIGHT * WIDTH * CHANNELS) + pixel[:, None] * CHANNELS + c[None, :]
    exists = (state < states) & (y < HEIGHT) & (x < WIDTH)
    tl.store(places, sums, mask=exists[:, None] & (c < CHANNELS)[None, :])


def forward(
    image: Tensor, weight: Tensor, bias: Tensor, kernel: int, stride: int, channels_first: bool, scale: float
) -> Tensor:
    """relu(scale · patches · weightᵀ + bias).

    Images are of bytes or floats, in any layout. Shapes: [P, B, H, W, C], [P, N, K], [P, N] -> [P, B, H', W', N].
    """
    patches = Patches(image, kernel, stride)
    agents, outputs = bias.shape
    output = bias.new_empty((agents, image.shape[1], patches.down, patches.across, outputs))
    count = image.shape[1] * patches.down * patches.across
    tiles = _forward_tiles(count, image.dtype)
    _forward[(triton.cdiv(count, tiles.rows), agents)](
        image,
        weight,
        bias,
        output,
        scale,
        count,
        image.stride(0),
        **patches.constants(channels_first),
        OUTPUTS=outputs,
        N=padded(outputs),
        TILE=tiles.rows,
        DEPTH=tiles.columns,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return output


def _forward_tiles(count: int, dtype: torch.dtype) -> Tiles:
    if count <= FEW_ROWS:
        return FORWARD_OF_FEW_ROWS
    return FORWARD_OF_BYTES if dtype == torch.uint8 else FORWARD


def weight_gradient(
    gradient: Tensor, image: Tensor, kernel: int, stride: int, channels_first: bool
) -> tuple[Tensor, Tensor]:
    """gradientᵀ · patches, and the sum of the gradients of all rows, in parts whose sums they are.

    Shapes: [P, B, H', W', N], [P, B, H, W, C] -> [P, parts, N, K], [P, parts, N].
    """
    patches = Patches(image, kernel, stride)
    agents, states, _, _, outputs = gradient.shape
    count, numbers = states * patches.down * patches.across, patches.numbers
    tiles, parts = _weight_tiles(image.dtype), gradient_parts(agents, count, numbers, image.dtype)
    of_weight = gradient.new_empty((agents, parts, outputs, numbers))
    of_bias = gradient.new_empty((agents, parts, outputs))
    _weight_gradient[(triton.cdiv(numbers, tiles.columns), parts, agents)](
        gradient,
        image,
        of_weight,
        of_bias,
        count,
        triton.cdiv(triton.cdiv(count, parts), tiles.rows) * tiles.rows,
        image.stride(0),
        **patches.constants(channels_first),
        OUTPUTS=outputs,
        N=padded(outputs),
        TILE=tiles.rows,
        DEPTH=tiles.columns,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return of_weight, of_bias


def gradient_parts(agents: int, count: int, numbers: int, dtype: torch.dtype) -> int:
    """The parts of a weight's gradient, for images of that type: enough programs for the GPU, enough rows in each."""
    tiles = _weight_tiles(dtype)
    programs = agents * triton.cdiv(numbers, tiles.columns)
    return max(1, min(int(PROGRAMS // programs), count // (4 * tiles.rows)))


def _weight_tiles(dtype: torch.dtype) -> Tiles:
    return WEIGHT_GRADIENT_OF_BYTES if dtype == torch.uint8 else WEIGHT_GRADIENT


def image_gradient(gradient: Tensor, weight: Tensor, height: int, width: int, kernel: int, stride: int) -> Tensor:
    """The gradient of the images, for weights in the order (row, column, channel).

    Shapes: [P, B, H', W', N], [P, K, N] -> [P, B, H, W, C].
    """
    agents, states, down, across, outputs = gradient.shape
    channels = weight.shape[1] // kernel**2
    output = gradient.new_empty((agents, states, height, width, channels))
    tiles = IMAGE_GRADIENT
    pixels = states * triton.cdiv(height, stride) * triton.cdiv(width, stride)
    _image_gradient[(triton.cdiv(pixels, tiles.rows), stride**2, agents)](
        gradient,
        weight,
        output,
        states,
        OUTPUTS=outputs,
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        KERNEL=kernel,
        STRIDE=stride,
        DOWN=down,
        ACROSS=across,
        C=padded(channels),
        TILE=tiles.rows,
        DEPTH=min(tiles.columns, padded(outputs)),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return output
