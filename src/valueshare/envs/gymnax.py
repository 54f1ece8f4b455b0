"""Gymnax's environments, written in JAX: classic control, bsuite, and the five MinAtar games.

All E environments are one compiled program on the CPU or the GPU. It holds one random key per environment,
folded with the number of steps that this environment has taken: an environment depends on its own seed and
actions alone. Observations and rewards can stay where the program runs (`*_on_device`).

MinAtar games are those of the backend `numba` in everything that `envs/minatar` defines. Gymnax's rules differ in rare
states: in Asterix, an entity that finds no free row removes one; in Seaquest, a submarine that moves into a bullet does
not shoot any more, and among several entities in one cell another may be taken.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import Actions, Environments, EnvironmentSpec, Seeds, StepResult, as_keys, resolve_limit
from valueshare.envs.minatar import MINATAR_SHAPE, STICKY, game_limit, is_minatar, minatar_spec
from valueshare.errors import InvalidInput, first_line
from valueshare.extras import importing, install_command
from valueshare.files import cache_folder

_log = logging.getLogger(__name__)

Tree = Any  # a pytree of JAX arrays


def has_gymnax_name(env_id: str) -> bool:
    """Whether names like this one are Gymnax's alone; its CartPole-v1 has the name that Gymnasium uses too."""
    return env_id.endswith(("-bsuite", "-misc"))


def known_names() -> list[str]:
    return list(_gymnax().registered_envs)


def gymnax_spec(env_ids: Sequence[str], episode_limit: int | None = None) -> EnvironmentSpec:
    """The spec that these environments share; MinAtar games may be mixed, others not."""
    games = list(dict.fromkeys(env_ids))
    if len(games) > 1 and not all(is_minatar(name) for name in games):
        raise InvalidInput(f"{', '.join(games)} cannot be mixed: only MinAtar games and Atari games can")
    if is_minatar(games[0]):
        return replace(minatar_spec(games, episode_limit), backend="jax")
    env, params = _make_env(games[0])
    actions, observations = _spaces(games[0], env, params)
    states = getattr(observations, "n", None)  # of Discrete ones
    kind = np.dtype(observations.dtype)
    return EnvironmentSpec(
        name="+".join(games),
        backend="jax",
        observation_shape=(int(states),) if states else tuple(observations.shape),
        observation_dtype=np.dtype(np.bool_ if states else kind if kind.kind in "iub" else np.float32),
        actions=int(actions.n),
        episode_limit=resolve_limit(episode_limit, int(params.max_steps_in_episode)),
        first_state=0 if states else None,
    )


class BatchState(NamedTuple):
    """The environments between two steps; a pytree."""

    states: tuple[Tree, ...]  # of each game, [E of that game, ...]
    keys: Any  # [E, 2] uint32
    steps: Any  # [E] uint32: steps that the environment has taken since its seed was given
    action: Any  # [E] int32: the action before
    observation: Any  # [E, ...] to act on next


class GymnaxEnvironments(Environments):
    """E environments as one program, on `device` (cpu, cuda, cuda:1) where JAX has it, else on the CPU."""

    def __init__(self, env_ids: Sequence[str], *, episode_limit: int | None = None, device: str = "cpu") -> None:
        self.spec = gymnax_spec(env_ids, episode_limit)
        self.count = len(env_ids)
        self.program = make_program(tuple(env_ids), episode_limit)
        self._device = _jax_device(device)
        self._active = _jax().device_put(np.ones(self.count, np.bool_), self._device)
        self._batch: BatchState | None = None
        self._stepped: StepResult | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the program runs on a GPU."""
        return bool(self._device.platform == "gpu")

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        return np.asarray(self.reset_on_device(seeds))

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        checked = self._check_actions(actions, np.int32, is_ready=True)  # or `send_on_device` refuses
        put = _jax().device_put
        self.send_on_device(put(checked, self._device), None if active is None else put(active, self._device))

    def receive(self) -> StepResult:
        return StepResult(*(np.asarray(array) for array in self.receive_on_device()))

    def close(self) -> None:
        self._batch = self._stepped = None

    def reset_on_device(self, seeds: Seeds) -> Any:
        """Like `reset`, with a JAX array as its result."""
        words = as_keys(seeds, self.count).view(np.uint32).reshape(self.count, 2)  # the low word first
        self._batch, self._stepped = self.program.reset(_jax().device_put(words, self._device)), None
        return self._batch.observation

    def send_on_device(self, actions: Any, active: Any = None) -> None:
        """Like `send`, with JAX arrays, actions of int32; returns before the step is computed."""
        if self._batch is None or self._stepped is not None:
            raise RuntimeError("send follows reset or receive")
        mask = self._active if active is None else active
        self._batch, self._stepped = self.program.step(self._batch, actions, mask)

    def receive_on_device(self) -> StepResult:
        """Like `receive`, with JAX arrays, which may still be being computed."""
        stepped, self._stepped = self._pending(self._stepped), None
        return stepped


class Program(NamedTuple):
    """Compiled functions: keys [E, 2] -> batch; (batch, actions [E], active [E]) -> (batch, result of JAX arrays)."""

    reset: Callable[[Any], BatchState]
    step: Callable[[BatchState, Any, Any], tuple[BatchState, StepResult]]


@cache
def make_program(env_ids: tuple[str, ...], episode_limit: int | None = None) -> Program:
    """The program of these environments, in this order."""
    jax, jnp = _jax(), _jax().numpy
    spec = gymnax_spec(env_ids, episode_limit)
    names = np.array(env_ids)
    games = [_Game(name, np.flatnonzero(names == name), episode_limit) for name in dict.fromkeys(env_ids)]
    sticky = STICKY if is_minatar(env_ids[0]) else 0.0
    no_observation = np.zeros((len(env_ids), *spec.observation_shape), spec.observation_dtype)

    def scatter(parts: Sequence[Any], like: Any) -> Any:
        """[E of a game, ...] of every game -> [E, ...]."""
        whole = jnp.zeros_like(like)
        for game, part in zip(games, parts, strict=True):
            whole = whole.at[game.rows].set(part.astype(whole.dtype))
        return whole

    def new_keys(keys: Any, steps: Any) -> Any:
        """Two keys per environment for one step: of the sticky action, and of the game."""
        typed = jax.random.wrap_key_data(keys, impl="threefry2x32")
        return jax.vmap(lambda key, step: jax.random.split(jax.random.fold_in(key, step)))(typed, steps)  # [E, 2]

    def reset(keys: Any) -> BatchState:
        steps = jnp.zeros(len(env_ids), jnp.uint32)
        game_keys = new_keys(keys, steps)[:, 1]
        parts = [game.reset(game_keys[game.rows]) for game in games]
        observation = scatter([game.encode(obs) for game, (obs, _) in zip(games, parts, strict=True)], no_observation)
        return BatchState(
            tuple(state for _, state in parts), keys, steps, jnp.zeros(len(env_ids), jnp.int32), observation
        )

    def step(batch: BatchState, actions: Any, active: Any) -> tuple[BatchState, StepResult]:
        steps = batch.steps + active.astype(jnp.uint32)
        keys = new_keys(batch.keys, steps)
        repeated = jax.vmap(jax.random.uniform)(keys[:, 0]) < sticky
        actions = jnp.where(repeated, batch.action, actions)
        parts = [
            game.step(keys[game.rows, 1], state, actions[game.rows], active[game.rows])
            for game, state in zip(games, batch.states, strict=True)
        ]
        rows = jnp.zeros(len(env_ids), jnp.float32)
        terminated = scatter([result.terminated for _, result in parts], rows).astype(bool) & active
        truncated = scatter([result.truncated for _, result in parts], rows).astype(bool) & active & ~terminated
        mask = active.reshape(-1, *(1,) * (batch.observation.ndim - 1))
        stepped = StepResult(
            jnp.where(mask, scatter([r.observation for _, r in parts], batch.observation), batch.observation),
            jnp.where(active, scatter([r.reward for _, r in parts], rows), 0.0),
            terminated,
            truncated,
            jnp.where(mask, scatter([r.final_observation for _, r in parts], batch.observation), batch.observation),
        )
        action = jnp.where(active, actions, batch.action)
        return BatchState(tuple(state for state, _ in parts), batch.keys, steps, action, stepped.observation), stepped

    return Program(jax.jit(reset), jax.jit(step))


class _Game:
    """The environments of one name: their rows among all, and one function each to reset and to step them."""

    def __init__(self, name: str, rows: NDArray[np.intp], episode_limit: int | None) -> None:
        self.rows = rows
        self.env, params = _make_env(name)
        limit = game_limit(name, episode_limit) if is_minatar(name) else episode_limit
        self.params = params if limit is None else params.replace(max_steps_in_episode=limit)
        self.channels_last = is_minatar(name)
        self.states = getattr(self.env.observation_space(params), "n", None)

    def encode(self, observation: Any) -> Any:
        """Observations [E, ...] for agents: Discrete ones one-hot, MinAtar's with channels first.

        All MinAtar games have as many channels.
        """
        jnp = _jax().numpy
        if self.states:
            return observation[..., None] == jnp.arange(self.states)
        if not self.channels_last:
            return observation
        empty = MINATAR_SHAPE[0] - observation.shape[-1]
        return jnp.pad(jnp.moveaxis(observation, -1, 1), ((0, 0), (0, empty), (0, 0), (0, 0)))

    def reset(self, keys: Any) -> tuple[Any, Tree]:
        obs, state = _jax().vmap(self.env.reset_env, in_axes=(0, None))(keys, self.params)
        return obs, _without_weak_types(state)

    def step(self, keys: Any, state: Tree, actions: Any, active: Any) -> tuple[Tree, StepResult]:
        """One step, with a reset where an episode ended; environments that are not active keep their state."""
        jax = _jax()
        obs, after, reward, terminated, truncated, info = jax.vmap(self.env.step, in_axes=(0, 0, 0, None))(
            keys, state, actions, self.params
        )

        def where_active(new: Any, old: Any) -> Any:
            return jax.numpy.where(active.reshape(-1, *(1,) * (old.ndim - 1)), new, old).astype(old.dtype)

        result = StepResult(self.encode(obs), reward, terminated, truncated, self.encode(info["final_observation"]))
        return jax.tree.map(where_active, after, state), result


def _without_weak_types(tree: Tree) -> Tree:
    """Arrays with their types made explicit: weak types would make JAX compile a step twice."""
    return _jax().tree.map(lambda leaf: _jax().lax.convert_element_type(leaf, leaf.dtype), tree)


@cache
def _make_env(name: str) -> tuple[Any, Any]:
    """An environment and its default parameters."""
    try:
        env, params = _gymnax().make(name, **({"use_minimal_action_set": False} if is_minatar(name) else {}))
    except Exception as error:  # some download data, others are registered without being there
        raise InvalidInput(f"Gymnax cannot make {name}: {first_line(error)}") from error
    return env, params


def _spaces(name: str, env: Any, params: Any) -> tuple[Any, Any]:
    """The spaces of actions, Discrete, and of observations, Box or Discrete."""
    actions, observations = env.action_space(params), env.observation_space(params)
    for what, space, wanted in (("actions", actions, "Discrete"), ("observations", observations, "Box or Discrete")):
        kind = type(space).__name__
        if kind not in wanted.split(" or "):
            raise InvalidInput(f"{name} has {what} {kind}: choose one with {wanted} {what}")
    return actions, observations


def _jax_device(device: str) -> Any:
    kind, _, number = device.partition(":")
    if kind == "cuda":
        try:
            return _jax().devices("gpu")[int(number or 0)]
        except (RuntimeError, IndexError):
            _log.warning("JAX is installed without CUDA: environments run on the CPU (pip install 'jax[cuda12]')")
    return _jax().devices("cpu")[0]


@cache
def _jax() -> Any:
    """The package, imported on first use."""
    # Without this, JAX takes three quarters of a GPU's memory for itself.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":  # JAX with CUDA would look for a GPU, and log a traceback
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with importing("JAX", "jax"):
        import jax
    if (config := cast(Any, jax.config)).jax_compilation_cache_dir is None:  # to compile takes up to a minute
        config.update("jax_compilation_cache_dir", str(cache_folder("jax")))
    return jax


@cache
def _gymnax() -> Any:
    _jax()
    try:
        import gymnax
    except ImportError as missing:
        raise InvalidInput(f"Gymnax cannot be imported ({missing}): {install_command('jax')}") from missing
    return gymnax
