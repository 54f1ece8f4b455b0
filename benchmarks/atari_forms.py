"""Other forms of the same products, for `gpu_atari.py` to time: the same results to rounding."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from valueshare.nn import heads, quantile
from valueshare.nn.convolution import Convolution, patch_weights, patches


@contextmanager
def in_form(form: str) -> Iterator[None]:
    """Everything within computes in that form; then it is as before."""
    replaced: dict[Any, Any] = {}
    if form in FORMS:
        replaced[Convolution] = FORMS[form]
    elif form == "bfloat16":
        replaced |= {heads.Stream: half_stream, quantile.QuantileEmbedding: half_embedding}
    before = {module: module.forward for module in replaced}
    for module, forward in replaced.items():
        module.forward = forward
    try:
        yield
    finally:
        for module, forward in before.items():
            module.forward = forward


SPLITS = 4


def grouped(layer: Convolution, image: Tensor) -> Tensor:
    """The usual layer, which a population turns into a grouped convolution."""
    pixels = image.movedim(-1, -3).to(layer.weight.dtype) * layer.scale
    return functional.conv2d(pixels, layer.weight, layer.bias, layer.stride).movedim(-3, -1)


def nested(layer: Convolution, image: Tensor) -> Tensor:
    """Patches made first across, then down: two joins of m pieces instead of one of m²."""
    blocks, m, down, across = blocks_of(layer, image)
    wide = torch.cat([blocks[..., j : j + across, :] for j in range(m)], -1)
    rows = torch.cat([wide[..., i : i + down, :, :] for i in range(m)], -1)
    return product_of(layer, rows)


def unfolded(layer: Convolution, image: Tensor) -> Tensor:
    """Patches as a view; the compiler scatters their gradient with atomic additions."""
    windows = image.unfold(-3, layer.kernel, layer.stride).unfold(-3, layer.kernel, layer.stride)
    columns = layer.weight.flatten(1).t() * layer.scale  # [C·k·k, outputs]
    rows = windows.flatten(-3)
    product = rows.flatten(0, -2).to(columns.dtype) @ columns
    return product.reshape(*rows.shape[:-1], -1) + layer.bias


def split(layer: Convolution, image: Tensor) -> Tensor:
    """The images of a minibatch in a few groups: more and shorter products, for more of the GPU."""
    rows = patches(image, layer.kernel, layer.stride)
    columns = patch_weights(layer.weight, layer.stride) * layer.scale
    if len(rows) % SPLITS:
        return product_of(layer, rows)
    few = rows.reshape(SPLITS, -1, rows.shape[-1]).to(columns.dtype)
    product = torch.bmm(few, columns.expand(SPLITS, *columns.shape))
    return product.reshape(*rows.shape[:-1], -1) + layer.bias


def shifted(layer: Convolution, image: Tensor) -> Tensor:
    """Every block times the weights of all its places in a patch; then a sum of shifted slices.

    No patches are made, and nothing is joined; blocks at the edges are multiplied in vain.
    """
    blocks, m, down, across = blocks_of(layer, image)
    columns = patch_weights(layer.weight, layer.stride) * layer.scale
    outputs = columns.shape[-1]
    places = columns.reshape(m * m, -1, outputs).transpose(0, 1).reshape(-1, m * m * outputs)
    products = (blocks.flatten(0, -2).to(columns.dtype) @ places).reshape(
        *blocks.shape[:-1], m, m, outputs
    )
    total: Tensor = layer.bias
    for i in range(m):
        for j in range(m):
            total = total + products[..., i : i + down, j : j + across, i, j, :]
    return total


def shifted_but_last(layer: Convolution, image: Tensor) -> Tensor:
    """Shifted where a patch is 2x2 blocks; patches where it is 3x3, and edges cost 65 % more."""
    return shifted(layer, image) if layer.kernel // layer.stride == 2 else usual(layer, image)


def blocks_of(layer: Convolution, image: Tensor) -> tuple[Tensor, int, int, int]:
    """The image in blocks [..., h, w, s·s·C], m, and how many patches there are each way."""
    *leading, height, width, channels = image.shape
    s, m = layer.stride, layer.kernel // layer.stride
    down, across = ((pixels - layer.kernel) // s + 1 for pixels in (height, width))
    h, w = down + m - 1, across + m - 1
    grid = image[..., : h * s, : w * s, :].reshape(*leading, h, s, w, s, channels)
    return grid.transpose(-4, -3).flatten(-3), m, down, across


def product_of(layer: Convolution, rows: Tensor) -> Tensor:
    columns = patch_weights(layer.weight, layer.stride) * layer.scale
    product = rows.flatten(0, -2).to(columns.dtype) @ columns
    return product.reshape(*rows.shape[:-1], -1) + layer.bias


usual = Convolution.forward
FORMS: dict[str, Callable[[Convolution, Tensor], Tensor]] = {
    "grouped": grouped,
    "nested": nested,
    "unfolded": unfolded,
    "split": split,
    "shifted": shifted,
    "shifted but last": shifted_but_last,
}


def half_linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer with its operands rounded to bfloat16, its sums in float32."""
    narrow = functional.linear(inputs.bfloat16(), weight.bfloat16())
    return narrow.to(weight.dtype) + bias


def half_stream(stream: heads.Stream, features: Tensor) -> Tensor:
    hidden = torch.relu(half_linear(features, stream.hidden.weight, stream.hidden.bias))
    outputs: Tensor = stream.output(hidden)
    return outputs


def half_embedding(embedding: quantile.QuantileEmbedding, tau: Tensor) -> Tensor:
    cosines = torch.cos(tau.unsqueeze(-1) * embedding.frequencies)
    linear = embedding.linear
    return torch.relu(half_linear(cosines, linear.weight, linear.bias))
