"""Convolutions as matrix products, which a population turns into one batched product.

Stacked over agents, `torch.nn.Conv2d` becomes a grouped convolution, the slow path of GPUs. Here the image is cut into
blocks of stride x stride pixels, so that a patch, what the kernel covers, is m x m blocks, m = kernel / stride, and
neighbouring patches are one block apart. The blocks of each patch are concatenated and multiplied by the weights. The
gradient is a sum of shifted slices: nothing is scattered with atomic additions, which are slow and add up in another
order every time.

On a GPU with TensorFloat-32, `operators.convolve` does the same without writing the patches.
"""

import torch
from torch import Tensor, nn

from valueshare.errors import InvalidInput
from valueshare.nn import operators
from valueshare.nn.stacking import product, stackable


@stackable
class Convolution(nn.Module):
    """A convolution without padding and a ReLU, on images with the channels last.

    Weights and biases are those of `torch.nn.Conv2d(channels, outputs, kernel, stride)`, in names, shapes and order,
    and may be stacked over agents. The image is multiplied by `scale`, and may be of bytes: it becomes floating point
    together with the patches. An image of bools is one of 0 and 1, without a scale.
    Shapes: [..., H, W, channels] -> [..., H', W', outputs]; with stacked weights [P, B, ...] -> [P, B, ...].
    """

    def __init__(self, channels: int, outputs: int, kernel: int, stride: int, scale: float = 1.0) -> None:
        super().__init__()
        if kernel % stride:
            raise InvalidInput(f"kernel = {kernel}, stride = {stride}: the kernel must be a multiple of the stride")
        self.kernel, self.stride, self.scale = kernel, stride, scale
        reference = nn.Conv2d(channels, outputs, kernel, stride)  # for PyTorch's initial weights
        self.weight, self.bias = reference.parameters()

    def forward(self, image: Tensor) -> Tensor:
        # The scale goes to the few weights instead of the many pixels; bytes then stay whole
        # numbers, which even the short mantissas of TensorFloat-32 hold exactly.
        scale = 1.0 if image.dtype == torch.bool else self.scale
        stacked = self.weight.ndim == 5
        if stacked and operators.available(self.weight):
            return operators.convolve(image, self.weight, self.bias, self.stride, scale)
        columns = patch_weights(self.weight, self.stride) * scale  # [..., K, outputs]
        rows = patches(image, self.kernel, self.stride).to(columns.dtype)
        if not stacked:
            return (torch.matmul(rows.flatten(0, -2), columns) + self.bias).reshape(*rows.shape[:-1], -1).relu()
        outputs = product(rows.flatten(1, -2), columns.mT, self.bias)
        return outputs.reshape(*rows.shape[:-1], -1).relu()

    def extra_repr(self) -> str:
        outputs, channels = self.weight.shape[-4:-2]
        return f"{channels}, {outputs}, kernel={self.kernel}, stride={self.stride}"


def patches(image: Tensor, kernel: int, stride: int) -> Tensor:
    """All patches of an image, K = kernel²·C numbers each.

    The K numbers are in the order (block row, block column, row in the block, column in the block,
    channel). Shapes: [..., H, W, C] -> [..., H', W', K], H' = (H - kernel) // stride + 1.
    """
    m = kernel // stride
    grid = blocks(image, stride)
    return torch.cat([_patch_block(grid, m, i, j) for i in range(m) for j in range(m)], -1)


def blocks(image: Tensor, stride: int) -> Tensor:
    """An image in blocks of stride x stride pixels; pixels beyond the last whole one are cut off.

    Shapes: [..., H, W, C] -> [..., h, w, s·s·C], h = H // stride = H' + m - 1.
    """
    *leading, height, width, channels = image.shape
    h, w = height // stride, width // stride
    used = image[..., : h * stride, : w * stride, :]
    grid = used.reshape(*leading, h, stride, w, stride, channels)
    return grid.transpose(-4, -3).flatten(-3)


def _patch_block(grid: Tensor, m: int, i: int, j: int) -> Tensor:
    """The block (i, j) of every patch. Shapes: [..., h, w, n] -> [..., H', W', n]."""
    h, w = grid.shape[-3:-1]
    return grid[..., i : i + h - m + 1, j : j + w - m + 1, :]


def patch_weights(weight: Tensor, stride: int) -> Tensor:
    """Weights as a matrix in the order of `patches`. Shapes: [..., outputs, C, k, k] -> [..., K, outputs]."""
    *agents, outputs, channels, kernel, _ = weight.shape
    m = kernel // stride
    split = weight.reshape(*agents, outputs, channels, m, stride, m, stride)
    rows = split.movedim((-4, -2, -3, -1, -5, -6), (-6, -5, -4, -3, -2, -1))
    return rows.reshape(*agents, -1, outputs)
