"""The gradient of an algorithm's loss, of every agent at once."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad

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
    is each agent's own gradient. The compiler traces it whole, unless the network may be a user's: such a network may
    hold tensors that are neither parameters nor buffers, and Inductor fails on those of functions that are traced
    whole. It is then interpreted with `torch.func.grad`.
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
        if torch.compiler.is_compiling() and self._forward.stacked is None:

            def objective(leaves: Tensors) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                losses, outputs_tm1 = self._losses(leaves, buffers, target, batch, taus, settings, reduction, True)
                return losses.sum(), (losses.detach(), self._mean_value(outputs_tm1))

            gradients, aux = grad(objective, has_aux=True)(parameters)
            return Gradients(gradients, *aux)
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
        quantiles = Taus(*taus) if taus else None
        with torch.enable_grad():
            losses, outputs_tm1 = self._losses(
                leaves, buffers, target, Batch(*batch), quantiles, LossSettings(*settings), reduction, compiling
            )
            computed = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, computed, strict=True)), losses.detach(), self._mean_value(outputs_tm1)

    def _losses(
        self,
        parameters: Tensors,
        buffers: Tensors,
        target: Tensors,
        batch: Batch,
        taus: Taus | None,
        settings: LossSettings,
        reduction: str,
        compiling: bool,
    ) -> tuple[Tensor, Tensor]:
        """Each agent's loss [P], and the online network's outputs."""

        def forward(weights: Tensors) -> Forward:
            return lambda obs, tau: self._forward.outputs(weights, buffers, network_inputs(obs, tau), compiling)

        loss, outputs_tm1 = self._algorithm.loss(forward(parameters), forward(target), batch, settings, taus)
        return loss.mean(-1) if reduction == "mean" else loss.sum(-1), outputs_tm1

    def _mean_value(self, outputs: Tensor) -> Tensor:
        return self._algorithm.q_values(outputs.detach()).mean((-2, -1))
