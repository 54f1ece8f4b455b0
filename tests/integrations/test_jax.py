"""The transform in modules of Flax and Equinox: jit, grad and vmap against the closed form.

Legend: B batch, n actions. q = M z with M = I + (k/n) J, so the gradient of q_a in the last bias is row a of M.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import valueshare

N, K = 3, 1.5
M = np.eye(N) + K / N * np.ones((N, N))


class Case(NamedTuple):
    """A network: q(params, x), z(params, x) without the transform, and the last bias in a gradient."""

    params: Any
    q: Callable[[Any, Any], Any]
    z: Callable[[Any, Any], Any]
    bias: Callable[[Any], Any]


class Linen(linen.Module):
    expands: bool = True

    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.relu(linen.Dense(8)(x))
        z = linen.Dense(N)(x)
        return valueshare.expand(z, K) if self.expands else z


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.torso, self.head = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, N, rngs=rngs)

    def __call__(self, x: Any, expands: bool = True) -> Any:
        z = self.head(nnx.relu(self.torso(x)))
        return valueshare.expand(z, K) if expands else z


class Equinox(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, x: Any) -> Any:
        return valueshare.expand(self.mlp(x), K)


def linen_case() -> Case:
    network, plain = Linen(), Linen(expands=False)
    params = network.init(jax.random.key(0), jnp.zeros(4))
    return Case(params, network.apply, plain.apply, lambda grads: grads["params"]["Dense_1"]["bias"])


def nnx_case() -> Case:
    graph, params = nnx.split(Nnx(nnx.Rngs(0)))
    return Case(
        params,
        lambda params, x: nnx.merge(graph, params)(x),
        lambda params, x: nnx.merge(graph, params)(x, expands=False),
        lambda grads: grads["head"]["bias"].get_value(),
    )


def equinox_case() -> Case:
    network = Equinox(eqx.nn.MLP(4, N, width_size=8, depth=1, key=jax.random.key(0)))
    params, static = eqx.partition(network, eqx.is_array)
    return Case(
        params,
        lambda params, x: eqx.combine(params, static)(x),
        lambda params, x: eqx.combine(params, static).mlp(x),
        lambda grads: grads.mlp.layers[-1].bias,
    )


@pytest.mark.parametrize("make", [linen_case, nnx_case, equinox_case])
def test_jit_grad_and_vmap(make: Callable[[], Case]) -> None:
    case = make()
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)  # [B, features]
    z = np.stack([case.z(case.params, row) for row in x])  # [B, n]
    batched = jax.jit(jax.vmap(case.q, in_axes=(None, 0)))
    np.testing.assert_allclose(case.q(case.params, x[0]), M @ z[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batched(case.params, x), z @ M, rtol=1e-5, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda params, action: case.q(params, x[0])[action]))  # compiled once
    for action in range(N):
        np.testing.assert_allclose(case.bias(gradient(case.params, action)), M[action], rtol=1e-6)


def test_one_k_per_network() -> None:
    """Under vmap over agents, k may be an array."""
    z = np.random.default_rng(0).normal(size=(4, 6, N)).astype(np.float32)  # [P, B, n]
    ks = np.array([0.0, 1.0, 3.0, 10.0], np.float32)
    q = jax.jit(jax.vmap(valueshare.expand))(z, ks)
    for agent, k in enumerate(ks):
        np.testing.assert_allclose(q[agent], z[agent] @ (np.eye(N) + k / N * np.ones((N, N))), rtol=1e-5, atol=1e-5)
