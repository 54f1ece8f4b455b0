"""The random streams: against whole numbers of Python, which do not wrap around by themselves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy import stats

from valueshare import splitmix
from valueshare.tabular.randomness import run_keys

U64 = np.uint64
words = st.integers(0, 2**64 - 1)


def mix(x: int) -> int:
    """SplitMix64's finaliser, in whole numbers modulo 2^64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def bits(key: int, step: int) -> int:
    return mix((key + step * 0x9E3779B97F4A7C15) % 2**64)


@njit
def compiled(key: Any, step: int, count: int) -> Any:
    half = splitmix.bits(key, step) & splitmix.LOW_HALF
    return (
        splitmix.mix(key),
        splitmix.bits(key, step),
        splitmix.uniform(key, step),
        splitmix.randint(half, count),
    )


@settings(deadline=None)  # the first call compiles
@given(words, st.integers(0, 10**9), st.integers(1, 1_000))
def test_compiled_draws_are_those_of_whole_numbers(key: int, step: int, count: int) -> None:
    mixed, drawn, unit, picked = compiled(U64(key), step, count)
    expected = bits(key, step)
    assert int(mixed) == mix(key)
    assert int(drawn) == expected
    assert unit == (expected >> 11) / 2**53
    assert 0 <= unit < 1
    assert picked == (expected % 2**32) * count // 2**32
    assert 0 <= picked < count


def test_splitmix_as_published() -> None:
    """The first outputs of SplitMix64 from seed 0, which its authors' test vectors list."""
    assert [bits(0, step) for step in (1, 2, 3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def draws(transform: Callable[[int], float], key: int, count: int) -> list[float]:
    return [transform(bits(key, step)) for step in range(1, count + 1)]


@pytest.mark.parametrize("key", [0, 1, 2**63, mix(12345)])
def test_draws_are_uniform_along_a_stream(key: int) -> None:
    for transform in (lambda b: b / 2**64, lambda b: (b % 2**32) / 2**32):
        assert stats.kstest(draws(transform, key, 5_000), "uniform").pvalue > 1e-3


def test_draws_are_uniform_across_runs_and_streams() -> None:
    """First draws of neighbouring seeds, in each of the three streams, and their correlation."""
    seeds = np.arange(4_000)
    keys = run_keys(seeds, np.full(4_000, 1.6), np.full(4_000, 0.1)).tolist()
    streams = np.array([[bits(mix(key ^ stream), 1) / 2**64 for key in keys] for stream in (1, 2, 3)])
    for stream in streams:
        assert stats.kstest(stream, "uniform").pvalue > 1e-3
    between = np.corrcoef(streams)[np.triu_indices(3, 1)]
    along = [np.corrcoef(stream[:-1], stream[1:])[0, 1] for stream in streams]
    assert np.abs([*between, *along]).max() < 4 / np.sqrt(4_000)  # 4 standard errors


def key_of(seed: int, k: float, step_size: float) -> int:
    """A run's key from the bits of its two floats, in whole numbers."""
    key = seed
    for value in (k, step_size):
        pattern = int.from_bytes(np.float64(value + 0.0).tobytes(), "little")
        key = mix((key + 0x9E3779B97F4A7C15) % 2**64 ^ pattern)
    return key


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.floats(0, 1e6), st.floats(1e-6, 1)), min_size=1))
def test_a_key_is_decided_by_its_run_alone(runs: list[tuple[int, float, float]]) -> None:
    seeds, ks, sizes = (np.array(column) for column in zip(*runs, strict=True))
    keys = run_keys(seeds.astype(np.int64), ks, sizes)
    assert keys.dtype == U64
    assert keys.tolist() == [key_of(*run) for run in runs]


def test_minus_zero_is_zero() -> None:
    plus, minus = (run_keys(np.array([3]), np.array([k]), np.array([0.1])) for k in (0.0, -0.0))
    assert plus == minus


def test_no_two_runs_of_a_large_sweep_share_a_key() -> None:
    """9 k, 61 step sizes and 128 seeds: 70,272 keys, all different."""
    k = np.array([0.0, *(0.1 * 2.0 ** np.arange(8))])
    size = np.exp(np.arange(61) / 10 - 6)
    grid = [axis.ravel() for axis in np.meshgrid(np.arange(128), k, size, indexing="ij")]
    keys = run_keys(grid[0].astype(np.int64), *grid[1:])
    assert len(np.unique(keys)) == 9 * 61 * 128
