"""Discrete observations as one-hot vectors: state i of n is n bools, of which place i alone is True."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from valueshare.envs.base import EnvironmentSpec
from valueshare.errors import InvalidInput


def one_hot(spec: EnvironmentSpec, numbers: ArrayLike) -> NDArray[np.bool_]:
    """The encoding of whole numbers of a Discrete space; others are refused. Shapes: [...] -> [..., n]."""
    assert spec.first_state is not None  # or there is nothing to encode
    (n,), first = spec.observation_shape, spec.first_state
    states = np.asarray(numbers)
    last = first + n - 1
    if states.dtype.kind not in "iu" or not ((states >= first) & (states <= last)).all():
        shown = " ".join(str(states.tolist()).split())[:60]
        raise InvalidInput(f"{shown} is not a state of {spec.name}: its states are the whole numbers {first} to {last}")
    encoding: NDArray[np.bool_] = (states.astype(np.int64) - first)[..., None] == np.arange(n)
    return encoding


def encode(spec: EnvironmentSpec, observation: Any) -> NDArray[Any]:
    """Observations [E, ...] of a backend as the agents see them: of the spec's type; one-hot if Discrete."""
    if spec.first_state is not None:
        return one_hot(spec, observation)
    return np.asarray(observation).astype(spec.observation_dtype, copy=False)
