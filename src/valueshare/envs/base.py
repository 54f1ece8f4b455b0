"""The interface of every backend's environments: E of them, stepped at once.

Two rules make the transitions exact. An episode that ends is reset within the same step, and the observation that the
step itself returned is kept beside the reset one: no step is lost or invented, and a truncated step bootstraps from its
own final observation. And environment e depends on its own seed and actions alone, never on its neighbours or on E.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from valueshare.envs.action_bins import action_count, short_repr
from valueshare.errors import InvalidInput
from valueshare.schema import Backend

MAX_STATES = 1_000_000  # a Discrete observation has as many inputs of the network as states
SUPPORTED_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "bool")  # replay and checkpoints hold these and floats
T = TypeVar("T")
Seeds = Sequence[int] | NDArray[np.integer[Any]]
Actions = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True)
class EnvironmentSpec:
    """Shapes, types and limits of one environment; actions are 0, ..., actions - 1.

    With `stack` = S > 0 an observation is one frame, and the network sees the last S of them, oldest first; at an
    episode's start the first frame fills the places before it.
    """

    name: str
    backend: Backend
    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]  # floats are float32; everything else is as the backend has it
    actions: int
    episode_limit: int | None  # steps until an episode is truncated; None: never
    stack: int = 0  # frames that the network sees at once; 0: single observations
    first_state: int | None = None  # `start` of Discrete observations, which are one-hot vectors here; None: a Box

    @property
    def network_shape(self) -> tuple[int, ...]:
        """The shape of the network's input for one state: (S, ...) where frames are stacked."""
        return (self.stack, *self.observation_shape) if self.stack else self.observation_shape


class StepResult(NamedTuple):
    """One step of E environments; where nothing ended, the two observations are equal.

    They may then be the same array: treat both as read-only. No later call overwrites them.
    """

    observation: NDArray[Any]  # [E, ...] to act on next: the reset one where an episode ended
    reward: NDArray[np.float32]  # [E]
    terminated: NDArray[np.bool_]  # [E] the environment ended the episode
    truncated: NDArray[np.bool_]  # [E] a limit cut it off; never together with terminated
    final_observation: NDArray[Any]  # [E, ...] of the step itself, before any reset


class Environments(ABC):
    """E environments of one kind."""

    spec: EnvironmentSpec
    count: int

    @abstractmethod
    def reset(self, seeds: Seeds) -> NDArray[Any]:
        """Start new episodes everywhere, from the seeds alone: seeds [E] -> observation [E, ...].

        A seed is any 64-bit key. Results not yet received are dropped.
        """

    @abstractmethod
    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        """Begin a step: actions [E]; what happens until `receive` overlaps it.

        Environments outside `active` [E] are not stepped. Their row of the result has reward 0, no ending and
        their last observation. Environments made in lockstep refuse it.
        """

    @abstractmethod
    def receive(self) -> StepResult:
        """The result of the step that was sent."""

    def step(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> StepResult:
        """Send, then receive."""
        self.send(actions, active)
        return self.receive()

    @abstractmethod
    def close(self) -> None:
        """Free the environments; `reset` makes new ones."""

    def _check_actions(self, actions: Actions, dtype: Any, *, is_ready: bool) -> NDArray[Any]:
        """Check a call of `send`; return a copy of the actions [E]. `is_ready`: reset, and no result is pending."""
        if not is_ready:
            raise RuntimeError("send follows reset or receive")
        checked = np.array(actions, dtype)
        if checked.shape != (self.count,):
            raise RuntimeError(f"actions of shape {checked.shape} for {self.count} environments")
        return checked

    @staticmethod
    def _pending(sent: T | None) -> T:
        """The step that was sent, for `receive`; an error without one."""
        if sent is None:
            raise RuntimeError("receive follows send")
        return sent


def spec_from_spaces(
    name: str, backend: Backend, observations: object, actions: object, episode_limit: int | None
) -> EnvironmentSpec:
    """The spec of an environment with Box or Discrete observations, and Discrete actions or bins of Box ones.

    Others are refused.
    """
    count = action_count(name, actions)
    if isinstance(observations, gymnasium.spaces.Discrete):
        states, first = int(observations.n), int(observations.start)
        if states > MAX_STATES:
            raise InvalidInput(
                f"{name} has observations {short_repr(observations)}: choose at most {MAX_STATES:,} states"
            )
        return EnvironmentSpec(name, backend, (states,), np.dtype(np.bool_), count, episode_limit, first_state=first)
    if not isinstance(observations, gymnasium.spaces.Box):
        flat = isinstance(observations, gymnasium.Space) and observations.is_np_flattenable
        hint = ", or register it in gymnasium.wrappers.FlattenObservation (docs/training.md, 'Custom environments')"
        raise InvalidInput(
            f"{name} has observations {short_repr(observations)}: choose one with Box or Discrete observations"
            f"{hint if flat else ''}"
        )
    dtype = np.dtype(observations.dtype)
    if dtype.kind != "f" and dtype.name not in SUPPORTED_DTYPES:
        raise InvalidInput(
            f"{name} has observations of {dtype}: choose one with {', '.join(SUPPORTED_DTYPES)} or floats"
        )
    return EnvironmentSpec(
        name=name,
        backend=backend,
        observation_shape=observations.shape,
        observation_dtype=np.dtype(np.float32) if dtype.kind == "f" else dtype,
        actions=count,
        episode_limit=episode_limit,
    )


def resolve_limit(episode_limit: int | None, default: int | None) -> int | None:
    if episode_limit is None:
        return default
    if episode_limit < 1:
        raise InvalidInput(f"`episode_limit = {episode_limit}`: an episode has at least 1 step")
    return int(episode_limit)


def as_keys(seeds: Seeds, count: int) -> NDArray[np.uint64]:
    """E seeds as 64-bit keys; negative ones wrap around."""
    keys = np.array([int(seed) & (2**64 - 1) for seed in seeds], dtype=np.uint64)  # [E]
    if keys.shape != (count,):
        raise InvalidInput(f"{len(keys)} seeds for {count} environments: give one seed each")
    return keys


def mix_to_int32(keys: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Keys of 64 bits as well-mixed seeds of 32: the finaliser of SplitMix64, its upper half.

    Neighbouring keys, and keys that differ in their upper bits alone, get unrelated seeds.
    """
    x = keys + np.uint64(0x9E3779B97F4A7C15)  # unsigned arithmetic wraps around: it is meant to
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(32)).astype(np.uint32).view(np.int32)
