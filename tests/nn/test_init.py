"""How weights start: their spread, their biases, and where their numbers come from."""

import math

import pytest
import torch
from torch import nn

from valueshare.nn.convolution import Convolution
from valueshare.nn.init import Biases, initialize_


def test_weights_are_normal_with_variance_one_over_fan_in() -> None:
    linear, convolution = nn.Linear(400, 500), Convolution(4, 256, 8, 4)
    torch.manual_seed(0)
    for layer, fan_in in ((linear, 400), (convolution, 4 * 8 * 8)):
        initialize_(layer)
        weights = layer.weight.detach().flatten() * math.sqrt(fan_in)
        n = len(weights)
        assert abs(weights.mean().item()) < 5 / math.sqrt(n)
        assert abs(weights.var().item() - 1) < 5 * math.sqrt(2 / n)
        # not truncated: 0.27 % of normal numbers lie beyond 3 standard deviations
        assert (weights.abs() > 3).float().mean().item() == pytest.approx(0.0027, rel=0.3)


def test_biases_of_convolutions_hidden_and_output_layers() -> None:
    """Convolutions of PyTorch too: users have networks of their own."""
    layers = nn.Conv2d(1, 2, 3), Convolution(2, 2, 3, 1), nn.Linear(8, 4), nn.Linear(4, 3)
    network = nn.Sequential(*layers)

    def biases() -> list[list[float]]:
        return [p.tolist() for name, p in network.named_parameters() if name.endswith("bias")]

    initialize_(network, Biases(convolution=0.03, hidden=0.1, output=0.5))
    expected = [[0.03] * 2, [0.03] * 2, [0.1] * 4, [0.5] * 3]
    for found, wanted in zip(biases(), expected, strict=True):
        assert found == pytest.approx(wanted)
    initialize_(network)
    assert not any(value for layer in biases() for value in layer)


def test_every_layer_named_output_has_the_last_bias() -> None:
    streams = nn.ModuleDict(
        {name: nn.ModuleDict({"hidden": nn.Linear(2, 2), "output": nn.Linear(2, 1)}) for name in "ab"}
    )
    initialize_(streams, Biases(hidden=0.1, output=0.7))
    for name, parameter in streams.named_parameters():
        if name.endswith("bias"):
            assert parameter.tolist() == pytest.approx([0.7] if "output" in name else [0.1] * 2)


def test_a_layer_without_bias_is_left_without() -> None:
    layer = nn.Linear(3, 2, bias=False)
    initialize_(layer, Biases(0.1, 0.1, 0.1))
    assert layer.bias is None


def test_numbers_are_a_function_of_the_seed() -> None:
    def weights(seed: int) -> torch.Tensor:
        layer = nn.Linear(5, 5)
        torch.manual_seed(seed)
        initialize_(layer)
        return layer.weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
