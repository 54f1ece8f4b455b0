"""Environments: E of them stepped at once, behind one protocol (`base.Environments`)."""

from difflib import get_close_matches
from importlib.util import find_spec

from valueshare.envs.base import Backend, Environments, EnvironmentSpec, StepResult
from valueshare.errors import InvalidInput

__all__ = ["make_environments", "environment_spec", "Environments", "EnvironmentSpec", "StepResult"]


def make_environments(
    env_id: str,
    count: int,
    *,
    backend: Backend | None = None,
    threads: int | None = None,
    episode_limit: int | None = None,
) -> Environments:
    """`count` environments: EnvPool's where it has the id, else Gymnasium's.

    `threads` are EnvPool's (default: one a core); Gymnasium's environments are stepped in a loop.
    `episode_limit` replaces the environment's own limit, in steps. Call `reset(seeds)` first.
    """
    if count < 1:
        raise InvalidInput(f"count = {count}: there is at least 1 environment")
    if threads is not None and threads < 1:
        raise InvalidInput(f"threads = {threads}: give at least 1, or None for one a core")
    # Imported late: EnvPool is an extra and takes a second to load.
    if _backend_of(env_id, backend) == "envpool":
        from valueshare.envs.envpool import EnvPoolEnvironments

        return EnvPoolEnvironments(env_id, count, threads=threads, episode_limit=episode_limit)
    from valueshare.envs.gymnasium import GymnasiumEnvironments

    return GymnasiumEnvironments(env_id, count, episode_limit=episode_limit)


def environment_spec(env_id: str, backend: Backend | None = None) -> EnvironmentSpec:
    """The spec that `make_environments` with the same arguments would have."""
    if _backend_of(env_id, backend) == "envpool":
        from valueshare.envs.envpool import envpool_spec

        return envpool_spec(env_id)
    from valueshare.envs.gymnasium import gymnasium_spec

    return gymnasium_spec(env_id)


def _backend_of(env_id: str, backend: Backend | None) -> Backend:
    from valueshare.envs import envpool, gymnasium

    if backend not in (None, "envpool", "gymnasium"):
        raise InvalidInput(f"backend = {backend!r}: choose 'envpool' or 'gymnasium'")
    names: dict[str, list[str]] = {}
    if backend == "envpool" or (backend is None and find_spec("envpool") is not None):
        names["envpool"] = envpool.known_names()
        if env_id in names["envpool"]:
            return "envpool"
    if backend != "envpool":
        names["gymnasium"] = gymnasium.known_names()
        # "module:Name-v0" is Gymnasium's way to import what registers an environment.
        if env_id in names["gymnasium"] or ":" in env_id:
            return "gymnasium"
    raise InvalidInput(f"there is no environment {env_id!r}{_nearest(env_id, names)}")


def _nearest(env_id: str, names: dict[str, list[str]]) -> str:
    by_lower = {name.lower(): name for known in names.values() for name in known}
    near = [by_lower[match] for match in get_close_matches(env_id.lower(), by_lower)]
    if near:
        return f": did you mean {' or '.join(near)}?"
    return f": {' and '.join(names)} know none that is near"
