"""The algorithms, each a small value: a network, the meaning of its outputs, and a loss.

A network's forward pass gives *outputs*; `q_values` turns them into action-values. A loss sees the
network only as `forward(obs, tau)`, so the same loss serves a population and one agent's module.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from valueshare.errors import InvalidInput
from valueshare.learning.losses import (
    baseline_residual_penalty,
    double_q_learning_error,
    half_squared,
    huber,
    q_learning_error,
    quantile_huber_loss,
)
from valueshare.learning.randomness import uniform
from valueshare.nn.heads import baseline_residual_network, dueling_network, plain_network
from valueshare.nn.quantile import quantile_network
from valueshare.nn.torsos import NetworkShape

ERRORS: dict[str, Callable[[Tensor], Tensor]] = {"half-squared": half_squared, "huber": huber}


class Batch(NamedTuple):
    """Transitions: in obs_tm1, a_tm1 led to r_t, discount_t (0 at termination) and obs_t."""

    obs_tm1: Tensor  # [P, B, ...]
    a_tm1: Tensor  # [P, B] int64
    r_t: Tensor  # [P, B]
    discount_t: Tensor  # [P, B]
    obs_t: Tensor  # [P, B, ...]


class Hyper(NamedTuple):
    """What a loss needs besides data: one beta an agent, one error and one kappa a population."""

    beta: Tensor  # [P] weight of RDQ's penalty; other losses do not read it
    error: str = "half-squared"  # or "huber"; quantile losses have their own
    kappa: float = 1.0  # width of the quadratic part of quantile losses


class Samples(NamedTuple):
    """How many quantiles a state: N to learn, N' in the target, K to choose actions; 0 for none."""

    learn: int = 0
    target: int = 0
    act: int = 0


class Taus(NamedTuple):
    """The quantiles of one update, uniform in [0, 1)."""

    learn: Tensor  # [P, B, N]
    target: Tensor  # [P, B, N']
    act: Tensor  # [P, B, K]


class Forward(Protocol):
    """A network's outputs for obs [P, B, ...]; tau [P, B, N] for quantile networks, else None."""

    def __call__(self, obs: Tensor, tau: Tensor | None) -> Tensor: ...


class Build(Protocol):
    def __call__(
        self, shape: NetworkShape, k: float = 0.0, generator: torch.Generator | None = None
    ) -> nn.Module: ...


Loss = Callable[[Forward, Forward, Batch, Hyper, Taus | None], Tensor]


class Algorithm(NamedTuple):
    """An algorithm; `build_network` is the way to its network from plain settings."""

    build: Build
    q_values: Callable[[Tensor], Tensor]  # outputs -> q [..., A]
    loss: Loss  # -> [P, B], one loss a transition: reduce over B, sum over P
    architecture: str  # agents with this and their NetworkShape in common can share a population
    uses_k: bool = False
    samples: Samples = Samples()


def outputs_are_q(outputs: Tensor) -> Tensor:
    """q itself. Shapes: [..., A] -> [..., A]."""
    return outputs


def baseline_plus_residual(u: Tensor) -> Tensor:
    """q = z + b. Shapes: u [..., A+1] -> [..., A]."""
    return u[..., :-1] + u[..., -1:]


def mean_over_quantiles(quantiles: Tensor) -> Tensor:
    """q, the mean return. Shapes: [..., N, A] -> [..., A]."""
    return quantiles.mean(-2)


def q_learning_loss(
    online: Forward, target: Forward, batch: Batch, hyper: Hyper, tau: Taus | None
) -> Tensor:
    """DQN's loss; for k > 0 IB-DQN's, since the layer is in the network. -> [P, B]."""
    q_t = _without_gradient(target, batch.obs_t, None)
    q_tm1 = online(batch.obs_tm1, None)
    error = q_learning_error(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t)
    return ERRORS[hyper.error](error)


def double_q_learning_loss(
    online: Forward, target: Forward, batch: Batch, hyper: Hyper, tau: Taus | None
) -> Tensor:
    """Double DQN's loss: the online network chooses the next action, the target rates it."""
    q_t_value = _without_gradient(target, batch.obs_t, None)
    q_t_selector = _without_gradient(online, batch.obs_t, None)
    q_tm1 = online(batch.obs_tm1, None)
    error = double_q_learning_error(
        q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t_value, q_t_selector
    )
    return ERRORS[hyper.error](error)


def regularized_dueling_loss(
    online: Forward, target: Forward, batch: Batch, hyper: Hyper, tau: Taus | None
) -> Tensor:
    """RDQ's loss: DQN's plus beta·(B² + sum_a Z(a)²)/2 at the state that is learned. -> [P, B]."""
    q_t = baseline_plus_residual(_without_gradient(target, batch.obs_t, None))
    u_tm1 = online(batch.obs_tm1, None)
    q_tm1 = baseline_plus_residual(u_tm1)
    error = q_learning_error(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t)
    penalty = baseline_residual_penalty(u_tm1)
    return ERRORS[hyper.error](error) + hyper.beta.unsqueeze(-1) * penalty


def quantile_loss(
    online: Forward, target: Forward, batch: Batch, hyper: Hyper, tau: Taus | None
) -> Tensor:
    """IQN's loss; for k > 0 IB-IQN's. -> [P, B].

    The target network chooses the next action, by its mean over K quantiles of their own, and
    rates it at N' others.
    """
    if tau is None:
        raise InvalidInput("quantile networks learn at random quantiles: give tau = draw_taus(...)")
    q_t = mean_over_quantiles(_without_gradient(target, batch.obs_t, tau.act))
    quantiles_t = _without_gradient(target, batch.obs_t, tau.target)  # [P, B, N', A]
    value_t = _of_action(quantiles_t, q_t.argmax(-1))  # [P, B, N']
    targets = batch.r_t.unsqueeze(-1) + batch.discount_t.unsqueeze(-1) * value_t
    quantiles_tm1 = _of_action(online(batch.obs_tm1, tau.learn), batch.a_tm1)  # [P, B, N]
    return quantile_huber_loss(quantiles_tm1, tau.learn, targets, hyper.kappa)


_PLAIN = Algorithm(plain_network, outputs_are_q, q_learning_loss, "plain")
_DOUBLE = Algorithm(plain_network, outputs_are_q, double_q_learning_loss, "plain-double")
_QUANTILE = Algorithm(
    quantile_network,
    mean_over_quantiles,
    quantile_loss,
    "quantile",
    samples=Samples(learn=64, target=64, act=32),
)

ALGORITHMS: dict[str, Algorithm] = {
    "dqn": _PLAIN,
    "double-dqn": _DOUBLE,
    "ib-dqn": _PLAIN._replace(uses_k=True),
    "ib-double-dqn": _DOUBLE._replace(uses_k=True),
    "dueling-dqn": Algorithm(dueling_network, outputs_are_q, q_learning_loss, "dueling"),
    "rdq": Algorithm(
        baseline_residual_network,
        baseline_plus_residual,
        regularized_dueling_loss,
        "baseline-residual",
    ),
    "iqn": _QUANTILE,
    "ib-iqn": _QUANTILE._replace(uses_k=True),
}


def algorithm_named(name: str) -> Algorithm:
    """The algorithm of that name."""
    if name not in ALGORITHMS:
        raise InvalidInput(f"algorithm = {name!r}: write one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def build_network(
    algorithm: str,
    observation_shape: Sequence[int],
    actions: int,
    hidden: Sequence[int],
    k: float = 0.0,
    observation_scale: float = 1.0,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """One agent's network, its weights drawn from `generator`.

    Vectors [D] take an MLP of `hidden` layers, the last of which belongs to the head (one in each
    stream of dueling heads); images [C, H, W] the Nature DQN's convolutions and one hidden layer,
    [512].
    """
    rule = algorithm_named(algorithm)
    if k != 0 and not rule.uses_k:
        with_k = ", ".join(name for name, other in ALGORITHMS.items() if other.uses_k)
        raise InvalidInput(f"k = {k} for {algorithm}: only {with_k} have a k; leave it 0 here")
    shape = NetworkShape(tuple(observation_shape), actions, tuple(hidden), observation_scale)
    return rule.build(shape, k, generator)


def draw_taus(keys: Tensor, counter: Tensor | int, batch: int, samples: Samples) -> Taus | None:
    """The quantiles of one update, from one stream an agent; None for algorithms that have none.

    Shapes: keys [P] -> [P, B, N], [P, B, N'], [P, B, K].
    """
    if samples.learn == 0:
        return None
    drawn = uniform(keys, counter, batch * sum(samples)).reshape(-1, batch, sum(samples))
    return Taus(*torch.split(drawn, list(samples), dim=-1))


def _without_gradient(forward: Forward, obs: Tensor, tau: Tensor | None) -> Tensor:
    with torch.no_grad():
        return forward(obs, tau)


def _of_action(quantiles: Tensor, action: Tensor) -> Tensor:
    """One action's quantiles. Shapes: quantiles [..., N, A], action [...] -> [..., N]."""
    index = action[..., None, None].expand(*quantiles.shape[:-1], 1)
    return quantiles.gather(-1, index).squeeze(-1)
