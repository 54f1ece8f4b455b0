"""Heads: from features to a network's outputs, and the networks that end in them.

The algorithm defines the meaning of the outputs: action-values for the plain and the dueling
network, the vector u = (z_1, ..., z_n, b) for the baseline-residual one, action-values at any quantile tau of the
return for the quantile network.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from valueshare.errors import InvalidInput
from valueshare.nn import operators
from valueshare.nn.expansion import MeanExpansion
from valueshare.nn.init import Biases, initialize_
from valueshare.nn.operators import UncomputedFeatures
from valueshare.nn.stacking import Linear, stackable
from valueshare.nn.torsos import FlattenMatrix, NetworkShape, ObservationScale, torso

# On images, as the authors have them; all biases of their MLPs start at 0.
PLAIN_BIASES = Biases(convolution=0.1, hidden=0.1)  # DQN, Double DQN, IB-DQN
STREAM_BIASES = Biases(convolution=0.03, hidden=0.0)  # Dueling DQN, RDQ
COSINES = 64  # of the embedding of a quantile


@stackable
class Stream(nn.Module):
    """A hidden layer, ReLU, and a linear layer. Shapes: [..., features] -> [..., outputs].

    Features that are still to be computed, as `VectorNetwork` gives them, are computed with the rest.
    """

    def __init__(self, features: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden = Linear(features, hidden)
        self.output = Linear(hidden, outputs)

    def forward(self, features: Tensor | UncomputedFeatures) -> Tensor:
        hidden, output = self.hidden, self.output
        if isinstance(features, UncomputedFeatures):
            flat = features._replace(x=features.x.flatten(1, -2))
            rows = operators.mlp(flat, (hidden.weight, hidden.bias), (output.weight, output.bias))
            return rows if features.x.ndim == 3 else rows.reshape(*features.x.shape[:-1], -1)
        if hidden.weight.ndim == 3 and operators.streams_available(hidden.weight, output.weight):
            rows = operators.stream(features.flatten(1, -2), (hidden.weight, hidden.bias), (output.weight, output.bias))
            return rows if features.ndim == 3 else rows.reshape(*features.shape[:-1], -1)
        outputs: Tensor = output(torch.relu_(hidden(features)))
        return outputs


@stackable
class PlainHead(nn.Module):
    """One stream and the mean-expansion layer: q = M_k z.

    The layer is there for k = 0 too, where it changes nothing, so that DQN and IB-DQN have one
    shape. Shapes: [..., features] -> q [..., A].
    """

    def __init__(self, features: int, hidden: int, actions: int, k: float) -> None:
        super().__init__()
        self.stream = Stream(features, hidden, actions)
        self.expansion = MeanExpansion(k)

    def forward(self, features: Tensor | UncomputedFeatures) -> Tensor:
        q: Tensor = self.expansion(self.stream(features))
        return q


@stackable
class DuelingHead(nn.Module):
    """q = b + (x - mean(x)): a stream for the mean action-value, one for the residuals, centred.

    Shapes: [..., features] -> q [..., A].
    """

    def __init__(self, features: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.baseline = Stream(features, hidden, 1)
        self.residual = Stream(features, hidden, actions)

    def forward(self, features: Tensor | UncomputedFeatures) -> Tensor:
        x = self.residual(features)
        q: Tensor = self.baseline(features) + (x - x.mean(-1, keepdim=True))
        return q


@stackable
class BaselineResidualHead(nn.Module):
    """u = (z_1, ..., z_n, b) from the same two streams, not centred: the head of RDQ.

    Shapes: [..., features] -> u [..., A+1].
    """

    def __init__(self, features: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.baseline = Stream(features, hidden, 1)
        self.residual = Stream(features, hidden, actions)

    def forward(self, features: Tensor | UncomputedFeatures) -> Tensor:
        return torch.cat([self.residual(features), self.baseline(features)], -1)


@stackable
class QuantileEmbedding(nn.Module):
    """Features of the state times those of tau, relu(W c + d) with c_i = cos(pi·i·tau), i = 1..64.

    Shapes: tau [..., N], features [..., F] -> [..., N, F].
    """

    frequencies: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = Linear(COSINES, features)
        self.register_buffer("frequencies", math.pi * torch.arange(1.0, COSINES + 1))

    def forward(self, tau: Tensor, features: Tensor) -> Tensor:
        frequencies, weight = self.frequencies, self.linear.weight
        stacked = weight.ndim == 3
        if stacked:  # [P, 64] -> [P, 1, 1, 64]
            frequencies = frequencies.reshape(-1, *(1,) * (tau.ndim - 1), COSINES)
        cosines = torch.cos(tau.unsqueeze(-1) * frequencies)  # [..., N, 64]
        if stacked and operators.available(weight):
            return operators.quantile_features(cosines, weight, self.linear.bias, features)
        return features.unsqueeze(-2) * torch.relu(self.linear(cosines))


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
        quantiles: Tensor = self.head(self.embedding(tau, self.torso(observation)))
        return quantiles


@stackable
class VectorNetwork(nn.Sequential):
    """A torso with one linear layer, and a head; computed together where `operators.mlp` takes their weights.

    Shapes: [..., *observation] -> the head's.
    """

    def forward(self, observation: Tensor) -> Tensor:
        first = self._first_layer() if operators.mlps_worthwhile(observation) else None
        if first is None:
            outputs: Tensor = super().forward(observation)  # type: ignore[no-untyped-call]
            return outputs
        for layer in list(self[0].children())[:-2]:
            observation = layer(observation)
        values: Tensor = self[1](UncomputedFeatures(observation, first.weight, first.bias))
        return values

    def _first_layer(self) -> Linear | None:
        """The torso's linear layer, if this is still as it was built, and each stream is computed together with it."""
        torso, head = self._modules.get("torso"), self._modules.get("head")
        if len(self) != 2 or not isinstance(torso, nn.Sequential) or head is None:
            return None
        if len(torso) < 2:
            return None
        *before, first, relu = torso.children()
        if not isinstance(first, Linear) or not isinstance(relu, nn.ReLU):
            return None
        streams = [layer for layer in head.children() if isinstance(layer, Stream)]
        weights = [(first.weight, stream.hidden.weight, stream.output.weight) for stream in streams]
        fit = all(isinstance(layer, FlattenMatrix | ObservationScale) for layer in before)
        return first if fit and weights and all(operators.mlps_available(*each) for each in weights) else None


def plain_network(shape: NetworkShape, k: float = 0.0) -> nn.Module:
    """DQN's network for k = 0, else IB-DQN's. Shapes: obs [..., *observation] -> q [..., A]."""
    return _network(shape, PLAIN_BIASES, partial(PlainHead, k=k))


def dueling_network(shape: NetworkShape, k: float = 0.0) -> nn.Module:
    """Dueling DQN's network; it has no k. Shapes: obs [..., *observation] -> q [..., A]."""
    del k
    return _network(shape, STREAM_BIASES, DuelingHead)


def baseline_residual_network(shape: NetworkShape, k: float = 0.0) -> nn.Module:
    """RDQ's network; it has no k. Shapes: obs [..., *observation] -> u [..., A+1]."""
    del k
    return _network(shape, STREAM_BIASES, BaselineResidualHead)


def quantile_network(shape: NetworkShape, k: float = 0.0) -> nn.Module:
    """IQN's network for k = 0, IB-IQN's for k > 0.

    Its weights start as PyTorch has them: the authors build it of plain layers.
    """
    return QuantileNetwork(shape, k)


def _network(shape: NetworkShape, biases: Biases, head: Callable[[int, int, int], nn.Module]) -> nn.Module:
    """A torso and a head, which is made from (features, hidden, actions)."""
    module, features = torso(shape)
    parts = OrderedDict(torso=module, head=head(features, shape.hidden[-1], shape.actions))
    network = VectorNetwork(parts) if len(shape.observation) < 3 and len(shape.hidden) == 2 else nn.Sequential(parts)
    if shape.initialization == "paper":
        initialize_(network, biases if len(shape.observation) == 3 else Biases())
    return network
