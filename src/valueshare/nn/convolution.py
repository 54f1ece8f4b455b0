"""Convolutions as matrix products, which a population turns into one batched product.

Stacked over agents, `torch.nn.Conv2d` becomes a grouped convolution, the slow path of GPUs. Here
the image is cut into patches and multiplied by the weights: one product an agent, and one batched
product for all of them. The patches are made of slices, whose derivative is a sum of shifted
slices: every pixel gathers what the patches say of it. Nothing is scattered with atomic additions,
which are slow and add up in another order every time.
"""

import torch
from torch import Tensor, nn

from valueshare.errors import InvalidInput


class Convolution(nn.Module):
    """A convolution without padding, on images with the channels last.

    Weights and biases are those of `torch.nn.Conv2d(channels, outputs, kernel, stride)`, in names,
    shapes and order. The image is multiplied by `scale`, and may be of bytes: it becomes floating
    point together with the patches. Shapes: [..., H, W, channels] -> [..., H', W', outputs].
    """

    def __init__(
        self, channels: int, outputs: int, kernel: int, stride: int, scale: float = 1.0
    ) -> None:
        super().__init__()
        if kernel % stride:
            raise InvalidInput(
                f"kernel = {kernel}, stride = {stride}: the kernel must be a multiple of the stride"
            )
        self.kernel, self.stride, self.scale = kernel, stride, scale
        like = nn.Conv2d(channels, outputs, kernel, stride)  # PyTorch's own first weights
        self.weight, self.bias = like.parameters()

    def forward(self, image: Tensor) -> Tensor:
        rows = patches(image, self.kernel, self.stride)  # [..., H', W', K]
        # The scale goes to the few weights instead of the many pixels; bytes then stay whole
        # numbers, which even the short mantissas of TensorFloat-32 hold exactly.
        columns = patch_weights(self.weight, self.stride) * self.scale  # [K, outputs]
        product = rows.flatten(0, -2).to(columns.dtype) @ columns
        return product.reshape(*rows.shape[:-1], -1) + self.bias

    def extra_repr(self) -> str:
        outputs, channels = self.weight.shape[-4:-2]
        return f"{channels}, {outputs}, kernel={self.kernel}, stride={self.stride}"


def patches(image: Tensor, kernel: int, stride: int) -> Tensor:
    """All patches of an image, K = kernel²·C numbers each.

    The image is cut into blocks of stride x stride pixels, so that neighbouring patches are one
    block apart, and a patch is m x m blocks, m = kernel / stride. The K numbers are in the order
    (block row, block column, row in the block, column in the block, channel).
    Shapes: [..., H, W, C] -> [..., H', W', K], H' = (H - kernel) // stride + 1.
    """
    *leading, height, width, channels = image.shape
    m = kernel // stride
    down, across = ((pixels - kernel) // stride + 1 for pixels in (height, width))
    h, w = down + m - 1, across + m - 1
    used = image[..., : h * stride, : w * stride, :]  # pixels beyond the last patch are cut off
    grid = used.reshape(*leading, h, stride, w, stride, channels)
    blocks = grid.transpose(-4, -3).flatten(-3)  # [..., h, w, s·s·C]
    corners = [(i, j) for i in range(m) for j in range(m)]  # of each of the m x m blocks
    return torch.cat([blocks[..., i : i + down, j : j + across, :] for i, j in corners], -1)


def patch_weights(weight: Tensor, stride: int) -> Tensor:
    """Weights as a matrix in the order of `patches`. Shapes: [outputs, C, k, k] -> [K, outputs]."""
    outputs, channels, kernel, _ = weight.shape
    m = kernel // stride
    split = weight.reshape(outputs, channels, m, stride, m, stride)
    return split.permute(2, 4, 3, 5, 1, 0).reshape(-1, outputs)
