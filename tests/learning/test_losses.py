"""Losses against hand arithmetic, naive loops in NumPy, and their derivatives."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.learning.losses import (
    baseline_residual_penalty,
    double_q_learning_error,
    half_squared,
    huber,
    q_learning_error,
    quantile_huber_loss,
)

Array = NDArray[Any]


def test_q_learning_error_by_hand() -> None:
    q_tm1 = torch.tensor([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
    q_t = torch.tensor([[0.0, 5.0, 3.0], [9.0, 9.0, 9.0]])
    error = q_learning_error(
        q_tm1,
        torch.tensor([2, 1]),
        torch.tensor([1.0, -1.0]),
        torch.tensor([0.5, 0.0]),  # the second one terminates: its q_t does not count
        q_t,
    )
    # 1 + 0.5·5 - 0 = 3.5;  -1 + 0·9 - 2 = -3
    assert error.tolist() == [3.5, -3.0]


def test_double_q_learning_error_by_hand() -> None:
    error = double_q_learning_error(
        torch.tensor([1.0, 2.0]),
        torch.tensor(0),
        torch.tensor(1.0),
        torch.tensor(0.5),
        q_t_value=torch.tensor([4.0, 100.0]),
        q_t_selector=torch.tensor([3.0, 2.0]),
    )
    # the selector takes action 0, which is worth 4: 1 + 0.5·4 - 1 = 2
    assert error.item() == 2.0


def naive_error(q1: Array, a: Array, r: Array, d: Array, value: Array, selector: Array) -> Array:
    error = np.empty(a.shape)
    for index in np.ndindex(a.shape):
        best = 0
        for action in range(q1.shape[-1]):
            if selector[index][action] > selector[index][best]:
                best = action
        error[index] = r[index] + d[index] * value[index][best] - q1[index][a[index]]
    return error


@pytest.mark.parametrize("leading", [(), (7,), (3, 7), (2, 3, 4)])
def test_errors_against_loops_over_any_leading_axes(leading: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(leading))
    q1, q2, q3 = (rng.normal(size=(*leading, 5)) for _ in range(3))
    a = rng.integers(0, 5, size=leading)
    r, d = rng.normal(size=leading), rng.uniform(size=leading)
    t = [torch.tensor(x) for x in (q1, a, r, d, q2, q3)]
    expected = naive_error(q1, np.asarray(a), np.asarray(r), np.asarray(d), q2, q2)
    np.testing.assert_allclose(q_learning_error(*t[:5]).numpy(), expected, atol=1e-12)
    expected = naive_error(q1, np.asarray(a), np.asarray(r), np.asarray(d), q2, q3)
    np.testing.assert_allclose(double_q_learning_error(*t).numpy(), expected, atol=1e-12)


def test_targets_carry_no_gradient() -> None:
    q1, q2, q3 = (torch.randn(4, 3, requires_grad=True) for _ in range(3))
    a, r, d = torch.tensor([0, 1, 2, 0]), torch.ones(4), torch.full((4,), 0.9)
    for error in (
        q_learning_error(q1, a, r, d, q2),
        double_q_learning_error(q1, a, r, d, q2, q3),
    ):
        gradients = torch.autograd.grad(error.sum(), [q1, q2, q3], allow_unused=True)
        # only the chosen actions, each with d(error)/dq = -1
        expected = -torch.nn.functional.one_hot(a, 3).float()
        assert gradients[0] is not None
        assert torch.equal(gradients[0], expected)
        assert gradients[1] is None
        assert gradients[2] is None


def test_half_squared_and_huber_by_hand() -> None:
    error = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
    assert half_squared(error).tolist() == [4.5, 0.5, 0.125, 0.0, 0.125, 0.5, 4.5]
    assert huber(error).tolist() == [2.5, 0.5, 0.125, 0.0, 0.125, 0.5, 2.5]
    assert huber(error, 2.0).tolist() == [4.0, 0.5, 0.125, 0.0, 0.125, 0.5, 4.0]


def test_derivatives_are_the_error_and_the_error_clipped() -> None:
    error = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], requires_grad=True)
    (slope,) = torch.autograd.grad(half_squared(error).sum(), error)
    assert torch.equal(slope, error)
    (slope,) = torch.autograd.grad(huber(error).sum(), error)
    assert torch.allclose(slope, error.clamp(-1, 1))


def naive_quantile_loss(theta: Array, tau: Array, target: Array, kappa: float) -> float:
    total = 0.0
    for i in range(len(theta)):
        for j in range(len(target)):
            e = target[j] - theta[i]
            h = 0.5 * e * e if abs(e) <= kappa else kappa * (abs(e) - 0.5 * kappa)
            total += abs(tau[i] - (1.0 if e < 0 else 0.0)) * h / kappa / len(target)
    return total


def test_quantile_loss_by_hand() -> None:
    # e = (3-1, 0-1) = (2, -1): huber (1.5, 0.5), weights (0.25, 0.75) -> mean (0.375+0.375)/2
    loss = quantile_huber_loss(torch.tensor([1.0]), torch.tensor([0.25]), torch.tensor([3.0, 0.0]), 1.0)
    assert loss.item() == 0.375


@pytest.mark.parametrize("kappa", [0.5, 1.0, 3.0])
def test_quantile_loss_against_loops(kappa: float) -> None:
    rng = np.random.default_rng(7)
    theta, tau = rng.normal(size=(2, 3, 6)), rng.uniform(size=(2, 3, 6))
    target = 2 * rng.normal(size=(2, 3, 4))  # N' != N
    loss = quantile_huber_loss(torch.tensor(theta), torch.tensor(tau), torch.tensor(target), kappa)
    assert loss.shape == (2, 3)
    for index in np.ndindex(2, 3):
        expected = naive_quantile_loss(theta[index], tau[index], target[index], kappa)
        assert loss[index].item() == pytest.approx(expected, rel=1e-12)


def test_the_minimum_of_the_quantile_loss_is_the_quantile() -> None:
    """With a narrow quadratic part, the best constant for tau = 0.8 of 0..100 is 80."""
    targets = torch.arange(101.0).double()
    candidates = torch.arange(0.0, 100.5, 0.5).double().unsqueeze(-1)  # [201, 1]
    tau = torch.full_like(candidates, 0.8)
    loss = quantile_huber_loss(candidates, tau, targets.expand(201, 101), kappa=1e-3)
    assert candidates[loss.argmin()].item() == 80.0


def test_quantile_targets_carry_no_gradient_and_kappa_is_positive() -> None:
    theta, targets = (torch.randn(5, requires_grad=True) for _ in range(2))
    loss = quantile_huber_loss(theta, torch.rand(5), targets)
    slopes = torch.autograd.grad(loss, [theta, targets], allow_unused=True)
    assert slopes[0] is not None
    assert slopes[1] is None
    with pytest.raises(InvalidInput, match="kappa = 0"):
        quantile_huber_loss(theta, torch.rand(5), targets, 0.0)


def test_penalty_is_half_the_squared_norm() -> None:
    u = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, -2.0]], requires_grad=True)
    penalty = baseline_residual_penalty(u)
    assert penalty.tolist() == [7.0, 2.0]  # (1+4+9)/2, 4/2
    (slope,) = torch.autograd.grad(penalty.sum(), u)
    assert torch.equal(slope, u)


@pytest.mark.parametrize("loss", [half_squared, huber, baseline_residual_penalty])
def test_losses_are_never_negative(loss: Any) -> None:
    x: Tensor = torch.linspace(-5, 5, 101)
    assert (loss(x) >= 0).all()
