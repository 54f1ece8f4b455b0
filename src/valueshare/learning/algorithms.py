"""The algorithms, each a small value: a network, the meaning of its outputs, and a loss.

A network's forward pass gives *outputs*; `q_values` turns them into action-values. A loss sees the
network only as `forward(obs, tau)`, so the same loss serves a population and one agent's module.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from valueshare.algorithm_info import ALGORITHM_INFO, AlgorithmInfo, info_named, without_layer
from valueshare.errors import InvalidInput
from valueshare.expansion import contract
from valueshare.learning.losses import (
    baseline_residual_penalty,
    double_q_learning_error,
    half_squared,
    huber,
    q_learning_error,
    quantile_huber_loss,
)
from valueshare.learning.randomness import uniform
from valueshare.nn.heads import baseline_residual_network, dueling_network, plain_network, quantile_network
from valueshare.nn.torsos import NetworkShape
from valueshare.replay.transitions import Batch

TD_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"half-squared": half_squared, "huber": huber}


class LossSettings(NamedTuple):
    """The settings that losses read, each by its name: tensors [P] of `AgentSettings`, values of `TrainingSettings`."""

    beta: Tensor  # [P]  weight of RDQ's penalty
    loss: str  # a key of TD_LOSSES; quantile losses have their own
    kappa: float  # width of the quadratic part of quantile losses


class QuantileCounts(NamedTuple):
    """Quantile samples per state: N to learn, N' in the target, K to choose actions; 0 for none."""

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


class LossOutput(NamedTuple):
    """A loss, and the outputs that it was computed from."""

    loss: Tensor  # [P, B]  one per transition: reduce over B, sum over P
    outputs_tm1: Tensor  # [P, B, ...]  of the online network in the states that are learned


# (online, target, batch, settings, taus) -> LossOutput
Loss = Callable[[Forward, Forward, Batch, LossSettings, Taus | None], LossOutput]


class Algorithm(NamedTuple):
    """An algorithm: one agent's network, the meaning of its outputs, and the loss.

    The residuals z are action-values without the baseline b, the part that all actions share: q = b + z. With a mean
    expansion they are its input. `losses.py` explains names like `q_tm1` and `r_t`.
    """

    info: AlgorithmInfo
    build: Callable[[NetworkShape, float], nn.Module]  # from (shape, k)
    q_values: Callable[[Tensor], Tensor]  # outputs -> q [..., A]
    loss: Loss
    z_values: Callable[[Tensor, Tensor], Tensor] = contract  # outputs, k [P, 1] -> z [..., A]
    baseline_caption: str = "b = k·mean(z) with k = {k:g}"  # a caption of videos
    outputs_description: str = "[B, A], action-values"  # for messages of errors
    extra_outputs: int = 0  # beside one per action
    peak_output_tensors: int = 4  # tensors of the outputs' size that an update needs at once, measured

    @property
    def population_key(self) -> tuple[Callable[..., nn.Module], Loss]:
        """The network and the loss: agents with equal keys and equal NetworkShapes can share a population."""
        return self.build, self.loss

    @property
    def uses_k(self) -> bool:
        return "k" in self.info.reads

    @property
    def is_quantile(self) -> bool:
        return self.info.is_quantile


def outputs_are_q(outputs: Tensor) -> Tensor:
    """q itself. Shapes: [..., A] -> [..., A]."""
    return outputs


def baseline_plus_residual(u: Tensor) -> Tensor:
    """q = z + b. Shapes: u [..., A+1] -> [..., A]."""
    return u[..., :-1] + u[..., -1:]


def residual_stream(u: Tensor, _k: Tensor) -> Tensor:
    """z, without the baseline. Shapes: u [..., A+1] -> [..., A]."""
    return u[..., :-1]


def subtract_mean(q: Tensor, _k: Tensor) -> Tensor:
    """z = q - B, where the baseline is the mean action-value. Shapes: [..., A] -> [..., A]."""
    return q - q.mean(-1, keepdim=True)


def contract_mean(quantiles: Tensor, k: Tensor) -> Tensor:
    """z = M_k^-1 q of the mean return. Shapes: [P, B, N, A], k [P, 1] -> [P, B, A]."""
    z: Tensor = contract(mean_over_quantiles(quantiles), k)
    return z


def mean_over_quantiles(quantiles: Tensor) -> Tensor:
    """q, the mean return. Shapes: [..., N, A] -> [..., A]."""
    return quantiles.mean(-2)


def q_learning_loss(
    online: Forward, target: Forward, batch: Batch, settings: LossSettings, taus: Taus | None
) -> LossOutput:
    """DQN's loss; for k > 0 IB-DQN's, since the layer is in the network."""
    q_t = _without_gradient(target, batch.obs_t, None)
    q_tm1 = online(batch.obs_tm1, None)
    error = q_learning_error(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t)
    return LossOutput(TD_LOSSES[settings.loss](error), q_tm1)


def double_q_learning_loss(
    online: Forward, target: Forward, batch: Batch, settings: LossSettings, taus: Taus | None
) -> LossOutput:
    """Double DQN's loss: the online network chooses the next action, the target rates it."""
    q_t_value = _without_gradient(target, batch.obs_t, None)
    q_t_selector = _without_gradient(online, batch.obs_t, None)
    q_tm1 = online(batch.obs_tm1, None)
    error = double_q_learning_error(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t_value, q_t_selector)
    return LossOutput(TD_LOSSES[settings.loss](error), q_tm1)


def regularized_dueling_loss(
    online: Forward, target: Forward, batch: Batch, settings: LossSettings, taus: Taus | None
) -> LossOutput:
    """RDQ's loss: DQN's plus beta·(B² + sum_a Z(a)²)/2 at the state that is updated."""
    q_t = baseline_plus_residual(_without_gradient(target, batch.obs_t, None))
    u_tm1 = online(batch.obs_tm1, None)
    q_tm1 = baseline_plus_residual(u_tm1)
    error = q_learning_error(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, q_t)
    penalty = settings.beta.unsqueeze(-1) * baseline_residual_penalty(u_tm1)
    return LossOutput(TD_LOSSES[settings.loss](error) + penalty, u_tm1)


def quantile_loss(
    online: Forward, target: Forward, batch: Batch, settings: LossSettings, taus: Taus | None
) -> LossOutput:
    """IQN's loss; for k > 0 IB-IQN's.

    The target network chooses the next action, by its mean over K quantiles of their own, and
    rates it at N' others: one pass over the observations serves both.
    """
    if taus is None:
        raise InvalidInput("quantile networks learn at random quantiles: give taus = draw_taus(...)")
    both = torch.cat([taus.act, taus.target], -1)  # [P, B, K+N']
    all_t = _without_gradient(target, batch.obs_t, both)  # [P, B, K+N', A]
    acting_t, quantiles_t = all_t.tensor_split([taus.act.shape[-1]], dim=-2)
    choice = mean_over_quantiles(acting_t).argmax(-1)  # [P, B]
    value_t = _select_action_quantiles(quantiles_t, choice)  # [P, B, N']
    targets = batch.r_t.unsqueeze(-1) + batch.discount_t.unsqueeze(-1) * value_t
    quantiles_tm1 = online(batch.obs_tm1, taus.learn)  # [P, B, N, A]
    value_tm1 = _select_action_quantiles(quantiles_tm1, batch.a_tm1)  # [P, B, N]
    loss = quantile_huber_loss(value_tm1, taus.learn, targets, settings.kappa)
    return LossOutput(loss, quantiles_tm1)


_WITHOUT_LAYER = {
    "dqn": Algorithm(ALGORITHM_INFO["dqn"], plain_network, outputs_are_q, q_learning_loss),
    "double-dqn": Algorithm(
        ALGORITHM_INFO["double-dqn"], plain_network, outputs_are_q, double_q_learning_loss, peak_output_tensors=5
    ),
    "dueling-dqn": Algorithm(
        ALGORITHM_INFO["dueling-dqn"],
        dueling_network,
        outputs_are_q,
        q_learning_loss,
        z_values=subtract_mean,
        baseline_caption="b = mean(q), the baseline stream",
    ),
    "rdq": Algorithm(
        ALGORITHM_INFO["rdq"],
        baseline_residual_network,
        baseline_plus_residual,
        regularized_dueling_loss,
        z_values=residual_stream,
        baseline_caption="b, the baseline stream",
        outputs_description="[B, A + 1], the residuals and then the baseline",
        extra_outputs=1,
        peak_output_tensors=5,
    ),
    "iqn": Algorithm(
        ALGORITHM_INFO["iqn"],
        quantile_network,
        mean_over_quantiles,
        quantile_loss,
        z_values=contract_mean,
        outputs_description="[B, N, A], action-values at each of N quantiles",
    ),
}
# k is the network's: "ib-NAME" is NAME but for its label and for reading k.
ALGORITHMS = {name: _WITHOUT_LAYER[without_layer(name)]._replace(info=info) for name, info in ALGORITHM_INFO.items()}


def algorithm_named(name: str) -> Algorithm:
    """The algorithm of that name; an unknown one is refused."""
    info_named(name)
    return ALGORITHMS[name]


def draw_taus(keys: Tensor, counter: Tensor | int, batch: int, counts: QuantileCounts) -> Taus | None:
    """The quantiles of one update, from one stream per agent; None for algorithms that have none.

    Shapes: keys [P] -> [P, B, N], [P, B, N'], [P, B, K].
    """
    if counts.learn == 0:
        return None
    drawn = uniform(keys, counter, batch * sum(counts)).reshape(-1, batch, sum(counts))
    return Taus(*torch.split(drawn, list(counts), dim=-1))


def _without_gradient(forward: Forward, obs: Tensor, tau: Tensor | None) -> Tensor:
    with torch.no_grad():
        return forward(obs, tau)


def _select_action_quantiles(quantiles: Tensor, action: Tensor) -> Tensor:
    """One action's quantiles. Shapes: quantiles [..., N, A], action [...] -> [..., N]."""
    index = action[..., None, None].expand(*quantiles.shape[:-1], 1)
    return quantiles.gather(-1, index).squeeze(-1)
