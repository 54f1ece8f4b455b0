"""Counter-based random streams for compiled kernels: SplitMix64.

A draw is a pure function of (key, step): there is no state, so a run's random numbers do not depend on which thread
runs it, or on the other runs. The counter of SplitMix64 advances by an odd constant, and a key is a
place on its cycle of 2^64. Keys are well mixed, so the chance that two of a million streams of 10,000 steps overlap
anywhere is below 0.1 %.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

U64 = np.uint64
ODD = U64(0x9E3779B97F4A7C15)
FIRST, SECOND = U64(0xBF58476D1CE4E5B9), U64(0x94D049BB133111EB)
Bits = Any  # uint64: one in a kernel, an array of them outside
S11, S27, S30, S31, S32 = (U64(shift) for shift in (11, 27, 30, 31, 32))
LOW_HALF = U64(0xFFFFFFFF)
UNIT = 2.0**-53


@njit(inline="always")
def mix(x: Bits) -> Bits:
    """A bijection of 64 bits in which every input bit moves every output bit."""
    x = (x ^ (x >> S30)) * FIRST
    x = (x ^ (x >> S27)) * SECOND
    return x ^ (x >> S31)


@njit(inline="always")
def bits(key: Bits, step: int) -> Bits:
    """64 random bits for one step of a stream."""
    return mix(key + U64(step) * ODD)


@njit(inline="always")
def uniform(key: Bits, step: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    return np.float64(bits(key, step) >> S11) * UNIT


@njit(inline="always")
def randint(half: Bits, count: int) -> int:
    """An integer in [0, count) from 32 random bits; its bias is at most count / 2^32."""
    return np.int64((half * U64(count)) >> S32)  # type: ignore[return-value]


def source_type(*files: str | Path) -> np.dtype[Any]:
    """A type of one field, whose name is a digest of source files.

    Numba's cache checks the file of a kernel and the types of its arguments. An argument with this type makes Numba
    compile a kernel again after an edit of other files that are compiled into it.
    """
    digest = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:12]
    return np.dtype([(f"sources_{digest}", np.int8)])
