"""Torsos: from an observation to features."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from valueshare.errors import InvalidInput
from valueshare.nn.convolution import Convolution
from valueshare.nn.stacking import Linear, per_agent, stackable

MIN_NATURE_PIXELS = 36  # pixels: smaller images have MinAtar's network
MAX_COLOUR_CHANNELS = 4  # observations with no more columns than this are images [H, W, C]


class NetworkShape(NamedTuple):
    """A network's sizes and initialization: equal shapes fit into one stack of weights."""

    observation: tuple[int, ...]  # [D], a vector, [H, W], a matrix, or [C, H, W], an image
    actions: int
    hidden: tuple[int, ...]  # widths of the hidden linear layers; the last one belongs to the head
    observation_scale: float = 1.0  # multiplies vectors; images are divided by 255 instead, unless they are bools
    initialization: str = "paper"  # or "pytorch": initial weights (`nn.init`)


class Torso(NamedTuple):
    """A module and its number of output features."""

    module: nn.Module
    features: int


def torso(shape: NetworkShape) -> Torso:
    """The layers before the last hidden one: an MLP, or convolutions.

    Shapes: [..., *shape.observation] -> [..., features].
    """
    hidden, observation = shape.hidden, shape.observation
    if not hidden or min(hidden) < 1:
        raise InvalidInput(f"`hidden = {list(hidden)}`: give the width of at least 1 layer, each >= 1")
    if shape.actions < 1:
        raise InvalidInput(f"`actions = {shape.actions}`: a state has at least 1 action")
    if 0 in observation:
        raise InvalidInput(f"observations of shape {list(observation)} have no numbers: every axis has at least 1")
    if len(observation) == 2:
        _refuse_frame(observation)
    if len(observation) in (1, 2):
        size, *widths = (math.prod(observation), *hidden[:-1])
        layers = mlp_torso(size, widths, shape.observation_scale)
        if len(observation) == 2:
            layers.insert(0, FlattenMatrix())
        return Torso(layers, (size, *widths)[-1])
    if len(observation) == 3:
        small = is_small(observation)
        if observation[2] <= MAX_COLOUR_CHANNELS < min(observation[:2]):
            height, width, channels = observation
            raise InvalidInput(
                f"observations of shape {observation}: images are channels first here, {(channels, height, width)}; "
                "transpose them with gymnasium.wrappers.TransformObservation"
            )
        if len(hidden) != 1 or shape.observation_scale != 1:
            raise InvalidInput(
                f"`hidden = {list(hidden)}`, `observation_scale = {shape.observation_scale}`: images"
                f" take one hidden layer after the convolutions and no scale; write [{128 if small else 512}] and 1"
            )
        convolutions = MinAtarTorso(observation) if small else NatureTorso(observation)
        return Torso(convolutions, convolutions.features)
    raise InvalidInput(
        f"observations of shape {list(observation)}: only vectors [D], matrices [H, W] and images [C, H, W] have a"
        " ready network; flatten them, or give your own module"
    )


def _refuse_frame(matrix: Sequence[int]) -> None:
    if min(matrix) >= MIN_NATURE_PIXELS:
        height, width = matrix
        raise InvalidInput(
            f"observations of shape {[height, width]}: images have an axis of channels here, {[1, height, width]}; add "
            "it with gymnasium.wrappers.ReshapeObservation"
        )


def is_small(image: Sequence[int]) -> bool:
    """Whether images [C, H, W] have MinAtar's network, and not that of the Nature DQN."""
    return max(image[1:]) < MIN_NATURE_PIXELS


@stackable
class ObservationScale(nn.Module):
    """Multiply observations by a constant, in the network's own float type.

    A buffer, so that the type and the device are the network's. Shapes: any.
    """

    scale: Tensor

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(float(scale)))

    def forward(self, observation: Tensor) -> Tensor:
        return observation.to(self.scale.dtype) * per_agent(self.scale, observation)


@stackable
class FlattenMatrix(nn.Module):
    """The rows of a matrix as one vector. Shapes: [..., H, W] -> [..., H * W]."""

    def forward(self, observation: Tensor) -> Tensor:
        return observation.flatten(-2)


def mlp_torso(observation_size: int, hidden: Sequence[int], observation_scale: float = 1.0) -> nn.Sequential:
    """Linear layers with a ReLU after each; none at all for empty `hidden`.

    Shapes: [..., observation_size] -> [..., hidden[-1]].
    """
    layers: list[nn.Module] = [ObservationScale(observation_scale)]
    for fan_in, fan_out in pairwise((observation_size, *hidden)):
        layers += [Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


@stackable
class NatureTorso(nn.Module):
    """The three convolutions of the Nature DQN: 32@8x8/4, 64@4x4/2, 64@3x3/1, ReLU after each.

    Takes bytes or floats in 0..255 and divides by 255. The channels are last between the layers;
    the features are in the order (channel, row, column), as if they had been first.
    Shapes: [..., C, H, W] -> [..., features]; [4, 84, 84] -> 3136.
    """

    features: int

    def __init__(self, shape: Sequence[int] = (4, 84, 84)) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < MIN_NATURE_PIXELS:
            raise InvalidInput(
                f"images of {height}x{width}: these convolutions need at least {MIN_NATURE_PIXELS}x{MIN_NATURE_PIXELS}"
            )
        layers = {  # named as with a ReLU after each
            "0": Convolution(channels, 32, kernel=8, stride=4, scale=1 / 255),
            "2": Convolution(32, 64, kernel=4, stride=2),
            "4": Convolution(64, 64, kernel=3, stride=1),
        }
        self.convolutions = nn.Sequential(OrderedDict(layers))
        self.features = 64 * _width_after(height) * _width_after(width)

    def forward(self, frames: Tensor) -> Tensor:
        features: Tensor = self.convolutions(frames.movedim(-3, -1))  # [..., H', W', 64]
        return features.movedim(-1, -3).flatten(-3)


@stackable
class MinAtarTorso(nn.Module):
    """The one convolution of MinAtar's DQN, 16@3x3/1 with a ReLU (Young and Tian, 2019).

    Takes bools, as MinAtar has them, or bytes or floats in 0..255, which it divides by 255.
    Shapes: [..., C, H, W] -> [..., features]; [10, 10, 10] -> 1024.
    """

    features: int

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < 3:
            raise InvalidInput(f"images of {height}x{width}: this convolution needs at least 3x3")
        self.convolution = Convolution(channels, 16, kernel=3, stride=1, scale=1 / 255)
        self.features = 16 * (height - 2) * (width - 2)

    def forward(self, image: Tensor) -> Tensor:
        features: Tensor = self.convolution(image.movedim(-3, -1))  # [..., H - 2, W - 2, 16]
        return features.flatten(-3)


def _width_after(pixels: int) -> int:
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        pixels = (pixels - kernel) // stride + 1
    return pixels
