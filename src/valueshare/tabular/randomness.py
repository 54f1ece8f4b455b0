"""The random streams of tabular runs."""

import numpy as np
from numpy.typing import NDArray

from valueshare.splitmix import ODD, U64, mix

ACTIONS, TRANSITIONS, STARTS = U64(1), U64(2), U64(3)  # the streams of a run


def run_keys(seed: NDArray[np.int64], k: NDArray[np.float64], step_size: NDArray[np.float64]) -> NDArray[np.uint64]:
    """The keys of runs, [R]: determined by seed, k and step size, never by the position in a sweep."""
    key: NDArray[np.uint64] = seed.astype(U64)
    for value in (k, step_size):
        # The bits of a float; adding 0.0 first makes -0.0 the same number as 0.0 here too.
        key = mix.py_func((key + ODD) ^ (value + 0.0).view(U64))
    return key
