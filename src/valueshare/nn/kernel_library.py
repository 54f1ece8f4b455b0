"""The kernels of `nn.kernels` as operators of PyTorch, `torch.ops.valueshare`, which its compiler calls as they are."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

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


def _empty_mlp(x: Tensor, *layers: Any) -> tuple[Tensor, Tensor, Tensor]:
    (weight1, _, _, _, weight3, _), keeps_units = layers[:-1], layers[-1]
    (agents, rows, _), (_, outputs, width) = x.shape, weight3.shape
    kept = rows if keeps_units else 0
    features, hidden = (x.new_empty((agents, kept, units)) for units in (weight1.shape[1], width))
    return x.new_empty((agents, rows, outputs)), features, hidden


def _empty_gradient_of_hidden(_: Tensor, hidden: Tensor, weight3: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    of_bias = hidden.new_empty((hidden.shape[0], hidden.shape[2]))
    return hidden.new_empty(hidden.shape), of_bias, hidden.new_empty(weight3.shape)


def _empty_gradient_of_features(_: Tensor, weight2: Tensor, features: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    agents, count = features.shape[0], features.shape[2]
    return x.new_empty((agents, count, x.shape[2])), x.new_empty((agents, count))


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
_LAYERS = "Tensor weight1, Tensor bias1, Tensor weight2, Tensor bias2, Tensor weight3, Tensor bias3"
_define(
    f"mlp(Tensor x, {_LAYERS}, bool keeps_units) -> (Tensor, Tensor, Tensor)",
    _kernel("mlp", "forward"),
    _empty_mlp,
)
_define(
    "mlp_gradient_of_hidden(Tensor gradient, Tensor hidden, Tensor weight3) -> (Tensor, Tensor, Tensor)",
    _kernel("mlp", "gradient_of_hidden"),
    _empty_gradient_of_hidden,
)
_define(
    "mlp_gradient_of_features(Tensor of_hidden, Tensor weight2, Tensor features, Tensor x) -> (Tensor, Tensor)",
    _kernel("mlp", "gradient_of_features"),
    _empty_gradient_of_features,
)
_define(  # PyTorch's own, before which the compiler would leave out copies that make it faster
    "product_in_order(Tensor a, Tensor b) -> Tensor",
    torch.bmm,
    lambda a, b: a.new_empty((*a.shape[:2], b.shape[2])),
)
