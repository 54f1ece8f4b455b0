"""The mean-expansion transform M_k = I + (k/n) J, on any array.

Every function takes NumPy arrays, PyTorch tensors or JAX arrays (or nested lists, read as NumPy), with batch axes first
and the n actions last, and returns the same kind: library, dtype and device, differentiable and compilable (whole
numbers become floats). `k` is a number, "n" for the number of actions, or an array that broadcasts over the batch axes.

Names follow the paper: q are action-values, z the residuals that represent them, b a baseline,
u = (z_1, ..., z_n, b) the baseline-residual vector.

    >>> q = expand([3.0, 1.0], k=2)      # Figure 1 of the paper
    >>> q.tolist(), implicit_baseline(q, k=2).item(), contract(q, k=2).tolist()
    ([7.0, 5.0], 4.0, [3.0, 1.0])
    >>> expand([3.0, 1.0], k="n").tolist()   # k = 2, the number of actions
    [7.0, 5.0]
"""

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from valueshare.errors import InvalidInput
from valueshare.text import exact

# NumPy, PyTorch and JAX share no base class, and each result has the type of its argument.
Array = Any
Number = float | Array
Coefficient = float | Literal["n", "N"]  # one k: a number, or the number of actions
Coefficients = Coefficient | Array
NUMBERS = "a number, or an array of numbers"
NUMBERS_OR_N = "a number, an array of numbers, or 'n'"
_NUMPY = (np.ndarray, np.generic)


def expand(z: Array, k: Coefficients) -> Array:
    """Action-values q = M_k z: the mean of z scaled by k+1, the rest kept (Equations 5, 6).

    Shapes: z [..., n], k [...] -> q [..., n].
    """
    z = _values(z)
    return scale_mean(z, _per_state(z, _checked(k, z.shape[-1]) + 1)[..., None])


def contract(q: Array, k: Coefficients) -> Array:
    """Residuals z with q = M_k z: the inverse of `expand`, the mean of q divided by k+1.

    Shapes: q [..., n], k [...] -> z [..., n].
    """
    q = _values(q)
    return scale_mean(q, _per_state(q, 1 / (_checked(k, q.shape[-1]) + 1))[..., None])


def scale_mean(x: Array, scale: Array) -> Array:
    """Multiply the mean of x over its last axis by `scale`; keep each entry's distance to it.

    Written as scale·mean + (x - mean): for large scales, the differences between actions are not
    rounded away inside one large coefficient.
    """
    mean = _mean(x)[..., None]
    return scale * mean + (x - mean)


def implicit_baseline(q: Array, k: Coefficients) -> Array:
    """The baseline b = k·mean(z) = sum(q) / (n + n/k) that k implies for q (Proposition 3.3).

    Shapes: q [..., n], k [...] -> b [...].
    """
    q = _values(q)
    return _per_state(q, baseline_fraction(_checked(k, q.shape[-1]))) * _mean(q)


def baseline_residual(q: Array, b: Number) -> Array:
    """The baseline-residual vector u(q, b) = (q_1 - b, ..., q_n - b, b) (Definition 3.1).

    Shapes: q [..., n], b [...] -> u [..., n+1].
    """
    q = _values(q)
    b = b if isinstance(b, int | float) else _as_array(b, "b")
    b = _per_state(q, b, "b")[..., None]
    residual = q - b
    xp = _namespace(q)
    return xp.concatenate([residual, xp.broadcast_to(b, (*residual.shape[:-1], 1))], -1)


def norm_minimizing_baseline(q: Array) -> Array:
    """The baseline b* = sum(q) / (n+1) that makes |u(q, b)| smallest (Proposition 3.1).

    Shapes: q [..., n] -> b* [...].
    """
    q = _values(q)
    n = q.shape[-1]
    return _like(q, n / (n + 1)) * _mean(q)


def norm_reducing_interval(q: Array) -> tuple[Array, Array]:
    """The open interval of baselines with |u(q, b)| < |q|: between 0 and 2b* (Proposition A.1).

    Where the mean of q is 0 there is no such baseline, and both ends are 0.
    Shapes: q [..., n] -> low [...], high [...].
    """
    end = 2 * norm_minimizing_baseline(q)
    return end.clip(max=0), end.clip(min=0)


def matrix(n: int, k: Coefficients) -> Array:
    """M_k itself, I + (k/n) J; for an array k, a stack of them.

    Shapes: k [...] -> M [..., n, n].
    """
    try:
        if isinstance(n, bool):
            raise TypeError
        n = operator.index(n)
    except TypeError as error:  # of arrays and tensors that are not one whole number, too
        raise InvalidInput(f"n is given as {type(n).__name__}: write the number of actions") from error
    if n < 1:
        raise InvalidInput(f"`n = {n}`: a state has at least 1 action")
    k = _as_array(_checked(k, n), "k")
    return _like(k, np.eye(n)) + (k / n)[..., None, None]


def condition_number(k: Number) -> Number:
    """The condition number of M_k, which is k + 1: eigenvalue k+1 along 1, and 1 in all other directions.

    (For a single action there is no other direction, and M_k is the number k+1, of condition 1.)
    """
    return _checked(k) + 1


def k_for_baseline_fraction(fraction: Number) -> Number:
    """The k whose implicit baseline is `fraction` of the mean action-value: k = f / (1-f)."""
    f = _within(fraction, "fraction", "a baseline fraction lies in [0, 1)", below=1.0)
    return f / (1 - f)


def baseline_fraction(k: Number) -> Number:
    """The implicit baseline as a fraction of the mean action-value, k / (k+1)."""
    k = _checked(k)
    return k / (k + 1)


def resolve_k(k: Coefficient, n: int | None) -> float:
    """One k as a number: "n" or "N" is the number of actions, anything else is returned unchanged."""
    if not is_n(k):
        return k  # type: ignore[return-value]
    if n is None:
        raise InvalidInput(
            "`k = 'n'` is the number of actions, which is not known here: give it as n, or write a number"
        )
    return float(n)


def resolve_ks(ks: Sequence[Coefficient], n: int) -> list[float]:
    """Every k as a number; "n" is left out where that number is given too."""
    return [resolve_k(k, n) for k in ks if not is_n(k) or n not in ks]


def is_n(k: object) -> bool:
    """Whether a k is the number of actions, "n" or "N"."""
    return isinstance(k, str) and k.lower() == "n"  # in this order: k may be a tensor


def _checked(k: Coefficients, n: int | None = None) -> Number:
    """k as a number or an array of numbers, "n" as the number of actions, or refused."""
    if is_n(k):
        if n is None:
            raise InvalidInput("`k = 'n'` is the number of actions, which is not known here: write a number")
        return float(n)
    rule = "the mean-scaling coefficient is a finite number >= 0 (k = 0 changes nothing)"
    return _within(k, "k", rule, NUMBERS if n is None else NUMBERS_OR_N)


def _within(value: Number, name: str, rule: str, wanted: str = NUMBERS, below: float = math.inf) -> Number:
    """`value`, a number or an array, with every entry in [0, below) or refused.

    Tensors of PyTorch and JAX pass unseen: reading them would stall the device or break a trace.
    """
    if isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} is given as {type(value).__name__}: write {wanted}")
    if isinstance(value, int | float):
        entries = [value]
    else:
        given, value = value, _as_array(value, name, wanted)
        if "bool" in str(given.dtype if hasattr(given, "dtype") else np.asarray(given).dtype):
            raise InvalidInput(f"{name} is an array of truth values: write {wanted}")
        entries = np.ravel(value).tolist() if isinstance(value, _NUMPY) else []
    for entry in entries:
        if not 0 <= entry < below:  # `not inside`, so that NaN is refused too
            raise InvalidInput(f"`{name} = {exact(entry)}`: {rule}")
    return value


def _as_array(x: Array, name: str, wanted: str = NUMBERS) -> Array:
    """x as an array of floats: an array of whole numbers would round k and 1/(k+1) to its kind."""
    try:
        if isinstance(x, _NUMPY) or not hasattr(x, "mean"):
            _refuse_text_and_none(np.asarray(x))
        elif "complex" in str(x.dtype):
            raise _ComplexNumbers
        x = x if hasattr(x, "mean") else np.asarray(x, dtype=np.float64)
        return x if "float" in str(x.dtype) else x * 1.0
    except _ComplexNumbers as error:
        of = f" of {x.dtype}" if hasattr(x, "dtype") else "" if isinstance(x, complex) else " of complex numbers"
        raise InvalidInput(f"{name} is given as {type(x).__name__}{of}: write {wanted}") from error
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(x, str):
            raise InvalidInput(f"`{name} = {x!r}`: write {wanted}") from error
        is_ragged = "inhomogeneous" in str(error)  # NumPy's word
        what = "a ragged list, whose rows differ in length" if is_ragged else f"given as {type(x).__name__}"
        raise InvalidInput(f"{name} is {what}: write {wanted}") from error


class _ComplexNumbers(TypeError):
    """Complex numbers where real ones are wanted."""


def _refuse_text_and_none(x: Array) -> None:
    """NumPy would convert text and None to numbers, and drop imaginary parts."""
    if x.dtype.kind == "c":
        raise _ComplexNumbers
    if x.dtype.kind in "SUMm" or (x.dtype.kind == "O" and any(entry is None for entry in x.flat)):
        raise TypeError


def _values(x: Array) -> Array:
    """x as an array of floats whose last axis are the actions."""
    x = _as_array(x, "values")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise InvalidInput(f"values of shape {tuple(x.shape)}: a state has at least 1 action")
    return x


def _mean(x: Array) -> Array:
    """The mean over actions, of x's dtype. Shapes: x [..., n] -> [...]."""
    if isinstance(x, np.ndarray) and x.dtype.itemsize < 4:
        # NumPy adds bfloat16 in bfloat16, where 256 + 1 = 256; PyTorch and JAX add in float32.
        return x.mean(axis=-1, dtype=np.float32).astype(x.dtype)
    return x.mean(axis=-1)


def _namespace(x: Array) -> Any:
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    return sys.modules["torch"]  # a tensor is here, so it has been imported


def _per_state(x: Array, value: Number, name: str = "k") -> Array:
    """`value` as an array like x [..., n], if it broadcasts over the states [...]."""
    value = _like(x, value)
    for size, states in zip(value.shape[::-1], x.shape[-2::-1], strict=False):
        if size != states and 1 not in (size, states):
            raise InvalidInput(
                f"{name} of shape {list(value.shape)} for values of shape {list(x.shape)}: write one number, or one "
                f"per state, of shape {list(x.shape[:-1])}"
            )
    return value


def _like(x: Array, value: Number) -> Array:
    """`value` as an array of x's library, dtype and device."""
    xp = _namespace(x)
    if xp.__name__ == "torch":
        return xp.as_tensor(value, dtype=x.dtype, device=x.device)
    return xp.asarray(value, dtype=x.dtype)
