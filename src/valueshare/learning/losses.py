"""Temporal-difference errors and losses, as pure functions over any leading axes.

Names are those of rlax: `q_tm1` are the values of the state at t-1, in which action `a_tm1` gave
reward `r_t`, discount `discount_t` (0 where the episode terminated) and values `q_t`. The same
function serves [B] and [P, B]. Targets carry no gradient. Nothing here reduces over B or P.
"""

import torch
from torch import Tensor

from valueshare.errors import InvalidInput


def q_learning_error(q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, q_t: Tensor) -> Tensor:
    """The error of Q-learning, r + γ·max_a q_t(a) - q_tm1(a_tm1).

    DQN: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
    Shapes: q_tm1, q_t [..., A], the others [...] -> [...].
    """
    _assert_ranks(q_tm1, q_t, one_axis_less=(a_tm1, r_t, discount_t))
    target = r_t + discount_t * q_t.amax(-1)
    return target.detach() - select_action_values(q_tm1, a_tm1)


def double_q_learning_error(
    q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, q_t_value: Tensor, q_t_selector: Tensor
) -> Tensor:
    """The error of Double Q-learning: the selector picks the next action, the value rates it.

    r + γ·q_t_value(argmax_a q_t_selector(a)) - q_tm1(a_tm1).
    Van Hasselt et al. 2016, "Deep Reinforcement Learning with Double Q-learning".
    Shapes: q_tm1, q_t_value, q_t_selector [..., A], the others [...] -> [...].
    """
    _assert_ranks(q_tm1, q_t_value, q_t_selector, one_axis_less=(a_tm1, r_t, discount_t))
    target = r_t + discount_t * select_action_values(q_t_value, q_t_selector.argmax(-1))
    return target.detach() - select_action_values(q_tm1, a_tm1)


def half_squared(error: Tensor) -> Tensor:
    """e²/2, whose derivative is the error itself."""
    return 0.5 * error.square()


def huber(error: Tensor, delta: float = 1.0) -> Tensor:
    """e²/2 where |e| <= delta, delta·(|e| - delta/2) beyond; its derivative is e clipped to ±delta."""
    size = error.abs()
    inside = size.clamp(max=delta)
    return inside * (size - 0.5 * inside)


def quantile_huber_loss(quantiles: Tensor, tau: Tensor, targets: Tensor, kappa: float = 1.0) -> Tensor:
    """The loss of implicit quantile networks: quantile regression with a Huber-smoothed error.

    With e_ij = target_j - quantile_i,  sum_i mean_j |tau_i - [e_ij < 0]|·huber(e_ij, kappa)/kappa:
    a *sum* over the N quantiles of the network and a *mean* over the N' samples of the target. Dabney et al. 2018,
    "Implicit Quantile Networks for Distributional Reinforcement Learning", Equation 3.
    Shapes: quantiles, tau [..., N], targets [..., N'] -> [...].
    """
    if not kappa > 0:
        raise InvalidInput(f"kappa = {kappa}: the width of the quadratic part is a number > 0")
    _assert_ranks(quantiles, tau, targets)
    error = targets.detach().unsqueeze(-2) - quantiles.unsqueeze(-1)  # [..., N, N']
    weight = (tau.unsqueeze(-1) - (error < 0).to(error.dtype)).abs()
    return (weight * huber(error, kappa) / kappa).mean(-1).sum(-1)


def baseline_residual_penalty(u: Tensor) -> Tensor:
    """RDQ's penalty |u|²/2 = (b² + sum_a z_a²)/2 of the vector u = (z_1, ..., z_n, b).

    Shapes: u [..., A+1] -> [...].
    """
    return 0.5 * u.square().sum(-1)


def select_action_values(q: Tensor, action: Tensor) -> Tensor:
    """The value of one action per state. Shapes: q [..., A], action [...] -> [...]."""
    _assert_ranks(q, one_axis_less=(action,))
    return torch.gather(q, -1, action.unsqueeze(-1)).squeeze(-1)


def _assert_ranks(*tensors: Tensor, one_axis_less: tuple[Tensor, ...] = ()) -> None:
    """Check for equal ranks, and one axis less for `one_axis_less`: broadcasting would hide a mistake."""
    rank = tensors[0].ndim
    assert all(t.ndim == rank for t in tensors), [t.shape for t in tensors]
    assert all(t.ndim == rank - 1 for t in one_axis_less), [t.shape for t in (*tensors, *one_axis_less)]
