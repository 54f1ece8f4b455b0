"""Environments: E of them stepped at once, behind one interface (`base.Environments`)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import get_args

from valueshare.envs import atari_games
from valueshare.envs.action_bins import split_bins
from valueshare.envs.atari_games import AtariGame, atari57, atari_game, is_atari
from valueshare.envs.backends import BACKENDS, MakeOptions
from valueshare.envs.base import Environments, EnvironmentSpec, StepResult
from valueshare.envs.lunar_lander import LUNAR_LANDERS
from valueshare.envs.minatar import MINATAR_GAMES, minatar_names
from valueshare.envs.protocols import AtariProtocol, atari_protocol, atari_protocols
from valueshare.errors import InvalidInput
from valueshare.printing import print_line
from valueshare.schema import ENV_NAME, Backend
from valueshare.text import either, suggestion

__all__ = [
    "make_environments",
    "environment_spec",
    "Environments",
    "EnvironmentSpec",
    "StepResult",
    "AtariProtocol",
    "atari_protocol",
    "atari_protocols",
    "AtariGame",
    "atari_game",
    "atari57",
]


def make_environments(
    env_ids: str | Sequence[str],
    count: int,
    *,
    backend: Backend | None = None,
    threads: int | None = None,
    episode_limit: int | None = None,
    protocol: str | AtariProtocol | None = None,
    lockstep: bool = False,
    evaluation: bool = False,
    device: str = "cpu",
) -> Environments:
    """`count` environments: Atari games of ALE, MinAtar games, LunarLander, those that EnvPool has, else Gymnasium's.

    `env_ids` is one name for all, or one each: Atari games may be mixed, and so may MinAtar games. `threads` step all
    but Gymnasium's (default: one per core), which are stepped in a loop. `episode_limit` replaces
    the environment's own limit, in steps. `protocol` is Atari's alone (default: machado-2018). So are `lockstep`, which
    is faster and cannot hold single environments still, and `evaluation`, in which a lost life never ends an episode.
    `device` is where Gymnax's run, if JAX has it. A name like LunarLanderContinuous-v3-bins7x7 has bins of Box actions
    as its actions. Call `reset(seeds)` first.
    """
    if count < 1:
        raise InvalidInput(f"`count = {count}`: there is at least 1 environment")
    if threads is not None and threads < 1:
        raise InvalidInput(f"`threads = {threads}`: give at least 1, or None for one per core")
    names = [env_ids] * count if isinstance(env_ids, str) else list(env_ids)
    if len(names) != count:
        raise InvalidInput(f"{len(names)} names for {count} environments: give one, or one each")
    options = MakeOptions(threads, episode_limit, protocol, lockstep, evaluation, device)
    return BACKENDS[_backend_of_all(names, backend, protocol)].make(names, options)


def environment_spec(
    env_ids: str | Sequence[str], backend: Backend | None = None, protocol: str | AtariProtocol | None = None
) -> EnvironmentSpec:
    """The spec that `make_environments` with the same arguments would have."""
    names = [env_ids] if isinstance(env_ids, str) else list(env_ids)
    if not names:
        raise InvalidInput("there is no name of an environment: give at least one")
    return BACKENDS[_backend_of_all(names, backend, protocol)].spec(names, protocol)


def announce_imports(env_ids: Iterable[str]) -> None:
    """Print a line for each environment whose name makes Gymnasium import a module, which is code."""
    for name in dict.fromkeys(env_ids):
        if ":" in name:
            print_line(f"importing {name.partition(':')[0]} for {name}")


def _backend_of_all(names: Sequence[str], backend: Backend | None, protocol: str | AtariProtocol | None) -> Backend:
    by_name = {name: _backend_of(name, backend) for name in dict.fromkeys(names)}
    first, chosen = next(iter(by_name.items()))
    can_mix = set(by_name.values()) == {chosen} and all(map(BACKENDS[chosen].can_mix, by_name))
    if len(by_name) > 1 and not can_mix:
        raise InvalidInput(f"{', '.join(by_name)} cannot be mixed: only Atari games can, or only MinAtar games")
    if protocol is not None and not BACKENDS[chosen].has_protocols:
        raise InvalidInput(f"{first} is not an Atari game of ALE: leave out `atari_protocol`")
    return chosen


def _backend_of(env_id: str, backend: Backend | None) -> Backend:
    """The given backend, or the first that has the environment; a name that is not known is refused."""
    if backend is not None and backend not in get_args(Backend):
        raise InvalidInput(f"`backend = {backend!r}`: choose {either(map(repr, get_args(Backend)))}")
    if backend == "ale" or (backend is None and is_atari(env_id)):
        atari_game(env_id)  # or refuse, with the games that are near
        return "ale"
    without_bins = split_bins(env_id).env_id
    is_valid = re.match(ENV_NAME, env_id) is not None  # else it is of no environment, and its module is not imported
    names: dict[Backend, list[str]] = {}
    for candidate, info in BACKENDS.items():
        if backend == candidate or (backend is None and info.may_have(env_id)):
            names[candidate] = info.known_names(without_bins)
            if is_valid and (without_bins if info.has_bins else env_id) in names[candidate]:
                return candidate
    if is_valid and "gymnasium" in names and ":" in env_id:  # module:Name-v0: the module, once imported, registers it
        return "gymnasium"
    hint = _similar_names(env_id, without_bins, names) if backend is None else _nearest(without_bins, names)
    raise InvalidInput(f"there is no environment {env_id!r}: {hint}")


def _similar_names(env_id: str, without_bins: str, names: Mapping[Backend, list[str]]) -> str:
    """A hint for a name that no backend has; Atari and MinAtar games are known by their short names."""
    if "minatar" in env_id.lower():  # Breakout is near too, and another game
        meant = [name for name in MINATAR_GAMES if name.lower() in env_id.lower()]
        games = [f"{name}-MinAtar" for name in meant or MINATAR_GAMES]
        return _nearest(games[0] if meant else without_bins, {"numba": games})
    others = {backend: [name for name in known if not is_atari(name)] for backend, known in names.items()}
    return _nearest(
        without_bins, {**others, "ale": atari_games.known_names(), "numba": [*minatar_names(), *LUNAR_LANDERS]}
    )


def _nearest(env_id: str, names: Mapping[Backend, list[str]]) -> str:
    if "/" in env_id:  # of Gymnasium's namespaces: known once its package is imported
        return f"put its module before its name, like my_package:{env_id}"
    known = sorted(name for name in chain.from_iterable(names.values()) if "/" not in name)
    newest = {_without_version(name): name for name in known}
    none_near = f"no {either(BACKENDS[backend].kind for backend in names)} has a similar name"
    return suggestion(_without_version(env_id), newest, cutoff=0.7) or none_near  # not CartpoleSwingup for CartPole


def _without_version(name: str) -> str:
    """The name in small letters: equal versions do not make two names similar."""
    return re.sub(r"-v\d+$", "", name.lower())
