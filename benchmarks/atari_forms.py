"""Other forms of the same products, for `gpu_atari.py` to time: the same results to rounding."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from valueshare.nn import heads
from valueshare.nn.convolution import Convolution, blocks, patch_weights, patches


@contextmanager
def in_form(form: str) -> Iterator[None]:
    """Everything within computes in that form; then it is as before."""
    replaced: dict[Any, Any] = {}
    if form in FORMS:
        replaced[Convolution] = FORMS[form]
    elif form == "bfloat16":
        replaced |= {heads.Stream: half_stream, heads.QuantileEmbedding: half_embedding}
    elif form == "summed":
        replaced[heads.Stream] = summed_stream
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
    """Patches made first across, then down: two joins of m slices instead of one of m²."""
    m, grid = layer.kernel // layer.stride, blocks(image, layer.stride)
    down, across = (size - m + 1 for size in grid.shape[-3:-1])
    wide = torch.cat([grid[..., j : j + across, :] for j in range(m)], -1)
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
    """The images of a batch in a few groups: more and shorter products, for more of the GPU."""
    rows = patches(image, layer.kernel, layer.stride)
    columns = patch_weights(layer.weight, layer.stride) * layer.scale
    if len(rows) % SPLITS:
        return product_of(layer, rows)
    few = rows.reshape(SPLITS, -1, rows.shape[-1]).to(columns.dtype)
    product = torch.bmm(few, columns.expand(SPLITS, *columns.shape))
    return product.reshape(*rows.shape[:-1], -1) + layer.bias


def joined(layer: Convolution, image: Tensor) -> Tensor:
    """Patches of every layer, of those with 2x2 blocks too."""
    return product_of(layer, patches(image, layer.kernel, layer.stride))


def shifted(layer: Convolution, image: Tensor) -> Tensor:
    """Shifts in every layer, in that with 3x3 blocks too, where edges cost 65 % more."""
    m, grid = layer.kernel // layer.stride, blocks(image, layer.stride)
    down, across = (size - m + 1 for size in grid.shape[-3:-1])
    columns = patch_weights(layer.weight, layer.stride) * layer.scale
    outputs = columns.shape[-1]
    shifted_columns = columns.reshape(m * m, -1, outputs).transpose(0, 1).reshape(-1, m * m * outputs)
    products = (grid.flatten(0, -2).to(columns.dtype) @ shifted_columns).reshape(*grid.shape[:-1], m, m, outputs)
    total: Tensor = layer.bias
    for i in range(m):
        for j in range(m):
            total = total + products[..., i : i + down, j : j + across, i, j, :]
    return total


def product_of(layer: Convolution, rows: Tensor) -> Tensor:
    columns = patch_weights(layer.weight, layer.stride) * layer.scale
    product = rows.flatten(0, -2).to(columns.dtype) @ columns
    return product.reshape(*rows.shape[:-1], -1) + layer.bias


FORMS: dict[str, Callable[[Convolution, Tensor], Tensor]] = {
    "grouped": grouped,
    "nested": nested,
    "unfolded": unfolded,
    "split": split,
    "joined": joined,
    "shifted": shifted,
}


def half_linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer with its operands rounded to bfloat16, its sums in float32."""
    narrow = functional.linear(inputs.bfloat16(), weight.bfloat16())
    return narrow.to(weight.dtype) + bias


def half_stream(stream: heads.Stream, features: Tensor) -> Tensor:
    hidden = torch.relu(half_linear(features, stream.hidden.weight, stream.hidden.bias))
    outputs: Tensor = stream.output(hidden)
    return outputs


def summed_stream(stream: heads.Stream, features: Tensor) -> Tensor:
    """The hidden layer as a sum of products, which reads its weights once and uses no matrix unit.

    For acting, where every agent has one observation.
    """
    products = features.unsqueeze(-2) * stream.hidden.weight  # [..., hidden, features]
    outputs: Tensor = stream.output(torch.relu(products.sum(-1) + stream.hidden.bias))
    return outputs


def half_embedding(embedding: heads.QuantileEmbedding, tau: Tensor) -> Tensor:
    cosines = torch.cos(tau.unsqueeze(-1) * embedding.frequencies)
    linear = embedding.linear
    return torch.relu(half_linear(cosines, linear.weight, linear.bias))
