"""One update of every agent, copies into the target network, and measurements of the values.

All of it works in place on tensors and never waits for the host, so that it can be compiled and captured. The loss and
its gradient are in `gradients.py`.
"""

import torch
from torch import Tensor

from valueshare.learning.algorithms import Taus, draw_taus
from valueshare.learning.optim import adam_, rmsprop_
from valueshare.learning.randomness import integers
from valueshare.population.act import acting_taus
from valueshare.population.gradients import Gradients
from valueshare.population.networks import Tensors
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State
from valueshare.replay import transitions
from valueshare.replay.cursor_history import CursorHistory, replay_at
from valueshare.replay.transitions import Batch


def learn(population: Population, state: State, batch: Batch | None = None, step: Tensor | None = None) -> None:
    """One update: sample (unless a `batch` is given, sampled at step `step` []), differentiate, apply.

    An agent whose loss or squared gradient norm is not finite is frozen: its weights, moments and
    counts stay as they are for the rest of the run, and `diverged_at` says since when.
    """
    keys, settings = population.keys, population.settings
    step = state.step if step is None else step
    counter = update_counter(settings, step, state.updates)
    if batch is None:
        batch = sample(state, keys.replay, counter, settings.batch_size)
    taus = draw_taus(keys.quantiles, counter, settings.batch_size, population.quantile_counts)
    gradients, losses, q_mean = gradients_and_losses(population, state, batch, taus)

    not_diverged = state.diverged_at < 0
    # Reduced over the original axes: compiled, flattening a transposed gradient is a slow loop. `unsqueeze` is for
    # parameters with one number per agent. The norms are added one by one: PyTorch 2.11 could not compile the sum of a
    # stack of ten for a GPU.
    norms = [torch.linalg.vector_norm(g.unsqueeze(-1), dim=tuple(range(1, g.ndim + 1))) for g in gradients.values()]
    finite = torch.isfinite(losses) & torch.isfinite(sum((norm.square() for norm in norms), torch.zeros_like(losses)))
    active = not_diverged & finite  # [P]
    state.diverged_at.copy_(torch.where(not_diverged & ~active, step, state.diverged_at))
    parameters, alpha, epsilon = state.online.parameters, step_size(population, step), settings.optimizer_epsilon
    if settings.optimizer == "adam":
        beta1, beta2 = settings.adam_betas
        adam_(parameters, gradients, state.moments, alpha, active, beta1=beta1, beta2=beta2, epsilon=epsilon)
    else:
        decay = settings.rmsprop_decay
        rmsprop_(parameters, gradients, state.moments, alpha, active, decay=decay, epsilon=epsilon)
    slot = (state.updates % state.recent_action_values.shape[1]).unsqueeze(0)
    state.recent_action_values.index_copy_(1, slot, q_mean.unsqueeze(-1))
    state.updates.add_(1)


def update_counter(settings: TrainingSettings, step: Tensor, updates: Tensor) -> Tensor:
    """The RNG counter of an update: t·G + j for the j-th of step t's G updates.

    Updates come in whole multiples of G = `gradient_steps`, so j is their number modulo G. Shapes: [], [] -> [].
    """
    count = settings.gradient_steps
    return step if count == 1 else step * count + updates % count


def step_size(population: Population, step: Tensor) -> Tensor:
    """Each agent's step size at step `step` []. Shapes: [] -> [P]."""
    constant, settings = population.hyperparameters["step_size"], population.settings
    if settings.step_size_schedule == "constant":
        return constant
    return constant * (1 - step.to(constant.dtype) / (settings.step_size_steps or settings.steps)).clamp(min=0)


def gradients_and_losses(population: Population, state: State, batch: Batch, taus: Taus | None) -> Gradients:
    """Each agent's gradient on a batch, its loss, and the mean action-value of the batch."""
    loss_settings, reduction = population.loss_settings, population.settings.reduction
    return population.differentiate(state.online, state.target, batch, taus, loss_settings, reduction)


def update_target(
    population: Population, state: State, history: CursorHistory | None = None, batch: Batch | None = None
) -> None:
    """Copy the online weights into the target network, then record metrics of the values."""
    copy_weights(state.online.parameters, state.target)
    record_value_metrics(population, state, history, batch)


def copy_weights(source: Tensors, target: Tensors) -> None:
    """Overwrite `target` in place; a tensor that is in both is left alone."""
    for name, value in source.items():
        if target[name] is not value:
            target[name].copy_(value)


@torch.no_grad()
def record_value_metrics(
    population: Population, state: State, history: CursorHistory | None = None, batch: Batch | None = None
) -> None:
    """Add action gap, means and norms of q and of the residuals z to the sums since the last evaluation.

    They are means over the states of a fresh batch of each agent, or of the `batch` given.
    """
    keys, batch_size = population.keys, population.settings.batch_size
    if batch is None:
        batch = sample(state, keys.measure, state.step, batch_size, history)
    tau = acting_taus(keys.measure_quantiles, state.step, batch_size, population.quantile_counts)
    outputs = population.forward(state.online, batch.obs_tm1, tau)
    q = population.algorithm.q_values(outputs)  # [P, B, A]
    z = population.algorithm.z_values(outputs, population.hyperparameters["k"].unsqueeze(-1))
    best = q.topk(min(2, q.shape[-1]), dim=-1).values
    per_state = (
        best[..., 0] - best[..., -1],
        q.mean(-1),
        torch.linalg.vector_norm(q, dim=-1),
        z.mean(-1),
        torch.linalg.vector_norm(z, dim=-1),
    )
    state.metric_sums.add_(torch.stack([value.mean(-1) for value in per_state], -1))
    state.metric_count.add_(1)


def sample(state: State, keys: Tensor, counter: Tensor, batch_size: int, history: CursorHistory | None = None) -> Batch:
    """Transitions of each agent, uniform over those in replay, with replacement.

    `counter` [] is the RNG counter. With `history`, they are sampled from what replay held at `state.step`.
    """
    replay = state.replay if history is None else replay_at(history, state.replay, state.step)
    return transitions.gather(replay, integers(keys, counter, batch_size, transitions.size(replay)))
