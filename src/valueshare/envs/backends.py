"""The backends: the libraries that step environments, and how they differ.

`BACKENDS` has an entry per backend, in the order in which a name is looked up; `Backend` in `schema.py` lists their
names. Libraries are loaded on first use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple

from gymnasium.spaces import Discrete

from valueshare.envs import atari_games, envpool, gymnasium, gymnax
from valueshare.envs.action_bins import action_count
from valueshare.envs.atari import AtariEnvironments, atari_spec
from valueshare.envs.atari_games import is_atari
from valueshare.envs.base import Environments, EnvironmentSpec
from valueshare.envs.envpool import EnvPoolEnvironments, envpool_spec
from valueshare.envs.gymnasium import GymnasiumEnvironments, gymnasium_spec
from valueshare.envs.gymnax import GymnaxEnvironments, gymnax_spec, has_gymnax_name
from valueshare.envs.lunar_lander import LUNAR_LANDERS, is_lunar_lander, lunar_lander_spec
from valueshare.envs.minatar import MINATAR_ACTIONS, is_minatar, minatar_names, minatar_spec
from valueshare.envs.protocols import AtariProtocol, atari_protocol
from valueshare.schema import Backend

SMALL_ENVIRONMENTS = ("CartPole-", "Acrobot-", "MountainCar-")


class MakeOptions(NamedTuple):
    """The arguments of `make_environments` beside the names; each backend reads those that it has."""

    threads: int | None
    episode_limit: int | None
    protocol: str | AtariProtocol | None
    lockstep: bool
    evaluation: bool
    device: str


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """A backend: how its environments are made, and their properties."""

    kind: str  # its environments, as messages name them
    make: Callable[[list[str], MakeOptions], Environments]
    spec: Callable[[list[str], str | AtariProtocol | None], EnvironmentSpec]  # of names and an Atari protocol
    known_names: Callable[[str], list[str]]  # a wanted name may need a part of the library to be loaded
    may_have: Callable[[str], bool]  # whether a name is looked up here if no backend is given
    can_mix: Callable[[str], bool] = lambda _: False  # whether a name may be stepped, and trained, with others
    environment_bytes: Callable[[str], int]  # memory of one environment
    has_bins: bool = False  # a name may end with bins of Box actions, such as -bins7x7
    has_protocols: bool = False  # Atari's protocols apply
    is_threaded: bool = False  # its environments are stepped by threads
    is_slow: bool = False  # steps and resets take so long that processes, threads and a delayed actor pay
    is_third_party: bool = False  # Python code of others: tried before a run, and stepped by one thread at a time
    uses_jax: bool = False


BACKENDS: dict[Backend, BackendInfo] = {
    "ale": BackendInfo(
        kind="Atari game",
        make=lambda names, options: AtariEnvironments(
            names,
            atari_protocol(options.protocol),
            threads=options.threads,
            episode_limit=options.episode_limit,
            lockstep=options.lockstep,
            evaluation=options.evaluation,
        ),
        spec=lambda names, protocol: atari_spec(names, atari_protocol(protocol)),
        known_names=lambda _: atari_games.known_names(),
        may_have=is_atari,
        can_mix=lambda _: True,
        # 32 to 64 were 0.1 to 1.5 MB each, the screen and the ROM included, with the threads of the emulators.
        environment_bytes=lambda _: 1_500_000,
        has_protocols=True,
        is_threaded=True,
        is_slow=True,
    ),
    "numba": BackendInfo(
        kind="compiled environment (MinAtar, LunarLander)",
        make=lambda names, options: _make_compiled(names, options),
        spec=lambda names, _: _compiled_spec(names),
        known_names=lambda _: [*minatar_names(), *LUNAR_LANDERS],
        may_have=lambda name: is_minatar(name) or is_lunar_lander(name),
        can_mix=is_minatar,
        environment_bytes=lambda _: 10_000,
        has_bins=True,
        is_threaded=True,
    ),
    "jax": BackendInfo(
        kind="Gymnax environment",
        make=lambda names, options: GymnaxEnvironments(
            names, episode_limit=options.episode_limit, device=options.device
        ),
        spec=lambda names, _: gymnax_spec(names),
        known_names=lambda _: gymnax.known_names(),
        may_have=has_gymnax_name,
        can_mix=is_minatar,
        environment_bytes=lambda _: 20_000,
        uses_jax=True,
    ),
    "envpool": BackendInfo(
        kind="EnvPool environment",
        make=lambda names, options: EnvPoolEnvironments(
            names[0], len(names), threads=options.threads, episode_limit=options.episode_limit
        ),
        spec=lambda names, _: envpool_spec(names[0]),
        known_names=envpool.known_names,
        may_have=lambda _: find_spec("envpool") is not None,
        # LunarLander is 105 to 155 kB, and 6,000 of CartPole were 23 kB each with the data kept of their episodes.
        environment_bytes=lambda name: 25_000 if name.startswith(SMALL_ENVIRONMENTS) else 150_000,
        has_bins=True,
        is_threaded=True,
    ),
    "gymnasium": BackendInfo(
        kind="Gymnasium environment",
        make=lambda names, options: GymnasiumEnvironments(names[0], len(names), episode_limit=options.episode_limit),
        spec=lambda names, _: gymnasium_spec(names[0]),
        known_names=lambda _: gymnasium.known_names(),
        may_have=lambda _: True,
        environment_bytes=lambda _: 100_000,
        has_bins=True,
        is_third_party=True,
    ),
}


def _compiled_spec(names: list[str]) -> EnvironmentSpec:
    if is_lunar_lander(names[0]):
        return lunar_lander_spec(names[0])
    _check_without_bins(names[0])
    return minatar_spec(names)


def _check_without_bins(game: str) -> None:
    """Refuse bins of a game: the backend has LunarLander's too, whose names may end with bins."""
    action_count(game, Discrete(MINATAR_ACTIONS))


def _make_compiled(names: list[str], options: MakeOptions) -> Environments:
    limits = {"threads": options.threads, "episode_limit": options.episode_limit}
    if is_lunar_lander(names[0]):
        from valueshare.envs.lunar_lander.environments import make_lunar_landers  # imports Numba

        return make_lunar_landers(names[0], len(names), **limits)
    _check_without_bins(names[0])
    from valueshare.envs.minatar.environments import make_minatar  # imports Numba

    return make_minatar(names, **limits)
