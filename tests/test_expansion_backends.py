"""The transform on NumPy, PyTorch and JAX: the same numbers, in kind, differentiable, compilable.

Legend: P agents, B batch, n actions.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import valueshare as vs

LIBRARIES = ["numpy", "torch", "jax"]
EPS = {"float32": 2**-23, "float64": 2**-52, "bfloat16": 2**-7}
NUMPY_DTYPE = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16}
Reference = npt.NDArray[np.float64]

# Every function of action-values, as one of q and k (of q and b for the baseline-residual vector).
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "expand": vs.expand,
    "contract": vs.contract,
    "implicit_baseline": vs.implicit_baseline,
    "baseline_residual": vs.baseline_residual,
    "norm_minimizing_baseline": lambda q, k: vs.norm_minimizing_baseline(q),
    "norm_reducing_low": lambda q, k: vs.norm_reducing_interval(q)[0],
    "norm_reducing_high": lambda q, k: vs.norm_reducing_interval(q)[1],
}
# The paper's own words for one row of q and one k, in float64: b = k/(k+1)·mean(q), z = q - b.
BY_HAND: dict[str, Callable[[Reference, float], Any]] = {
    "expand": lambda row, k: row + k * row.mean(),
    "contract": lambda row, k: row - k / (k + 1) * row.mean(),
    "implicit_baseline": lambda row, k: row.sum() / (len(row) + len(row) / k) if k else 0.0,
    "baseline_residual": lambda row, b: [*(row - b), b],
    "norm_minimizing_baseline": lambda row, k: row.sum() / (len(row) + 1),
    "norm_reducing_low": lambda row, k: min(0.0, 2 * row.sum() / (len(row) + 1)),
    "norm_reducing_high": lambda row, k: max(0.0, 2 * row.sum() / (len(row) + 1)),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)
every_library = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture(scope="module", autouse=True)
def _float64_in_jax() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def array(library: str, x: Any, dtype: str = "float64") -> Any:
    if library == "torch":
        return torch.tensor(np.asarray(x, np.float64), dtype=getattr(torch, dtype))
    rounded = np.asarray(x, np.float64).astype(NUMPY_DTYPE[dtype])
    return jnp.asarray(rounded) if library == "jax" else rounded


def numbers(x: Any) -> Reference:
    return np.asarray(x.double() if isinstance(x, torch.Tensor) else x).astype(np.float64)


@every_library
@every_function
@settings(deadline=None, max_examples=12)
@given(
    dtype=st.sampled_from(list(EPS)),
    n=st.sampled_from([1, 2, 18, 1000]),  # few shapes, because JAX compiles for each
    k=st.sampled_from([[0.0, 1.0], [18.0, 0.5], [1000.0, 32_768.0]]),
    seed=st.integers(0, 2**32),
)
def test_the_same_numbers_in_kind(library: str, name: str, dtype: str, n: int, k: list[float], seed: int) -> None:
    """Entry errors stay within (4 eps + n eps_sum) (k+1) max|q|, for sums of n made in float32
    or better: eps_sum is float32's, or float64's. (Derived in test_expansion.py.) The entries
    q - b of a baseline-residual vector are as large as b as well, and rounded like it."""
    draws = np.random.default_rng(seed).normal(1, 2, (2, n))
    q = array(library, draws, dtype)
    ks = array(library, k, dtype)
    answer = FUNCTIONS[name](q, ks)
    assert type(answer) is type(q)
    assert answer.dtype == q.dtype
    exact_k = numbers(ks)
    expected = np.stack([BY_HAND[name](*row) for row in zip(numbers(q), exact_k, strict=True)])
    assert answer.shape == expected.shape
    size = (exact_k.max() + 1) * np.abs(numbers(q)).max() + (exact_k.max() if name == "baseline_residual" else 0)
    atol = (4 * EPS[dtype] + n * min(EPS[dtype], 2**-23)) * size
    np.testing.assert_allclose(numbers(answer), expected, rtol=0, atol=atol)


@every_library
@every_function
def test_k_broadcasts_over_batch_axes(library: str, name: str) -> None:
    z = array(library, np.random.default_rng(0).normal(1, 2, (3, 4, 5)))  # [P, B, n]
    ks = [0.0, 2.0, 18.0]
    alone = [FUNCTIONS[name](z[p], k) for p, k in enumerate(ks)]
    column: list[Any] = [[k] for k in ks]  # k [P, 1]
    for k in (column, np.array(column), array(library, column)):
        together = FUNCTIONS[name](z, k)
        assert type(together) is type(z)
        np.testing.assert_allclose(numbers(together), np.stack([numbers(x) for x in alone]))


@every_library
@pytest.mark.parametrize("name", ["expand", "contract", "implicit_baseline"])
@pytest.mark.parametrize("k", ["n", "N"])
def test_n_is_the_number_of_actions(library: str, name: str, k: str) -> None:
    q = np.random.default_rng(0).normal(size=(2, 3, 5))
    found = FUNCTIONS[name](array(library, q), k)
    assert type(found) is type(array(library, q))
    expected = [[BY_HAND[name](row, 5.0) for row in rows] for rows in q]
    np.testing.assert_allclose(numbers(found), expected, rtol=1e-12)
    if library == "jax":
        np.testing.assert_allclose(jax.jit(lambda q: FUNCTIONS[name](q, k))(q), expected, rtol=1e-12)
    if library == "torch":
        compiled = torch.compile(lambda q: FUNCTIONS[name](q, k), fullgraph=True, backend="eager", dynamic=True)
        torch.testing.assert_close(compiled(torch.tensor(q)), found)


def test_the_matrix_of_n() -> None:
    assert vs.matrix(2, "n").tolist() == [[2, 1], [1, 2]]


@every_library
def test_matrix_in_kind(library: str) -> None:
    k = array(library, [1.0, 3.0], "float32")
    m = vs.matrix(3, k)  # [2, 3, 3]
    assert type(m) is type(k)
    assert m.dtype == k.dtype
    thirds = np.eye(3) + np.float32(1 / 3)
    np.testing.assert_allclose(numbers(m), [thirds, np.eye(3) + 1], rtol=2**-22)


@every_library
def test_functions_of_k_in_kind(library: str) -> None:
    k = array(library, [0.0, 1.0, 3.0], "float32")
    for of_k, expected in [
        (vs.condition_number, [1, 2, 4]),
        (vs.baseline_fraction, [0, 0.5, 0.75]),
        (lambda x: vs.k_for_baseline_fraction(vs.baseline_fraction(x)), [0, 1, 3]),
    ]:
        answer: Any = of_k(k)
        assert type(answer) is type(k)
        assert answer.dtype == k.dtype
        np.testing.assert_array_equal(numbers(answer), expected)


@every_function
@pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_tensors_stay_on_their_device(name: str, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert FUNCTIONS[name](torch.ones(2, 3, device=device), 2.0).device.type == device


@every_library
def test_whole_numbers_become_floats(library: str) -> None:
    make: dict[str, Callable[[Any], Any]] = {
        "numpy": np.array,
        "torch": torch.tensor,
        "jax": jnp.array,
    }
    z = make[library]([3, 1])  # mean 2; k = 1/2 adds 1
    assert numbers(vs.expand(z, 0.5)).tolist() == [4, 2]
    assert numbers(vs.contract(make[library]([4, 2]), 0.5)).tolist() == [3, 1]
    assert numbers(vs.baseline_residual(z, 0.5)).tolist() == [2.5, 0.5, 0.5]
    assert numbers(vs.norm_minimizing_baseline(z)).item() == pytest.approx(4 / 3)


def test_small_whole_k_does_not_wrap_around() -> None:
    assert vs.expand([1.0, 1.0], np.uint8(255)).tolist() == [256, 256]
    assert vs.condition_number(np.array([127], np.int8)) == 128


# Gradients: the transform is linear and symmetric, so the gradient of g·(M_k z) is M_k g.


@pytest.mark.parametrize("name", ["expand", "contract", "implicit_baseline", "baseline_residual"])
def test_torch_gradients(name: str) -> None:
    z = torch.tensor([[3.0, 1.0, -2.0], [0.5, 4.0, 7.0]], dtype=torch.float64, requires_grad=True)
    k = torch.tensor([0.5, 4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(FUNCTIONS[name], (z, k))
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], (z, k))


@pytest.mark.parametrize("k", [0.0, 2.0, 32_768.0])
def test_gradients_are_the_transposed_matrix(k: float) -> None:
    rng = np.random.default_rng(1)
    z, g = rng.normal(size=18), rng.normal(size=18)
    m = np.eye(18) + k / 18
    # dz of g·expand(z) = M_k^T g, and dq of g·contract(q) = M_k^-T g
    for f, expected in [(vs.expand, m.T @ g), (vs.contract, np.linalg.solve(m.T, g))]:
        leaf = torch.tensor(z, requires_grad=True)
        (by_torch,) = torch.autograd.grad((f(leaf, k) * torch.tensor(g)).sum(), leaf)
        by_jax = jax.grad(lambda x, f=f: (f(x, k) * g).sum())(jnp.asarray(z))
        atol = 1e-13 * (k + 1)
        np.testing.assert_allclose(by_torch.numpy(), expected, rtol=0, atol=atol)
        np.testing.assert_allclose(by_jax, expected, rtol=0, atol=atol)


def test_jax_gradient_in_k() -> None:
    # d/dk of sum(expand(z, k)) = n·mean(z) = sum(z)
    z = jnp.array([3.0, 1.0, 5.0])
    assert jax.grad(lambda k: vs.expand(z, k).sum())(2.0) == pytest.approx(9)


# Transformations of whole functions.


@every_function
def test_jax_jit_and_vmap(name: str) -> None:
    q = jnp.asarray(np.random.default_rng(2).normal(1, 2, (3, 4)))
    k = jnp.array([0.0, 2.0, 18.0])
    expected = numbers(FUNCTIONS[name](q, k))
    np.testing.assert_allclose(jax.jit(FUNCTIONS[name])(q, k), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(FUNCTIONS[name])(q, k), expected, rtol=1e-12)
    constant = jax.jit(lambda q: FUNCTIONS[name](q, 2.0))(q)  # k a Python number inside the trace
    np.testing.assert_allclose(constant[1], expected[1], rtol=1e-12)


@every_function
def test_torch_vmap(name: str) -> None:
    q = torch.from_numpy(np.random.default_rng(2).normal(1, 2, (3, 4)))
    k = torch.tensor([0.0, 2.0, 18.0])
    mapped = torch.func.vmap(FUNCTIONS[name])(q, k)
    torch.testing.assert_close(mapped, FUNCTIONS[name](q, k))


@every_function
def test_torch_compiles_without_a_graph_break(name: str) -> None:
    q = torch.from_numpy(np.random.default_rng(2).normal(1, 2, (3, 4)))
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, backend="aot_eager")
    ks: list[Any] = [torch.tensor([0.0, 2.0, 18.0]), 2.0]
    if name in ("expand", "implicit_baseline"):  # another value and another type recompile
        ks += [3.0, 4, 5]
    for k in ks:
        torch.testing.assert_close(compiled(q, k), FUNCTIONS[name](q, k))


# What is refused.


@pytest.mark.parametrize("f", [vs.expand, vs.contract, vs.implicit_baseline])
@pytest.mark.parametrize("bad", [-1, -0.5, float("nan"), float("inf"), float("-inf")])
def test_k_outside_its_range_is_refused(f: Callable[[Any, Any], Any], bad: float) -> None:
    q = np.ones((2, 3))
    for k in (bad, [1.0, bad], (bad, 1.0), np.array([1.0, bad]), np.float32(bad), np.float64(bad)):
        with pytest.raises(ValueError, match=rf"^`k = {bad}.*`: .* a finite number >= 0"):
            f(q, k)
    for of_k in (vs.condition_number, vs.baseline_fraction, lambda k: vs.matrix(3, k)):
        with pytest.raises(ValueError, match=rf"^`k = {bad}`: .* a finite number >= 0"):
            of_k(bad)


@pytest.mark.parametrize("bad", [-0.1, 1.0, 1, 7.5, float("nan")])
def test_fractions_outside_their_range_are_refused(bad: float) -> None:
    for fraction in (bad, [0.5, bad], np.array([bad])):
        with pytest.raises(vs.InvalidInput, match=rf"^`fraction = {bad:g}`: .* lies in \[0, 1\)"):
            vs.k_for_baseline_fraction(fraction)


@pytest.mark.parametrize("n", [0, -3])
def test_a_matrix_needs_an_action(n: int) -> None:
    with pytest.raises(vs.InvalidInput, match=rf"^`n = {n}`: a state has at least 1 action"):
        vs.matrix(n, 1.0)
