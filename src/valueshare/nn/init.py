"""The initial weights of the paper's DQN, Double, Dueling, IB-DQN and RDQ networks.

IQN and IB-IQN start from PyTorch's default initialization, as do all networks of presets that are
not the paper's (`initialization="pytorch"`): then nothing here is called.
"""

import math
from typing import NamedTuple

from torch import nn

from valueshare.nn.convolution import Convolution

_Convolution = nn.Conv2d | Convolution
_Layer = nn.Linear | _Convolution


class Biases(NamedTuple):
    """The initial biases by kind of layer."""

    convolution: float = 0.0
    hidden: float = 0.0
    output: float = 0.0


def initialize_(module: nn.Module, biases: Biases = Biases()) -> None:  # noqa: B008 (a constant)
    """Draw all linear and convolution weights LeCun-normal and set their biases, in place.

    Weights are normal, not truncated (as in PFRL), with standard deviation sqrt(1 / fan_in), so that a layer keeps the
    variance of its inputs. Output layers are the linear layers named `output`, or else the last one.
    The numbers come from PyTorch's global generator, in the order of the layers.
    """
    layers = {name: m for name, m in module.named_modules() if isinstance(m, _Layer)}
    outputs = {name for name in layers if name.split(".")[-1] == "output"} or set(list(layers)[-1:])
    for name, layer in layers.items():
        if layer.weight.is_meta:  # no numbers; PyTorch would import its compiler to draw none
            continue
        fan_in = layer.weight[0].numel()
        nn.init.normal_(layer.weight, std=math.sqrt(1 / fan_in))
        if layer.bias is None:
            continue
        if name in outputs:
            bias = biases.output
        elif isinstance(layer, _Convolution):
            bias = biases.convolution
        else:
            bias = biases.hidden
        nn.init.constant_(layer.bias, bias)
