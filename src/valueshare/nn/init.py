"""How weights start."""

import math

from torch import nn

from valueshare.nn.convolution import Convolution

_Convolution = nn.Conv2d | Convolution
_Layer = nn.Linear | _Convolution


def initialize_(
    module: nn.Module,
    bias: float = 0.0,
    last_bias: float = 0.0,
    *,
    convolution_bias: float | None = None,
) -> None:
    """Draw all linear and convolution weights LeCun-normal and set their biases, in place.

    Weights are normal (not truncated) with standard deviation sqrt(1 / fan_in), so that a layer
    keeps the variance of its inputs. Biases are `bias`, or `convolution_bias` in convolutions where
    given; and `last_bias` in output layers: those linear layers that are named `output`, or where
    there are none, the last one. The numbers come from PyTorch's global generator, in the order of
    the layers.
    """
    layers = {name: m for name, m in module.named_modules() if isinstance(m, _Layer)}
    outputs = {name for name in layers if name.split(".")[-1] == "output"} or set(list(layers)[-1:])
    for name, layer in layers.items():
        fan_in = layer.weight[0].numel()
        nn.init.normal_(layer.weight, std=math.sqrt(1 / fan_in))
        if layer.bias is None:
            continue
        if name in outputs:
            nn.init.constant_(layer.bias, last_bias)
        elif isinstance(layer, _Convolution) and convolution_bias is not None:
            nn.init.constant_(layer.bias, convolution_bias)
        else:
            nn.init.constant_(layer.bias, bias)
