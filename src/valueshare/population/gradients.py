"""The gradient of an algorithm's loss, of every agent at once."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from valueshare.learning.algorithms import Algorithm, Forward, LossSettings, Taus
from valueshare.population.compilation import TracedWhole
from valueshare.population.networks import PopulationForward, Tensors, Weights, network_inputs
from valueshare.replay.transitions import Batch

_Tensors = tuple[Tensor, ...]


class Gradients(NamedTuple):
    """The gradient of each agent's loss, and what was computed with it."""

    parameters: Tensors  # [P, ...] by name
    losses: Tensor  # [P]
    q_mean: Tensor  # [P]  mean action-value of the batch


class LossGradient:
    """Each agent's gradient of its own loss on a batch.

    The loss is reduced over the batch, and summed over agents: agents share no parameter, so the gradient of the sum
    is each agent's own gradient.
    """

    def __init__(self, forward: PopulationForward, algorithm: Algorithm) -> None:
        self._forward, self._algorithm = forward, algorithm
        self._traced = TracedWhole(self._compute)

    def __call__(
        self,
        online: Weights,
        target: Tensors,
        batch: Batch,
        taus: Taus | None,
        settings: LossSettings,
        reduction: str,
    ) -> Gradients:
        parameters, buffers = online
        tensors = parameters, buffers, target, tuple(batch), () if taus is None else tuple(taus)
        return Gradients(*self._traced(*tensors, tuple(settings), reduction, torch.compiler.is_compiling()))

    def _compute(
        self,
        parameters: Tensors,
        buffers: Tensors,
        target: Tensors,
        batch: _Tensors,
        taus: _Tensors,
        settings: tuple[Any, ...],
        reduction: str,
        compiling: bool,
    ) -> tuple[Tensors, Tensor, Tensor]:
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}

        def forward(weights: Tensors) -> Forward:
            return lambda obs, tau: self._forward.outputs(weights, buffers, network_inputs(obs, tau), compiling)

        algorithm, quantiles = self._algorithm, Taus(*taus) if taus else None
        with torch.enable_grad():
            loss, outputs_tm1 = algorithm.loss(
                forward(leaves), forward(target), Batch(*batch), LossSettings(*settings), quantiles
            )
            losses = loss.mean(-1) if reduction == "mean" else loss.sum(-1)  # [P]
            computed = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        q_mean = algorithm.q_values(outputs_tm1.detach()).mean((-2, -1))
        return dict(zip(leaves, computed, strict=True)), losses.detach(), q_mean
