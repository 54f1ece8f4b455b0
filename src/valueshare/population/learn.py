"""One update of every agent, and what is measured of their values on the way.

All of it works in place on tensors and never waits for the host, so that it can be compiled and
captured. The loss is reduced over the minibatch in one place and summed over agents: agents share
no parameter, so the gradient of the sum is each agent's own gradient.
"""

import torch
from torch import Tensor
from torch.func import grad

from valueshare.expansion import contract
from valueshare.learning.algorithms import Batch, Hyper, Taus, draw_taus
from valueshare.learning.optim import OPTIMIZERS
from valueshare.learning.randomness import integers
from valueshare.population.act import acting_taus
from valueshare.population.state import Population, State, Tensors, Weights, forward
from valueshare.replay import transitions


def learn(population: Population, state: State) -> None:
    """Sample, differentiate, update.

    An agent whose loss or squared gradient is not finite is frozen there and then: its weights,
    moments and counts stay as they are for the rest of the run, and `diverged_at` says since when.
    """
    keys, settings = population.keys, population.settings
    batch = sample(state, keys.replay, settings.minibatch)
    samples = population.algorithm.samples
    taus = draw_taus(keys.quantiles, state.step, settings.minibatch, samples)
    gradients, (losses, values) = gradients_and_losses(population, state, batch, taus)

    learning = state.diverged_at < 0
    squares = [g.square().reshape(len(g), -1).sum(-1) for g in gradients.values()]  # [P] each
    finite = torch.isfinite(losses) & torch.isfinite(torch.stack(squares).sum(0))
    active = learning & finite  # [P]
    state.diverged_at.copy_(torch.where(learning & ~active, state.step, state.diverged_at))
    OPTIMIZERS[settings.optimizer](
        state.online.parameters,
        gradients,
        state.moments,
        population.own.step_size,
        active,
        epsilon=settings.optimizer_epsilon,
        **(
            {"beta1": settings.adam_betas[0], "beta2": settings.adam_betas[1]}
            if settings.optimizer == "adam"
            else {"decay": settings.rmsprop_decay}
        ),
    )
    slot = (state.updates % state.action_values.shape[1]).unsqueeze(0)
    state.action_values.index_copy_(1, slot, values.unsqueeze(-1))
    state.updates.add_(1)


def gradients_and_losses(
    population: Population, state: State, batch: Batch, taus: Taus | None
) -> tuple[Tensors, tuple[Tensor, Tensor]]:
    """Each agent's gradient, its loss [P], and the mean action-value of its minibatch [P]."""
    algorithm, settings, network = population.algorithm, population.settings, population.network
    hyper = Hyper(beta=population.own.beta, error=settings.loss)
    buffers = state.online.buffers

    def objective(parameters: Tensors) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs_tm1: list[Tensor] = []

        def online(obs: Tensor, tau: Tensor | None) -> Tensor:
            outputs = forward(network, Weights(parameters, buffers), obs, tau)
            if obs is batch.obs_tm1:
                outputs_tm1.append(outputs)
            return outputs

        def target(obs: Tensor, tau: Tensor | None) -> Tensor:
            return forward(network, Weights(state.target, buffers), obs, tau)

        loss = algorithm.loss(online, target, batch, hyper, taus)  # [P, B]
        losses = loss.mean(-1) if settings.reduction == "mean" else loss.sum(-1)  # [P]
        values = algorithm.q_values(outputs_tm1[0]).mean((-2, -1))  # [P]
        return losses.sum(), (losses.detach(), values.detach())

    gradients, aux = grad(objective, has_aux=True)(state.online.parameters)
    return gradients, aux


def copy_to_target(state: State) -> None:
    """The hard copy of the weights into the target network."""
    for name, value in state.online.parameters.items():
        state.target[name].copy_(value)


@torch.no_grad()
def measure(population: Population, state: State) -> None:
    """Action gap, means and norms of q and of z = M_k^-1 q, on a fresh minibatch of each agent.

    Means over the minibatch's states, added to the sums since the last evaluation.
    """
    keys, minibatch = population.keys, population.settings.minibatch
    batch = sample(state, keys.measure, minibatch)
    samples = population.algorithm.samples
    tau = acting_taus(keys.measure_quantiles, state.step, minibatch, samples)
    q = population.q_values(state.online, batch.obs_tm1, tau)  # [P, B, A]
    z = contract(q, population.own.k.unsqueeze(-1))
    best = q.topk(min(2, q.shape[-1]), dim=-1).values
    per_state = (
        best[..., 0] - best[..., -1],
        q.mean(-1),
        torch.linalg.vector_norm(q, dim=-1),
        z.mean(-1),
        torch.linalg.vector_norm(z, dim=-1),
    )
    state.measured.add_(torch.stack([value.mean(-1) for value in per_state], -1))
    state.measurements.add_(1)


def sample(state: State, keys: Tensor, minibatch: int) -> Batch:
    """Transitions of each agent, uniform over those that are live, with replacement."""
    live = transitions.live(state.replay)
    return transitions.gather(state.replay, integers(keys, state.step, minibatch, live))
