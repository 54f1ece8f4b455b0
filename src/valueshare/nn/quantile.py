"""Implicit quantile networks: action-values at any quantile tau of the return."""

import math

import torch
from torch import Tensor, nn

from valueshare.errors import InvalidInput
from valueshare.nn.heads import PlainHead
from valueshare.nn.stacking import Linear, stackable
from valueshare.nn.torsos import NetworkShape, torso

COSINES = 64


@stackable
class QuantileEmbedding(nn.Module):
    """relu(W c + d) with c_i = cos(pi·i·tau), i = 1..64.

    Shapes: tau [..., N] -> [..., N, features].
    """

    frequencies: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = Linear(COSINES, features)
        self.register_buffer("frequencies", math.pi * torch.arange(1.0, COSINES + 1))

    def forward(self, tau: Tensor) -> Tensor:
        frequencies = self.frequencies
        if frequencies.ndim > 1:  # stacked over agents: [P, 64] -> [P, 1, ..., 64]
            frequencies = frequencies.reshape(-1, *(1,) * (tau.ndim - 1), COSINES)
        cosines = torch.cos(tau.unsqueeze(-1) * frequencies)  # [..., N, 64]
        return torch.relu(self.linear(cosines))


@stackable
class QuantileNetwork(nn.Module):
    """Features of the observation times features of tau, then a plain head for each quantile.

    The mean-expansion layer acts over the actions of each quantile: k = 0 is IQN, k > 0 IB-IQN.
    Shapes: obs [..., *observation], tau [..., N] -> [..., N, A].
    """

    def __init__(self, shape: NetworkShape, k: float) -> None:
        super().__init__()
        if len(shape.observation) < 3 and len(shape.hidden) < 2:
            raise InvalidInput(
                f"`hidden = {list(shape.hidden)}`: a quantile network of vectors needs at least 2"
                " layers, one before the quantiles come in and one after, as in [256, 256]"
            )
        self.torso, features = torso(shape)
        self.embedding = QuantileEmbedding(features)
        self.head = PlainHead(features, shape.hidden[-1], shape.actions, k)

    def forward(self, observation: Tensor, tau: Tensor) -> Tensor:
        features = self.torso(observation).unsqueeze(-2)  # [..., 1, features]
        quantiles: Tensor = self.head(features * self.embedding(tau))
        return quantiles


def quantile_network(shape: NetworkShape, k: float = 0.0) -> nn.Module:
    """IQN's network for k = 0, IB-IQN's for k > 0.

    Its weights start as PyTorch has them: the authors build it of plain layers.
    """
    return QuantileNetwork(shape, k)
