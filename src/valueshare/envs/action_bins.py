"""Box actions in bins: an environment with continuous actions as one with n discrete ones.

`LunarLanderContinuous-v3-bins7x7` is `LunarLanderContinuous-v3` with 7 evenly spaced values of each of its two action
dimensions, the bounds included: 49 actions. The last dimension changes fastest.
"""

import math
import re
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from valueshare.errors import InvalidInput
from valueshare.text import pluralize

MAX_ACTIONS = 4_096  # more would be a mistake: a network has one output per action
MAX_DIMENSIONS = 12  # 2^12 actions
_SUFFIX = re.compile(r"(?P<env_id>.+)-bins(?P<bins>[0-9]{1,9}(x[0-9]{1,9})*)")


class BinnedName(NamedTuple):
    """The name of an environment without its bins, and the bins of each action dimension; none: no bins."""

    env_id: str
    bins: tuple[int, ...] = ()

    @property
    def actions(self) -> int | None:
        """The number of actions, where the name says it."""
        return math.prod(self.bins) if self.bins else None


def split_bins(name: str) -> BinnedName:
    """The parts of a name.

    >>> split_bins("LunarLanderContinuous-v3-bins7x7")
    BinnedName(env_id='LunarLanderContinuous-v3', bins=(7, 7))
    """
    match = _SUFFIX.fullmatch(name)
    if match is None:
        return BinnedName(name)
    bins = tuple(int(count) for count in match["bins"].split("x"))
    if len(bins) > MAX_DIMENSIONS:  # a product of more has no end
        raise InvalidInput(
            f"{name[:60]}... has bins of {len(bins):,} action dimensions: at most {MAX_DIMENSIONS} have no more than "
            f"{MAX_ACTIONS:,} actions"
        )
    if min(bins) < 2:
        raise InvalidInput(f"{name}: write at least 2 bins per action dimension, like {match['env_id']}-bins3")
    if math.prod(bins) > MAX_ACTIONS:
        raise InvalidInput(f"{name} has {math.prod(bins):,} actions: write bins for at most {MAX_ACTIONS:,}")
    return BinnedName(match["env_id"], bins)


def action_count(name: str, space: object) -> int:
    """The number of actions of an environment with Discrete actions, or with bins; others are refused."""
    bins = split_bins(name).bins
    if isinstance(space, gymnasium.spaces.Discrete) and not bins:
        return int(space.n)
    if not isinstance(space, gymnasium.spaces.Box) or not bins:
        raise InvalidInput(f"{name} has actions {short_repr(space)}: {_advice(name, space)}")
    if space.shape != (len(bins),) or not _is_binnable(space):
        dimensions = pluralize(len(bins), "action dimension")
        raise InvalidInput(f"{name} has bins of {dimensions} and actions {short_repr(space)}: {_advice(name, space)}")
    return math.prod(bins)


def action_table(name: str, space: gymnasium.Space[Any]) -> NDArray[Any]:
    """The environment's own action for each of n: [n] of a Discrete space, [n, d] of a Box space in bins."""
    count = action_count(name, space)
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.arange(int(space.start), int(space.start) + count)
    assert isinstance(space, gymnasium.spaces.Box)  # or it was refused
    bins = split_bins(name).bins
    values = [
        np.linspace(low, high, bin_count) for low, high, bin_count in zip(space.low, space.high, bins, strict=True)
    ]
    return np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(count, len(bins)).astype(space.dtype)


def _is_binnable(space: object) -> bool:
    """Whether a space is a bounded vector of floats."""
    return (
        isinstance(space, gymnasium.spaces.Box)
        and len(space.shape) == 1
        and np.dtype(space.dtype).kind == "f"
        and space.is_bounded()
    )


def _advice(name: str, space: object) -> str:
    env_id, bins = split_bins(name)
    if isinstance(space, gymnasium.spaces.Discrete):
        return f"they are discrete already, write {env_id}"
    if not isinstance(space, gymnasium.spaces.Box) or not _is_binnable(space):
        return "choose an environment with Discrete actions"
    example = "x".join(str(bins[0] if bins else 3) for _ in space.low)
    return f"choose an environment with Discrete actions, or bins of these, like {env_id}-bins{example}"


def short_repr(space: object) -> str:
    """A space in one short line."""
    text = " ".join(str(space).split())
    return text if len(text) <= 60 else f"{type(space).__name__}(...)"
