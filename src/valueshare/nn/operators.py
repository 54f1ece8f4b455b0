"""Products of a whole population, with a forward and a backward pass made for GPUs.

`convolve`, `quantile_features` and `stream` run the kernels of `nn/kernels` where these are `available`. `affine` is a
product of PyTorch's, with gradients of the weights in the layout of the weights. All take weights stacked over agents.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

_LEFT_OUT: set[int | None] = set()  # GPUs on which the kernels failed a check
TF32_CAPABILITY = 8  # Ampere and later GPUs
MAX_STREAM_OUTPUTS = 64  # its kernels have all outputs of a row in one tile
ALIGNED = 4  # outputs: products with another number take several times as long on a GPU


def available(weight: Tensor) -> bool:
    """Whether the kernels compute products with these weights: on a GPU with TensorFloat-32, where it is allowed."""
    allowed = torch.get_float32_matmul_precision() != "highest"
    suitable = weight.is_cuda and weight.dtype == torch.float32 and weight.device.index not in _LEFT_OUT
    return suitable and allowed and has_tensorfloat_32(weight.device) and _has_triton()


def streams_available(hidden: Tensor, output: Tensor) -> bool:
    """Whether `stream` takes these weights: few outputs, and hidden units a multiple of `ALIGNED`."""
    return available(hidden) and hidden.shape[1] % ALIGNED == 0 and output.shape[1] <= MAX_STREAM_OUTPUTS


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


_LIBRARY: Any = torch.library.Library("valueshare", "DEF")  # type: ignore[no-untyped-call]


def _define(schema: str, compute: Callable[..., Any], empty_outputs: Callable[..., Any]) -> None:
    """An operator that the compiler calls as it is, with outputs like `empty_outputs`."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, compute, "CUDA")
    torch.library.register_fake(f"valueshare::{name}", empty_outputs, lib=_LIBRARY)


def _kernel(module: str, name: str) -> Callable[..., Any]:
    """A function of `nn.kernels`, which is imported when it is first called: it needs Triton."""

    def call(*args: Any) -> Any:
        return getattr(import_module(f"valueshare.nn.kernels.{module}"), name)(*args)

    return call


def _empty_convolution(image: Tensor, weight: Tensor, bias: Tensor, kernel: int, stride: int, *_: object) -> Tensor:
    down, across = ((size - kernel) // stride + 1 for size in image.shape[2:4])
    return bias.new_empty((*image.shape[:2], down, across, bias.shape[1]))


def _empty_weight_gradient(gradient: Tensor, image: Tensor, kernel: int, *_: object) -> tuple[Tensor, Tensor]:
    from valueshare.nn.kernels.convolution import gradient_parts

    agents, states, down, across, outputs = gradient.shape
    numbers = kernel**2 * image.shape[-1]
    parts = gradient_parts(agents, states * down * across, numbers, image.dtype)
    return gradient.new_empty((agents, parts, outputs, numbers)), gradient.new_empty((agents, parts, outputs))


def _empty_image_gradient(gradient: Tensor, columns: Tensor, height: int, width: int, kernel: int, _: int) -> Tensor:
    return gradient.new_empty((*gradient.shape[:2], height, width, columns.shape[1] // kernel**2))


def _empty_features(cosines: Tensor, weight: Tensor, *_: object) -> Tensor:
    return weight.new_empty((*cosines.shape[:3], weight.shape[1]))


def _empty_features_gradient(
    gradient: Tensor, cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    from valueshare.nn.kernels.quantiles import gradient_parts

    parts = gradient_parts(*features.shape)
    agents, *sizes = weight.shape
    of_weight = weight.new_empty((agents, parts, *sizes))
    return of_weight, bias.new_empty((agents, parts, bias.shape[1])), torch.empty_like(features)


def _empty_outputs(hidden: Tensor, hidden_bias: Tensor, weight: Tensor, *_: object) -> Tensor:
    return hidden.new_empty((*hidden.shape[:2], weight.shape[1]))


def _empty_output_gradient(
    gradient: Tensor, hidden: Tensor, hidden_bias: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from valueshare.nn.kernels.outputs import gradient_parts

    (agents, rows, width), parts = hidden.shape, gradient_parts(*hidden.shape)
    of_weight = weight.new_empty((agents, parts, *weight.shape[1:]))
    of_bias = weight.new_empty((agents, parts, width))
    return hidden.new_empty(hidden.shape), hidden.new_empty((agents, width, rows)), of_bias, of_weight


_GEOMETRY = "int kernel, int stride"
_define(
    f"convolve(Tensor image, Tensor weight, Tensor bias, {_GEOMETRY}, bool channels_first, float scale) -> Tensor",
    _kernel("convolution", "forward"),
    _empty_convolution,
)
_define(
    f"convolve_weight_gradient(Tensor gradient, Tensor image, {_GEOMETRY}, bool channels_first) -> (Tensor, Tensor)",
    _kernel("convolution", "weight_gradient"),
    _empty_weight_gradient,
)
_define(
    f"convolve_image_gradient(Tensor gradient, Tensor weight, int height, int width, {_GEOMETRY}) -> Tensor",
    _kernel("convolution", "image_gradient"),
    _empty_image_gradient,
)
_define(
    "quantile_features(Tensor cosines, Tensor weight, Tensor bias, Tensor features) -> Tensor",
    _kernel("quantiles", "forward"),
    _empty_features,
)
_define(
    "quantile_features_gradient(Tensor gradient, Tensor cosines, Tensor weight, Tensor bias, Tensor features)"
    " -> (Tensor, Tensor, Tensor)",
    _kernel("quantiles", "gradient"),
    _empty_features_gradient,
)
_define(
    "output_layer(Tensor hidden, Tensor hidden_bias, Tensor weight, Tensor bias) -> Tensor",
    _kernel("outputs", "forward"),
    _empty_outputs,
)
_define(
    "output_layer_gradient(Tensor gradient, Tensor hidden, Tensor hidden_bias, Tensor weight)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _kernel("outputs", "gradient"),
    _empty_output_gradient,
)
_define(  # PyTorch's own, before which the compiler would leave out copies that make it faster
    "product_in_order(Tensor a, Tensor b) -> Tensor",
    torch.bmm,
    lambda a, b: a.new_empty((*a.shape[:2], b.shape[2])),
)
