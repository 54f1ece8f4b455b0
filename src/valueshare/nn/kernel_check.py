"""A check of the GPU kernels, on this GPU and with the shapes of a network.

The kernels were made and measured on one kind of GPU. On another they may not fit, or be compiled by another Triton. So
each of their results in a forward and a backward pass is compared with plain PyTorch before they are used.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from valueshare.nn import operators, plain_operators
from valueshare.nn.stacking import StackedNetwork

TOLERANCE = 0.02  # of the norm; with TensorFloat-32 it is about 0.001
# The kernel computes the sign of each number before the ReLU again: with TensorFloat-32 some are others.
RELU_TOLERANCE = 0.1


class KernelMismatch(Exception):
    """A kernel and plain PyTorch differ."""


def check_kernels(
    network: StackedNetwork,
    parameters: dict[str, Tensor],
    buffers: dict[str, Tensor],
    inputs: tuple[Tensor, ...],
    kernels: object = torch.ops.valueshare,
    *,
    differentiate: bool = True,
) -> None:
    """Run a network and its gradient; raise `KernelMismatch`, or the error of a kernel that cannot be run."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    with torch.set_grad_enabled(differentiate), operators.replaced_by(_ComparedOperators(kernels)):
        outputs = network(leaves, buffers, *inputs)
        if differentiate:
            torch.autograd.grad(outputs.square().sum(), list(leaves.values()), allow_unused=True)


class _ComparedOperators:
    """The operators, each of whose results is compared as it is computed."""

    def __init__(self, kernels: object) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Callable[..., Any]:
        plain = getattr(plain_operators, name)

        def call(*args: Any) -> Any:
            found = getattr(self._kernels, name)(*args)
            precision = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
            try:
                with torch.backends.cudnn.flags(allow_tf32=False):
                    expected = plain(*args)
            finally:
                torch.set_float32_matmul_precision(precision)
            tolerance = RELU_TOLERANCE if name == "quantile_features_gradient" else TOLERANCE
            several = isinstance(found, tuple)
            for a, b in zip(found if several else [found], expected if several else [expected], strict=True):
                _compare(name, a, b, tolerance)
            return found

        return call


def _compare(name: str, found: Tensor, expected: Tensor, tolerance: float) -> None:
    if found.shape != expected.shape:  # parts, whose sum is the result
        found, expected = found.sum(1), expected.sum(1)
    error = float((found - expected).norm() / expected.norm().clamp(min=1e-30))
    if not error <= tolerance:  # NaN too
        raise KernelMismatch(f"{name} differs from plain PyTorch by {error:.2g} of its norm")
