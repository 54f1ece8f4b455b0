"""EnvPool's environments: C++ on its own threads, so that learning overlaps their steps.

What EnvPool does by itself, and how it is used here:

- A pool resets an ended episode in the step *after* its end, ignoring that step's action. Here ended environments are
  reset by id before `receive` returns: the same draws, one step sooner.
- A pool calls an episode that terminates on the very step of its limit truncated. So the pool gets a limit that is
  never reached, and the steps are counted here: termination wins.
- A pool takes its seeds only when it is made. `reset` makes a new one (2,040 LunarLanders: 0.1 s).
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.envs.action_bins import action_table, split_bins
from valueshare.envs.base import (
    Actions,
    Environments,
    EnvironmentSpec,
    Seeds,
    StepResult,
    as_keys,
    mix_to_int32,
    resolve_limit,
    spec_from_spaces,
)
from valueshare.envs.one_hot import encode
from valueshare.errors import InvalidInput, one_line
from valueshare.extras import importing
from valueshare.host_memory import return_freed_memory

_JUMANJI = "envpool.jumanji.registration"
_NEEDED = "EnvPool", "train", ", or backend = 'gymnasium'"
_UNLIMITED = 2**31 - 1  # what EnvPool writes for "no limit"


def known_names(wanted: str = "") -> list[str]:
    """EnvPool's environments; Jumanji's only if one of them is `wanted`, or was before."""
    package = _envpool()
    if wanted and ":" not in wanted and wanted not in package.list_all_envs():
        with importing(*_NEEDED):
            _import_jumanji()
    return list(package.list_all_envs())


def envpool_spec(env_id: str, episode_limit: int | None = None) -> EnvironmentSpec:
    spec = _pool_spec(env_id)
    own_limit = int(spec.config.max_episode_steps)
    if spec.config.max_num_players != 1:
        raise InvalidInput(f"{env_id} has several players: choose an environment with one")
    with _without_space_warnings():
        spaces = spec.observation_space, spec.action_space
    limit = resolve_limit(episode_limit, None if own_limit >= _UNLIMITED else own_limit)
    return spec_from_spaces(env_id, "envpool", *spaces, limit)


def pool_actions(env_id: str) -> NDArray[Any]:
    """The action that a pool takes for each of n, [n] or [n, d]."""
    with _without_space_warnings():
        table = action_table(env_id, _pool_spec(env_id).action_space)
    return table if table.dtype.kind == "f" else table.astype(np.int32)


class EnvPoolEnvironments(Environments):
    """E environments of one pool in synchronous mode, results in the order of the rows sent."""

    def __init__(
        self, env_id: str, count: int, *, threads: int | None = None, episode_limit: int | None = None
    ) -> None:
        self.spec, self.count = envpool_spec(env_id, episode_limit), count
        self._threads = min(threads or available_cores(), count)
        self._actions = pool_actions(env_id)
        self._pool: Any = None
        self._elapsed = np.zeros(count, np.int64)  # [E] steps in the running episode
        self._observation = np.empty(0)  # [E, ...] the last observations
        self._all = np.arange(count, dtype=np.int32)
        self._sent: NDArray[np.int32] | None = None  # rows under way

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        env_seeds = mix_to_int32(as_keys(seeds, self.count))
        self.close()  # first: two pools would need twice the memory and threads
        limit = self.spec.episode_limit
        with _without_space_warnings():
            self._pool = _envpool().make_gymnasium(
                split_bins(self.spec.name).env_id,
                num_envs=self.count,
                num_threads=self._threads,
                seed=env_seeds,
                max_episode_steps=_UNLIMITED if limit is None else min(limit + 1, _UNLIMITED),
            )
            self._observation = encode(self.spec, self._pool.reset()[0])
        self._elapsed[:] = 0
        return self._observation

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        # A pool that is asked for a result that nothing was sent for waits for ever.
        is_ready = self._pool is not None and self._sent is None
        numbers = self._check_actions(actions, np.int64, is_ready=is_ready)
        sent = self._actions[numbers]  # [E], or [E, d] where they are bins
        rows = self._all if active is None else np.flatnonzero(active).astype(np.int32)
        if rows.size:
            self._pool.send(sent if active is None else sent[rows], rows)
        self._sent = rows

    def receive(self) -> StepResult:
        rows, self._sent = self._pending(self._sent), None
        if rows.size == self.count:
            observation, reward, terminated, truncated, _ = self._pool.recv()
            final = encode(self.spec, observation)  # [E, ...]
            self._elapsed += 1
        else:
            final = self._observation.copy()
            reward = np.zeros(self.count, np.float32)
            terminated, truncated = np.zeros((2, self.count), np.bool_)
            if rows.size:
                obs, reward[rows], terminated[rows], truncated[rows], _ = self._pool.recv()
                final[rows] = encode(self.spec, obs)
            self._elapsed[rows] += 1
        if self.spec.episode_limit is not None:
            # An environment that is not stepped was reset if it ended, so it is below its limit.
            truncated = truncated | (self._elapsed >= self.spec.episode_limit)
        next_observation, over = final, terminated | truncated
        if np.count_nonzero(over):
            ended = np.flatnonzero(over).astype(np.int32)
            truncated = truncated & ~terminated
            next_observation = final.copy()
            next_observation[ended] = encode(self.spec, self._pool.reset(ended)[0])
            self._elapsed[ended] = 0
        self._observation = next_observation
        reward = reward.astype(np.float32, copy=False)
        return StepResult(next_observation, reward, terminated, truncated, final)

    def close(self) -> None:
        if self._pool is None:
            return
        self._pool, self._sent = None, None
        return_freed_memory()  # a pool has threads: without this, every evaluation held 60 kB more per LunarLander


def _envpool() -> Any:
    """The package, imported on first use: it takes a second and is an extra."""
    if "envpool" not in sys.modules:
        _import_envpool()
    import envpool

    return envpool


def _import_envpool() -> None:
    """Import EnvPool without two modules that would take longer than all others.

    JAX is for a feature that is not used here, and Jumanji's environments import Matplotlib. So the pools made here
    have no `xla()`, and Jumanji's environments are not registered, also for others in this process who import EnvPool
    later.
    """
    hidden: dict[str, Any] = {_JUMANJI: ModuleType(_JUMANJI)}
    if "jax" not in sys.modules:
        hidden["envpool.python.lax"] = None  # Python's mark for a module that cannot be imported
    sys.modules.update(hidden)
    try:
        with importing(*_NEEDED):
            import envpool  # noqa: F401
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def _import_jumanji() -> None:
    """Add Jumanji's names to EnvPool's list, and leave Matplotlib unchanged.

    Jumanji gives Matplotlib a folder in /tmp, the same for all users, who get a warning if it is another one's.
    """
    import matplotlib

    matplotlib.get_configdir()  # kept from the first call on
    before = dict(os.environ)
    import envpool.jumanji.registration  # noqa: F401

    for name in ("MPLCONFIGDIR", "MPLBACKEND"):
        if name not in before:
            os.environ.pop(name, None)


def _pool_spec(env_id: str) -> Any:
    try:
        return _envpool().make_spec(split_bins(env_id).env_id)
    except (ImportError, RuntimeError) as reason:  # some families need libraries of the system
        raise InvalidInput(f"EnvPool cannot make {env_id!r} here: {one_line(reason)}") from reason


@contextmanager
def _without_space_warnings() -> Iterator[None]:
    """EnvPool writes the bounds of float32 spaces as float64, and Gymnasium warns of each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
        yield
