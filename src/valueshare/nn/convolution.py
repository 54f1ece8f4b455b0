"""Convolutions as matrix products, which a population turns into one batched product.

Stacked over agents, `torch.nn.Conv2d` becomes a grouped convolution, the slow path of GPUs. Here the image is cut into
blocks of stride x stride pixels, so that a patch, what the kernel covers, is m x m blocks, m = kernel / stride, and
neighbouring patches are one block apart. Then there are three ways, one batched product for all agents in each:

- *Patches*: the blocks of each patch are concatenated and multiplied by the weights. The gradient
  is a sum of shifted slices.
- *Shifts*, on a GPU with m = 2: every block is multiplied by the weights of its four positions in a
  patch, and the shifted products are added. Nothing is concatenated, which saves more than the
  unused products at the edges cost. (With m = 3 these are too many, and on a CPU it is slower. For
  one image both take as long, and patches take fewer kernels.)
- *Kernels* (`operators.convolve`), on a GPU with TensorFloat-32: patches are read where they lie, and never written.

In none is anything scattered with atomic additions, which are slow and add up in another order every time.
"""

import torch
from torch import Tensor, nn

from valueshare.errors import InvalidInput
from valueshare.nn import operators
from valueshare.nn.stacking import stackable


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
        biases = self.bias.reshape(-1, 1, 1, 1, self.bias.shape[-1]) if stacked else self.bias
        single_image = image.shape[stacked:-3].numel() == 1
        if image.is_cuda and self.kernel // self.stride == 2 and not single_image:
            return (convolve_by_shifts(image, columns, self.stride) + biases).relu()
        return (_product(patches(image, self.kernel, self.stride), columns) + biases).relu()

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


def convolve_by_shifts(image: Tensor, columns: Tensor, stride: int) -> Tensor:
    """`patches @ columns` for m = 2, without the patches.

    Shapes: [..., H, W, C], [..., K, outputs] -> [..., H', W', outputs].
    """
    outputs = columns.shape[-1]
    shifted_columns = (
        columns.reshape(*columns.shape[:-2], 4, -1, outputs).transpose(-3, -2).flatten(-2)
    )  # [..., s·s·C, 4·outputs]
    grid = blocks(image, stride)
    products = _product(grid, shifted_columns).reshape(*grid.shape[:-1], 2, 2, outputs)
    a, b, c, d = (_patch_block(products[..., i, j, :], 2, i, j) for i in (0, 1) for j in (0, 1))
    return a + b + c + d


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


def _product(rows: Tensor, columns: Tensor) -> Tensor:
    """Shapes: [..., K], [K, outputs] -> [..., outputs]; or [P, ..., K], [P, K, outputs] -> [P, ..., outputs]."""
    products = rows.flatten(columns.ndim - 2, -2).to(columns.dtype) @ columns
    return products.reshape(*rows.shape[:-1], -1)


def patch_weights(weight: Tensor, stride: int) -> Tensor:
    """Weights as a matrix in the order of `patches`. Shapes: [..., outputs, C, k, k] -> [..., K, outputs]."""
    *agents, outputs, channels, kernel, _ = weight.shape
    m = kernel // stride
    split = weight.reshape(*agents, outputs, channels, m, stride, m, stride)
    rows = split.movedim((-4, -2, -3, -1, -5, -6), (-6, -5, -4, -3, -2, -1))
    return rows.reshape(*agents, -1, outputs)
