"""Products of a whole population, with a forward and a backward pass made for GPUs.

`convolve`, `quantile_features`, `stream` and `mlp` run the kernels of `nn/kernels`, where these are `available`.
`affine` is a product of PyTorch's, with gradients of the weights in the layout of the weights. All take weights stacked
over agents.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from valueshare.nn import kernel_library  # noqa: F401 (defines the operators)

_LEFT_OUT: set[int | None] = set()  # GPUs on which the kernels failed a check
TF32_CAPABILITY = 8  # Ampere and later GPUs
MAX_STREAM_OUTPUTS = 64  # its kernels have all outputs of a row in one tile
ALIGNED = 4  # outputs: products with another number take several times as long on a GPU
# Limits of `mlp`. Measured are 2,040 agents with 8 inputs and 256 units in both layers.
MAX_MLP_INPUTS = 32  # whose product with the weights is cheap enough to be computed again
MAX_MLP_UNITS = 512
MIN_MLP_AGENTS = 128  # one program of its kernels reads all weights of an agent: fewer leave a GPU idle


class UncomputedFeatures(NamedTuple):
    """Features that the next kernel computes itself: relu(x · weightᵀ + bias)."""

    x: Tensor  # [P, ..., in]
    weight: Tensor  # [P, out, in]
    bias: Tensor  # [P, out]


def available(weight: Tensor) -> bool:
    """Whether the kernels compute products with these weights: on a GPU with TensorFloat-32, where it is allowed."""
    allowed = torch.get_float32_matmul_precision() != "highest"
    suitable = weight.is_cuda and weight.dtype == torch.float32 and weight.device.index not in _LEFT_OUT
    return suitable and allowed and has_tensorfloat_32(weight.device) and _has_triton()


def streams_available(hidden: Tensor, output: Tensor) -> bool:
    """Whether `stream` takes these weights: few outputs, and hidden units a multiple of `ALIGNED`."""
    return available(hidden) and hidden.shape[1] % ALIGNED == 0 and output.shape[1] <= MAX_STREAM_OUTPUTS


def mlps_worthwhile(observation: Tensor) -> bool:
    """Whether `mlp` may be used for these observations: on a GPU, and without a gradient of their own."""
    return observation.is_cuda and not (observation.requires_grad and torch.is_grad_enabled())


def mlps_available(first: Tensor, hidden: Tensor, output: Tensor) -> bool:
    """Whether `mlp` takes these weights: of many agents, with few inputs, units and outputs."""
    if first.ndim != 3 or first.shape[0] < MIN_MLP_AGENTS:
        return False
    if first.shape[2] > MAX_MLP_INPUTS or max(first.shape[1], hidden.shape[1]) > MAX_MLP_UNITS:
        return False
    return first.shape[1] % ALIGNED == 0 and streams_available(hidden, output)


def leave_out(weight: Tensor) -> None:
    """Use PyTorch's own products on the GPU of these weights from now on."""
    _LEFT_OUT.add(weight.device.index)


def has_tensorfloat_32(device: torch.device) -> bool:
    """Whether a GPU has it, and bfloat16, which the kernels need too."""
    return torch.cuda.get_device_capability(device)[0] >= TF32_CAPABILITY


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def convolve(image: Tensor, weight: Tensor, bias: Tensor, stride: int, scale: float) -> Tensor:
    """A convolution with the images times `scale`, and a ReLU.

    Shapes: [P, B, H, W, C], [P, N, C, kernel, kernel], [P, N] -> [P, B, H', W', N].
    """
    pixels = image.view(torch.uint8) if image.dtype == torch.bool else image
    output: Tensor = _Convolution.apply(pixels, weight, bias, stride, scale)  # type: ignore[no-untyped-call]
    return output


def quantile_features(cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """features · relu(cosines · weightᵀ + bias). Shapes: [P, B, T, I], [P, F, I], [P, F], [P, B, F] -> [P, B, T, F]."""
    output: Tensor = _QuantileFeatures.apply(cosines, weight, bias, features)  # type: ignore[no-untyped-call]
    return output


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x · weightᵀ + bias, of each agent. Shapes: [P, rows, in], [P, out, in], [P, out] -> [P, rows, out]."""
    output: Tensor = _Affine.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return output


def stream(x: Tensor, hidden: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> Tensor:
    """A linear layer, a ReLU and a linear layer, each a weight and a bias.

    Shapes: [P, rows, in], [P, H, in], [P, H], [P, out, H], [P, out] -> [P, rows, out].
    """
    found: Tensor = _Stream.apply(x, *hidden, *output)  # type: ignore[no-untyped-call]
    return found


def mlp(first: UncomputedFeatures, hidden: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> Tensor:
    """Two linear layers with a ReLU after each, and a linear layer; the inputs have no gradient.

    Shapes: x [P, rows, in], [P, H, F], [P, H], [P, out, H], [P, out] -> [P, rows, out].
    """
    layers = [tensor.contiguous() for tensor in (first.weight, first.bias, *hidden, *output)]
    x = first.x.contiguous()
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in layers):
        assert not x.requires_grad
        found: Tensor = _Mlp.apply(x, *layers)  # type: ignore[no-untyped-call]
        return found
    found, _, _ = _ops().mlp(x, *layers, False)
    return found


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, image: Tensor, weight: Tensor, bias: Tensor, stride: int, scale: float) -> Tensor:
        kernel, channels_first = weight.shape[-1], image.stride(-1) != 1
        ordered = weight if channels_first else weight.movedim(2, -1)
        matrix = ordered.flatten(2).contiguous()  # [P, N, K]
        output: Tensor = _ops().convolve(image, matrix, bias.contiguous(), kernel, stride, channels_first, scale)
        ctx.save_for_backward(image, weight, output)
        ctx.stride, ctx.scale = stride, scale
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        image, weight, output = ctx.saved_tensors
        (agents, outputs, channels, kernel, _), stride, scale = weight.shape, ctx.stride, ctx.scale
        masked = gradients[0].masked_fill(output <= 0, 0.0).contiguous()
        channels_first = image.stride(-1) != 1
        of_matrix, of_bias = (
            parts.sum(1) for parts in _ops().convolve_weight_gradient(masked, image, kernel, stride, channels_first)
        )
        of_matrix = of_matrix * scale
        if channels_first:
            of_weight = of_matrix.reshape(weight.shape)
        else:
            of_weight = of_matrix.reshape(agents, outputs, kernel, kernel, channels).movedim(-1, 2)
        of_image = None
        if ctx.needs_input_grad[0]:
            columns = weight.permute(0, 3, 4, 2, 1).reshape(agents, -1, outputs).contiguous() * scale  # [P, K, N]
            of_image = _ops().convolve_image_gradient(masked, columns, *image.shape[2:4], kernel, stride)
        return of_image, of_weight, of_bias, None, None


class _QuantileFeatures(Function):
    @staticmethod
    def forward(ctx: Any, cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
        inputs = tuple(tensor.contiguous() for tensor in (cosines, weight, bias, features))
        ctx.save_for_backward(*inputs)
        output: Tensor = _ops().quantile_features(*inputs)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        found = _ops().quantile_features_gradient(gradients[0].contiguous(), *ctx.saved_tensors)
        of_weight, of_bias, of_features = found
        return None, of_weight.sum(1), of_bias.sum(1), of_features


class _Affine(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        products = torch.bmm(x, _padded(weight, 1).mT)
        return products[..., : weight.shape[1]] + bias.unsqueeze(1)  # `baddbmm` would copy the bias to every row first

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = _padded(gradients[0], 2)
        of_x = torch.bmm(gradient, _padded(weight, 1)) if ctx.needs_input_grad[0] else None
        # With both factors in the order of the sum, it takes half as long as without the copy.
        of_weight = _ops().product_in_order(gradient.mT.contiguous(), x)[:, : weight.shape[1]]
        return of_x, of_weight, gradients[0].sum(1)


class _Stream(Function):
    """Hidden units are kept as they are before the bias and the ReLU."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, hidden_weight: Tensor, hidden_bias: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        hidden = torch.bmm(x, hidden_weight.mT)
        hidden_bias, weight = hidden_bias.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, hidden_weight, hidden_bias, weight, hidden)
        output: Tensor = _ops().output_layer(hidden, hidden_bias, weight, bias.contiguous())
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor]:
        x, hidden_weight, hidden_bias, weight, hidden = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        found = _ops().output_layer_gradient(gradient, hidden, hidden_bias, weight)
        of_hidden, transposed, of_hidden_bias, of_weight = found
        of_x = torch.bmm(of_hidden, hidden_weight) if ctx.needs_input_grad[0] else None
        of_hidden_weight = _ops().product_in_order(transposed, x)
        return of_x, of_hidden_weight, of_hidden_bias.sum(1), of_weight.sum(1), gradient.sum(1)


class _Mlp(Function):
    """The units of both hidden layers are kept as they are after the ReLU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *layers: Tensor) -> Tensor:
        output: Tensor
        output, features, hidden = _ops().mlp(x, *layers, True)
        _, _, weight2, _, weight3, _ = layers
        ctx.save_for_backward(x, features, weight2, hidden, weight3)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, features, weight2, hidden, weight3 = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_hidden, of_bias2, of_weight3 = _ops().mlp_gradient_of_hidden(gradient, hidden, weight3)
        of_weight1, of_bias1 = _ops().mlp_gradient_of_features(of_hidden, weight2, features, x)
        of_weight2 = torch.bmm(of_hidden.mT, features)
        return None, of_weight1, of_bias1, of_weight2, of_bias2, of_weight3, gradient.sum(1)


def _padded(tensor: Tensor, outputs: int) -> Tensor:
    """With a multiple of `ALIGNED` outputs, which are on that axis: `functional.pad` alone always copies."""
    padding = -tensor.shape[outputs] % ALIGNED
    return functional.pad(tensor, (0, 0) * (tensor.ndim - 1 - outputs) + (0, padding)) if padding else tensor


_replacement: Any = None


def _ops() -> Any:
    return torch.ops.valueshare if _replacement is None else _replacement


@contextmanager
def replaced_by(implementation: object) -> Iterator[None]:
    """Within, its methods are called in place of the operators of the same names."""
    global _replacement
    before, _replacement = _replacement, implementation
    try:
        yield
    finally:
        _replacement = before
