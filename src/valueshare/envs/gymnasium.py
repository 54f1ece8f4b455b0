"""Any Gymnasium environment with Box or Discrete observations, and Discrete actions or bins of Box ones.

A plain loop, run in `receive`: it overlaps with the work that a GPU was given before. Most of these environments are
Python, where threads share one interpreter lock (32 CartPoles: 0.28 ms per step in a loop, 0.32 ms on two threads),
and a loop in the background makes the learner wait for the interpreter instead.
"""

import math
import re
import signal
import sys
import traceback
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from valueshare.envs.action_bins import action_table, split_bins
from valueshare.envs.base import (
    Actions,
    Environments,
    EnvironmentSpec,
    Seeds,
    StepResult,
    as_keys,
    resolve_limit,
    spec_from_spaces,
)
from valueshare.envs.one_hot import one_hot
from valueshare.envs.registration import registered_names_named
from valueshare.errors import EnvironmentFailed, InvalidInput, check_module, exception_text, one_line

TRIED_ACTIONS = 16
MAX_SEED = 2**31 - 1  # as other libraries give: np.random.seed takes 32 bits, and C libraries may take a signed int
STEP_VALUES = "5 values (observation, reward, terminated, truncated, info)"  # what a step returns
# Whatever a third-party environment raises; by sys.exit it would end a run in silence.
RAISED = (Exception, SystemExit)


def known_names() -> list[str]:
    return list(gymnasium.registry)


def gymnasium_spec(env_id: str, episode_limit: int | None = None) -> EnvironmentSpec:
    try:
        env = make_one(env_id, None)
    except EnvironmentFailed as error:
        raise InvalidInput(str(error)) from error.__cause__
    try:
        limit = resolve_limit(episode_limit, None if env.spec is None else env.spec.max_episode_steps)
        observations = getattr(env, "observation_space", None)
        actions = getattr(env, "action_space", None)
        return spec_from_spaces(env_id, "gymnasium", observations, actions, limit)
    except InvalidInput:
        raise
    except RAISED as error:  # a space that is computed, say
        raise InvalidInput(str(_failed(env_id, "spaces", error))) from error
    finally:
        _close(env)


def as_seed(key: int) -> int:
    """A key of 64 bits as a seed below 2^31, which is the key itself if that is."""
    return (key ^ key >> 31 ^ key >> 62) & MAX_SEED


def check_environment(env_id: str) -> str | None:
    """Refuse an environment that fails at once: one of them is reset, and takes each action.

    Returns a note where two resets with one seed give different observations.
    """
    environments = GymnasiumEnvironments(env_id, 1)
    try:
        first, again = (environments.reset([MAX_SEED]) for _ in range(2))
        for action in range(min(environments.spec.actions, TRIED_ACTIONS)):
            environments.step([action])
    except EnvironmentFailed as error:
        raise InvalidInput(str(error)) from error.__cause__
    finally:
        environments.close()
    if np.array_equal(first, again):
        return None
    return (
        f"{env_id}: reset(seed={MAX_SEED}) gave different observations twice, so results cannot be repeated: call "
        "super().reset(seed=seed) in its reset, and draw from self.np_random"
    )


class CheckedEnvironment:
    """One environment; exceptions and results of the wrong type or shape are reported by name."""

    def __init__(self, env: gymnasium.Env[Any, Any], spec: EnvironmentSpec) -> None:
        self._env, self._spec = env, spec
        self._first_action = int(getattr(env.action_space, "start", 0))  # of a Discrete space
        self._bins = action_table(spec.name, env.action_space) if split_bins(spec.name).bins else None  # [n, d]

    def reset(self, key: int | None = None) -> NDArray[Any]:
        """The first observation of a new episode, from a key or as the environment's own generator continues."""
        try:
            returned: Any = self._env.reset(seed=None if key is None else as_seed(key))
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise self._invalid_return(
                    f"a {type(returned).__name__} in its reset, where (observation, info) is wanted"
                )
            return self._check_observation(returned[0], "reset")
        except EnvironmentFailed:
            raise
        except RAISED as error:
            raise _failed(self._spec.name, "reset", error) from error

    def step(self, action: int) -> tuple[NDArray[Any], np.float32, bool, bool]:
        """Observation, reward, terminated, and truncated where it is not terminated."""
        try:
            obs, reward, terminated, truncated = self._step(action)
            observation, got = self._check_observation(obs, "step"), np.float32(float(reward))
        except EnvironmentFailed:
            raise
        except RAISED as error:
            raise _failed(self._spec.name, "step", error) from error
        if not math.isfinite(got):  # agents would be frozen for it
            raise self._invalid_return(f"reward {got} in its step: it must be finite")
        return observation, got, terminated, truncated and not terminated

    def render(self) -> Any:
        try:
            return self._env.render()
        except RAISED as error:
            raise _failed(self._spec.name, "render", error) from error

    def close(self) -> None:
        _close(self._env)

    def _step(self, action: int) -> tuple[Any, Any, bool, bool]:
        """Observation, reward, terminated, truncated."""
        # An array is a copy, which the environment may change.
        own_action = self._first_action + action if self._bins is None else self._bins[action].copy()
        try:
            obs, reward, terminated, truncated, _ = self._env.step(own_action)
        except (TypeError, ValueError) as error:
            if (returned := _wrong_step_tuple(error)) is None:
                raise
            raise self._invalid_return(f"{returned} in its step: return {STEP_VALUES}") from None
        if not (_is_flag(terminated) and _is_flag(truncated)):
            name, value = ("truncated", truncated) if _is_flag(terminated) else ("terminated", terminated)
            raise self._invalid_return(
                f"{name} {_shown(value)} in its step, neither True nor False: return {STEP_VALUES}"
            )
        return obs, reward, bool(terminated), bool(truncated)

    def _check_observation(self, observation: Any, doing: str) -> NDArray[Any]:
        """An observation of the space's shape: a smaller one would fill a row by being repeated."""
        if self._spec.first_state is not None:
            try:
                if np.ndim(observation) == 0:
                    return one_hot(self._spec, observation)
            except InvalidInput:
                pass
            raise self._invalid_return(
                f"observation {_shown(observation)} in its {doing}, which is not a state of its observation_space"
            )
        if (shape := np.shape(observation)) != self._spec.observation_shape:
            raise self._invalid_return(
                f"an observation of shape {shape} in its {doing}, and its observation_space has "
                f"{self._spec.observation_shape}"
            )
        return np.asarray(observation, self._spec.observation_dtype)

    def _invalid_return(self, words: str) -> EnvironmentFailed:
        return EnvironmentFailed(f"the environment {self._spec.name} gave {words}")


class GymnasiumEnvironments(Environments):
    """E Gymnasium environments, each with its own generator, started by `reset(seed=...)`, a seed below 2^31."""

    def __init__(self, env_id: str, count: int, *, episode_limit: int | None = None) -> None:
        self.spec, self.count = gymnasium_spec(env_id, episode_limit), count
        self._envs: list[CheckedEnvironment] = []
        self._observation = self._empty()  # [E, ...] what was last there to act on
        self._sent: tuple[list[int], Iterable[int]] | None = None  # actions, rows to step

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        keys = as_keys(seeds, self.count)
        if not self._envs:
            limit = self.spec.episode_limit
            envs = (make_one(self.spec.name, limit) for _ in range(self.count))
            self._envs = [CheckedEnvironment(env, self.spec) for env in envs]
        self._sent = None
        observation = self._empty()
        for row, (env, key) in enumerate(zip(self._envs, keys.tolist(), strict=True)):
            observation[row] = env.reset(key)
        check_finite(self.spec.name, observation, "reset")
        self._observation = observation
        return observation

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        is_ready = bool(self._envs) and self._sent is None
        checked = self._check_actions(actions, np.int64, is_ready=is_ready).tolist()
        rows = range(self.count) if active is None else np.flatnonzero(active).tolist()
        self._sent = checked, rows

    def receive(self) -> StepResult:
        (actions, rows), self._sent = self._pending(self._sent), None
        final = self._observation.copy()  # [E, ...]
        reward = np.zeros(self.count, np.float32)
        terminated = np.zeros(self.count, np.bool_)
        truncated = np.zeros(self.count, np.bool_)
        ended = []  # rows
        for row in rows:
            final[row], reward[row], is_terminated, is_truncated = self._envs[row].step(actions[row])
            if is_terminated or is_truncated:
                terminated[row], truncated[row] = is_terminated, is_truncated
                ended.append(row)
        check_finite(self.spec.name, final, "step")
        observation = final
        if ended:
            observation = final.copy()
            for row in ended:
                observation[row] = self._envs[row].reset()
            check_finite(self.spec.name, observation, "reset")
        self._observation = observation
        return StepResult(observation, reward, terminated, truncated, final)

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs, self._sent = [], None

    def _empty(self) -> NDArray[Any]:
        return np.zeros((self.count, *self.spec.observation_shape), self.spec.observation_dtype)


def check_finite(name: str, observation: NDArray[Any], doing: str) -> None:
    """Refuse observations [E, ...] that are not all finite: agents would be frozen for them."""
    # Counted: `all` takes three times as long for a few numbers.
    if observation.dtype.kind == "f" and np.count_nonzero(np.isfinite(observation)) < observation.size:
        row = next(row for row in observation if not np.isfinite(row).all())
        raise EnvironmentFailed(
            f"the environment {name} gave observation {_shown(row.tolist())} in its {doing}: it must be finite"
        )


def make_one(env_id: str, episode_limit: int | None) -> gymnasium.Env[Any, Any]:
    """An environment without the passive checker, which costs time and complains of spaces; bins are its caller's."""
    try:
        with registered_names_named(env_id):
            return gymnasium.make(split_bins(env_id).env_id, max_episode_steps=episode_limit, disable_env_checker=True)
    except InvalidInput:
        raise
    except (gymnasium.error.Error, ImportError) as reason:
        check_module(env_id, reason)
        raise InvalidInput(f"Gymnasium cannot make {env_id!r} here: {one_line(reason)}") from reason
    except RAISED as error:
        module = env_id.partition(":")[0] if ":" in env_id else ""
        # Gymnasium imports the module before it makes an environment of it.
        doing = "constructor" if not module or module in sys.modules else f"module {module}"
        raise _failed(env_id, doing, error) from error


def _shown(value: object) -> str:
    return one_line(repr(value))[:60]


def _is_flag(value: object) -> bool:
    """True or False; as a whole number or an array without axes too, of any library."""
    if value is True or value is False:
        return True
    array = np.asarray(value)
    return array.ndim == 0 and array.dtype.kind in "biu"


def _wrong_step_tuple(error: Exception) -> str | None:
    """The value that a step returned, if the error is that it could not be unpacked into five values.

    Gymnasium's own wrappers, like the time limit, unpack it before we do.
    """
    (frame, _), *_ = reversed(list(traceback.walk_tb(error.__traceback__)))
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    if package not in ("gymnasium", "valueshare") or "unpack" not in str(error):
        return None
    if "too many" in str(error):
        return "more than 5 values"
    count = re.search(r"got (\d+)", str(error))
    return f"{count[1]} values" if count else "something else"


def _failed(name: str, doing: str, error: BaseException) -> EnvironmentFailed:
    """The error to raise for an exception of an environment; exceptions of a signal handler pass through.

    Ray stops its workers by a signal, and repeats their task on another one.
    """
    if _by_signal(error):
        raise error
    return EnvironmentFailed(f"the environment {name} raised {exception_text(error)} in its {doing}")


def _by_signal(error: BaseException) -> bool:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    codes = [getattr(handler, "__code__", None) for handler in handlers]
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _close(env: gymnasium.Env[Any, Any]) -> None:
    try:
        env.close()
    except RAISED as error:  # its episodes are over: nothing depends on how it ends
        if _by_signal(error):
            raise
