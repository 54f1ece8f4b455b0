"""The propositions of the paper, as properties, against numpy.linalg and scipy.optimize.

Vectors have up to 1,000 entries and k goes from 0 to 32,768. The strict inequalities need a mean
that is not negligible, so `vectors` builds q around one: a level of size 1 to 100, and deviations
up to 10 times as large that sum to 0.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize

import valueshare as vs

Vector = npt.NDArray[np.float64]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
EPS: dict[np.dtype[Any], float] = {
    np.dtype(np.float32): 2**-23,
    np.dtype(np.float64): 2**-52,
    BFLOAT16: 2**-7,
}

properties = settings(deadline=None, max_examples=50)
sizes = st.sampled_from([1, 2, 3, 4, 18, 57, 256, 999, 1000]) | st.integers(1, 1000)
small_sizes = st.integers(1, 40)
positive_k = st.floats(-6, 15).map(lambda power: min(2.0**power, 32_768.0)) | st.integers(1, 32_768)
any_k = st.just(0) | positive_k


@st.composite
def vectors(draw: st.DrawFn, n: st.SearchStrategy[int] = sizes) -> Vector:
    """q = level + deviations; the deviations have mean 0 and are at most 10 levels large."""
    size = draw(n)
    if size <= 6:
        drawn = np.array(draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size)))
    else:
        drawn = np.random.default_rng(draw(st.integers(0, 2**32))).uniform(-1, 1, size)
    level = draw(st.floats(1, 100)) * draw(st.sampled_from([-1, 1]))
    spread = draw(st.just(0.0) | st.floats(0.001, 5))  # deviations lie within ±2 spreads
    return np.asarray(level * (1 + spread * (drawn - drawn.mean())))


def squared(x: Vector) -> float:
    """|x|², summed without rounding between the terms, for the strict inequalities."""
    return math.fsum(float(entry) ** 2 for entry in x)


def rounding(x: npt.NDArray[Any], k: float) -> float:
    """How far from exact a rounded M_k x may be, in each entry: (4 eps + n eps_sum) (k+1) max|x|.

    q = (k+1) m + (x - m), with |m| and |x_i| at most max|x|. The coefficient, m and their product
    are each rounded by half an eps of (k+1) max|x|, so is the final sum; the difference adds 2 eps
    of max|x|: 4 eps (k+1) max|x| together. A sum of n terms, added in any order, is off by at most
    n eps_sum of their mean size; eps_sum is float32's for bfloat16, whose sums are made there.
    """
    eps = EPS[x.dtype]
    size = float(np.abs(x.astype(np.float64)).max())
    return (4 * eps + len(x) * min(eps, 2**-23)) * (k + 1) * size


# Figure 1, by hand.


def test_the_worked_example_of_figure_1() -> None:
    z, k = np.array([3.0, 1.0]), 2
    # mean(z) = 2; b = k·2 = 4; q = z + 4 = (7, 5); mean(q) = 6 = (k+1)·2
    assert vs.expand(z, k).tolist() == [7.0, 5.0]
    assert vs.contract([7.0, 5.0], k).tolist() == [3.0, 1.0]
    assert vs.implicit_baseline([7.0, 5.0], k) == 4.0
    assert vs.baseline_residual([7.0, 5.0], 4.0).tolist() == [3.0, 1.0, 4.0]
    assert vs.matrix(2, k).tolist() == [[2.0, 1.0], [1.0, 2.0]]  # I + (2/2) J
    assert vs.condition_number(k) == 3
    # b* = (7 + 5) / 3 = 4, so k = n = 2 is the norm-minimising choice, and 2b* = 8
    assert vs.norm_minimizing_baseline([7.0, 5.0]) == 4.0
    assert vs.norm_reducing_interval([7.0, 5.0]) == (0.0, 8.0)
    assert vs.norm_reducing_interval([-7.0, -5.0]) == (-8.0, 0.0)
    # |z|² = 9 + 1, |u|² = 9 + 1 + 16, |q|² = 49 + 25
    assert [squared(x) for x in (z, np.array([3.0, 1.0, 4.0]), np.array([7.0, 5.0]))] == [
        10,
        26,
        74,
    ]


# The matrix and its inverse.


@properties
@given(q=vectors(), k=any_k)
def test_expand_is_the_matrix_and_contract_solves_it(q: Vector, k: float) -> None:
    m = vs.matrix(len(q), k)
    np.testing.assert_array_equal(m, np.eye(len(q)) + k / len(q) * np.ones((len(q), len(q))))
    # 2x: the reference rounds as much as we do
    np.testing.assert_allclose(vs.expand(q, k), m @ q, rtol=0, atol=2 * rounding(q, k))
    # a solve loses at most the condition number, k+1, times n eps
    atol = 4 * len(q) * EPS[q.dtype] * (k + 1) * np.abs(q).max()
    np.testing.assert_allclose(vs.contract(q, k), np.linalg.solve(m, q), rtol=0, atol=atol)


@properties
@given(x=vectors(), k=any_k, dtype=st.sampled_from(list(EPS)), negate=st.booleans())
@example(x=np.ones(1000), k=1, dtype=BFLOAT16, negate=False)  # 256 + 1 = 256 in bfloat16
@example(x=np.full(1000, 0.1), k=32_768, dtype=np.dtype(np.float32), negate=True)
def test_rounding_stays_within_its_bound(x: Vector, k: float, dtype: np.dtype[np.generic], negate: bool) -> None:
    z = (-x if negate else x).astype(dtype)
    exact_z = z.astype(np.float64)
    mean = math.fsum(exact_z) / len(z)
    q = vs.expand(z, k)
    assert q.dtype == dtype
    np.testing.assert_allclose(q.astype(np.float64), exact_z + k * mean, rtol=0, atol=rounding(z, k))
    # |M_k⁻¹| < 2 in the largest-entry norm, and contracting rounds once more, at the size of q
    back = vs.contract(q, k)
    assert back.dtype == dtype
    atol = 2 * rounding(z, k) + rounding(q, 0)
    np.testing.assert_allclose(back.astype(np.float64), exact_z, rtol=0, atol=atol)


@properties
@given(n=st.integers(2, 40), k=any_k)
def test_condition_number_and_eigenvalues(n: int, k: float) -> None:
    m = vs.matrix(n, k)
    assert np.linalg.cond(m) == pytest.approx(vs.condition_number(k), rel=1e-9)
    eigenvalues = np.linalg.eigvalsh(m)  # ascending: 1 with multiplicity n-1, then k+1
    np.testing.assert_allclose(eigenvalues, [1] * (n - 1) + [k + 1], rtol=0, atol=1e-13 * n * (k + 1))
    np.testing.assert_allclose(m @ np.ones(n), np.full(n, k + 1), rtol=1e-12)  # along 1


def test_matrix_stacks_over_k() -> None:
    m = vs.matrix(3, [0.0, 3.0])
    assert m.shape == (2, 3, 3)
    assert m[0].tolist() == np.eye(3).tolist()
    assert m[1].tolist() == [[2, 1, 1], [1, 2, 1], [1, 1, 2]]


# Baselines: Propositions 3.1, A.1, A.2, A.3.


@properties
@given(q=vectors())
def test_norm_minimizing_baseline(q: Vector) -> None:
    """Proposition 3.1, against a numerical minimiser that only sees |u(q, b)|²."""
    size = float(np.abs(q).max())
    found = optimize.minimize_scalar(lambda b: squared(vs.baseline_residual(q, b)), bracket=(-size, size), tol=1e-10)
    b = float(vs.norm_minimizing_baseline(q))
    # near its minimum a parabola is flat: rounding |u|² by eps moves the minimiser by sqrt(eps)
    assert b == pytest.approx(found.x, rel=0, abs=1e-6 * size)
    assert b == pytest.approx(math.fsum(q) / (len(q) + 1), rel=0, abs=rounding(q, 0))
    assert b == pytest.approx(float(vs.implicit_baseline(q, len(q))), rel=1e-14)  # k = n is it


@properties
@given(q=vectors(), position=st.floats(-3, -0.001) | st.floats(0.001, 0.999) | st.floats(1.001, 4))
def test_norm_reducing_interval(q: Vector, position: float) -> None:
    """Proposition A.1: strictly smaller inside the interval, strictly larger outside."""
    low, high = (float(end) for end in vs.norm_reducing_interval(q))
    u = vs.baseline_residual(q, low + position * (high - low))
    if 0 < position < 1:
        assert squared(u) < squared(q)
    else:
        assert squared(u) > squared(q)
    for end in (low, high):  # and equal at both ends
        assert squared(vs.baseline_residual(q, end)) == pytest.approx(squared(q), rel=1e-10)


@properties
@given(q=vectors(), fraction=st.floats(0.001, 0.999))
def test_every_baseline_between_zero_and_the_mean_reduces_the_norm(q: Vector, fraction: float) -> None:
    low, high = vs.norm_reducing_interval(q)
    assert low < fraction * q.mean() < high


def test_a_vector_of_mean_zero_has_no_norm_reducing_baseline() -> None:
    assert vs.norm_reducing_interval([2.0, -2.0]) == (0.0, 0.0)
    for b in (-1.0, -1e-3, 1e-3, 1.0):  # |u|² = (2-b)² + (2+b)² + b² = 8 + 3b²
        assert squared(vs.baseline_residual([2.0, -2.0], b)) == pytest.approx(8 + 3 * b * b)


@properties
@given(q=vectors(), fraction=st.floats(0, 0.99), step=st.floats(0.01, 1))
def test_residuals_shrink_from_zero_to_the_mean(q: Vector, fraction: float, step: float) -> None:
    """Propositions A.2 and A.3: |mean| and norm of q - b both fall from b = 0 to b = mean(q)."""
    mean = math.fsum(q) / len(q)
    before, after = (vs.baseline_residual(q, f * mean)[:-1] for f in (fraction, min(1, fraction + step)))
    assert abs(math.fsum(after)) < abs(math.fsum(before))
    assert squared(after) < squared(before)


# The implicit baseline: Propositions 3.2, 3.3 and the norms of z, u and q.


def stacked(q: Vector, k: float) -> tuple[npt.NDArray[np.float64], Vector]:
    """Equation (4) as least squares, |A z - y|²: rows (z - q)/sqrt(n), then sqrt(k)·mean(z)."""
    n = len(q)
    a = np.vstack([np.eye(n) / math.sqrt(n), np.full((1, n), math.sqrt(k) / n)])
    return a, np.append(q / math.sqrt(n), 0.0)


@properties
@given(q=vectors(small_sizes), k=any_k)
def test_contract_is_the_unique_minimizer_of_the_penalised_objective(q: Vector, k: float) -> None:
    """Proposition 3.2, against numpy.linalg.lstsq; full rank is uniqueness."""
    a, y = stacked(q, k)
    z, _, rank, _ = np.linalg.lstsq(a, y)
    assert rank == len(q)
    # the condition number of A is sqrt(k+1); the residual of the fit makes it count twice: k+1
    atol = 20 * len(q) * EPS[q.dtype] * (k + 1) * np.abs(q).max()
    np.testing.assert_allclose(vs.contract(q, k), z, rtol=0, atol=atol)


@properties
@given(q=vectors(st.integers(1, 6)), k=st.floats(0, 20))
def test_contract_is_what_a_numerical_minimiser_finds(q: Vector, k: float) -> None:
    """Proposition 3.2 again, with Equation (4) written out and differenced numerically."""
    size = float(np.abs(q).max())

    def objective(z: Vector) -> float:
        return float(np.mean((z - q / size) ** 2) + k * np.mean(z) ** 2)

    found = optimize.minimize(objective, np.zeros(len(q)), method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(vs.contract(q, k) / size, found.x, rtol=0, atol=1e-4)


@properties
@given(q=vectors(), k=positive_k)
def test_implicit_baseline(q: Vector, k: float) -> None:
    """Proposition 3.3: b = k·mean(z) = sum(q) / (n + n/k), and q = z + b."""
    b = float(vs.implicit_baseline(q, k))
    assert b == pytest.approx(math.fsum(q) / (len(q) + len(q) / k), rel=0, abs=rounding(q, 0))
    z = vs.contract(q, k)
    atol = 2 * rounding(q, k)
    assert b == pytest.approx(k * float(z.mean()), rel=0, abs=atol)
    np.testing.assert_allclose(vs.baseline_residual(q, b), np.append(z, b), rtol=0, atol=atol)


@properties
@given(q=vectors(), k=positive_k)
def test_z_is_smaller_than_u_is_smaller_than_q(q: Vector, k: float) -> None:
    z = vs.contract(q, k)
    u = vs.baseline_residual(q, vs.implicit_baseline(q, k))
    assert squared(z) < squared(u) < squared(q)


@properties
@given(q=vectors())
def test_k_zero_changes_nothing(q: Vector) -> None:
    atol = EPS[q.dtype] * np.abs(q).max()
    np.testing.assert_allclose(vs.expand(q, 0), q, rtol=0, atol=atol)
    np.testing.assert_allclose(vs.contract(q, 0), q, rtol=0, atol=atol)
    assert vs.implicit_baseline(q, 0) == 0


@properties
@given(k=any_k)
def test_baseline_fraction_and_k_are_inverse(k: float) -> None:
    fraction = vs.baseline_fraction(k)
    assert 0 <= fraction < 1
    # 1 - f = 1/(k+1) is known to an absolute eps, which is a relative eps·(k+1)
    assert vs.k_for_baseline_fraction(fraction) == pytest.approx(k, rel=2**-52 * (k + 2))
    assert vs.implicit_baseline([4.0, 4.0], k) == pytest.approx(fraction * 4.0)


def test_baseline_fractions_by_hand() -> None:
    assert vs.baseline_fraction(1) == 0.5  # k = 1 is half the mean, for any number of actions
    assert vs.k_for_baseline_fraction(0.75) == 3
    np.testing.assert_array_equal(vs.baseline_fraction([0.0, 1.0, 3.0]), [0, 0.5, 0.75])
    np.testing.assert_array_equal(vs.k_for_baseline_fraction([0.0, 0.5, 0.75]), [0, 1, 3])


FUNCTIONS_OF_K = (vs.expand, vs.contract, vs.implicit_baseline)
NO_NUMBERS: dict[str, Any] = {
    "bytes": b"2",
    "NoneType": None,
    "list": ["1", "2"],
    "dict": {},
    "ndarray": np.array(["a", "b"]),
}


@pytest.mark.parametrize("function", FUNCTIONS_OF_K)
@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_a_k_that_is_no_number_is_refused_in_one_line(function: Callable[..., Any], kind: str) -> None:
    with pytest.raises(vs.InvalidInput, match=f"^k is given as {kind}: write a number, an array of numbers, or 'n'$"):
        function(np.ones((2, 3)), NO_NUMBERS[kind])
    with pytest.raises(vs.InvalidInput, match=f"^values is given as {kind}: write a number, or an array of numbers$"):
        function(NO_NUMBERS[kind], 1.0)


@pytest.mark.parametrize("function", FUNCTIONS_OF_K)
def test_text_lists_with_rows_of_several_lengths_and_complex_numbers_are_called_so(
    function: Callable[..., Any],
) -> None:
    as_values = {
        "`values = 'ab'`": "ab",
        "values is a ragged list, whose rows differ in length": [[1, 2], [3]],
        "values is given as list of complex numbers": [[1j, 2.0]],
        "values is given as ndarray of complex128": np.array([1j, 2]),
        "values is given as complex": 1j,
        "values is given as Tensor of torch.complex64": torch.tensor([1j]),
    }
    for what, values in as_values.items():
        with pytest.raises(vs.InvalidInput) as refused:
            function(values, k=1)
        assert str(refused.value) == f"{what}: write a number, or an array of numbers"
    as_k = {
        "`k = '2'`": "2",
        "k is a ragged list, whose rows differ in length": [[1], [2, 3]],
        "k is given as tuple of complex numbers": (1j, 2),
    }
    for what, k in as_k.items():
        with pytest.raises(vs.InvalidInput) as refused:
            function(np.ones((2, 3)), k)
        assert str(refused.value) == f"{what}: write a number, an array of numbers, or 'n'"


@pytest.mark.parametrize("function", FUNCTIONS_OF_K)
@pytest.mark.parametrize("k", [True, [True, False], np.array([True, False]), torch.tensor(True), torch.tensor(1j)])
def test_truth_values_and_complex_numbers_are_no_k(function: Callable[..., Any], k: Any) -> None:
    what = r"(given as (bool|Tensor of torch.complex64)|an array of truth values)"
    message = rf"^k is {what}: write a number, an array of numbers, or 'n'$"
    with pytest.raises(vs.InvalidInput, match=message):
        function(torch.ones((2, 3)), k)


def test_n_is_not_known_without_actions() -> None:
    for function in (vs.condition_number, vs.baseline_fraction):
        with pytest.raises(
            vs.InvalidInput, match=r"^`k = 'n'` is the number of actions, which is not known here: write"
        ):
            function("n")
    wrong: tuple[Any, ...] = (2.5, "n", None, True, np.array([1, 2]), torch.tensor(2.5), torch.ones(2))
    for n in wrong:
        with pytest.raises(vs.InvalidInput, match=r"^n is given as \w+: write the number of actions$"):
            vs.matrix(n, 1.0)
    for two in (np.int64(2), np.array(2), torch.tensor(2)):
        np.testing.assert_array_equal(vs.matrix(two, 2.0), [[2, 1], [1, 2]])  # type: ignore[arg-type]
    with pytest.raises(vs.InvalidInput, match=r"^values is given as ndarray of complex128: write a number"):
        vs.expand(np.array([1j, 2]), 1.0)


@pytest.mark.parametrize("function", FUNCTIONS_OF_K)
@pytest.mark.parametrize("k", [-1, -0.5, [1.0, -2.0], math.nan, math.inf])
def test_a_k_outside_its_range_is_refused_in_one_line(function: Callable[..., Any], k: Any) -> None:
    with pytest.raises(vs.InvalidInput, match=r"^`k = \S+`: the mean-scaling coefficient is a finite number >= 0"):
        function(np.ones((2, 3)), k)


@pytest.mark.parametrize("function", FUNCTIONS_OF_K)
@pytest.mark.parametrize("library", [np.ones, torch.ones])
def test_a_k_of_another_shape_is_refused_in_one_line(function: Callable[..., Any], library: Callable[..., Any]) -> None:
    message = r"^k of shape \[3\] for values of shape \[2, 3\]: write one number, or one per state, of shape \[2\]$"
    with pytest.raises(vs.InvalidInput, match=message):
        function(library((2, 3)), library(3))


@pytest.mark.parametrize("k", ["2", None, -1.0, math.nan, [1.0, 2.0], torch.ones(2)])
def test_the_layer_refuses_what_is_no_k(k: Any) -> None:
    with pytest.raises(
        vs.InvalidInput, match=r"^(k is given as \w+: write a number|`k = '2'`: write a n|`k = \S+`: the mean-s)"
    ):
        vs.MeanExpansion(k)


def test_numbers_of_any_type_are_taken() -> None:
    expected = vs.expand(np.array([1.0, 2.0, 3.0]), 0.5)
    for k in (Fraction(1, 2), Decimal("0.5"), np.float32(0.5)):
        np.testing.assert_array_equal(vs.expand([1, 2, 3], k), expected)
    assert vs.expand([torch.tensor(1.0), torch.tensor(2.0)], 1).dtype == np.float64
    assert vs.expand([2**70, 0], 1)[1] == 2.0**69


def test_a_masked_action_stays_masked() -> None:
    expanded = vs.expand(np.ma.array([[1.0, 2.0, 9.0]], mask=[[False, False, True]]), 1.0)
    assert expanded.tolist() == [[2.5, 3.5, None]]  # the mean is 1.5


@pytest.mark.parametrize("b", ["1", None])
def test_a_baseline_that_is_no_number_is_refused(b: Any) -> None:
    with pytest.raises(vs.InvalidInput, match=r"^(b is given as NoneType|`b = '1'`): write a number"):
        vs.baseline_residual(np.ones(3), b)
