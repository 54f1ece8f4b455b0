"""Names that a module registers with Gymnasium, for an environment module:Name-v0 that is not among them."""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher

import gymnasium
from gymnasium.envs import registration

from valueshare.errors import InvalidInput
from valueshare.text import shorten_list


@contextmanager
def registered_names_named(env_id: str) -> Iterator[None]:
    """Refuse an environment module:Name-v0 that its module, once imported, has not registered; say which it has."""
    before = set(registration.registry)
    try:
        yield
    except gymnasium.error.UnregisteredEnv as error:
        module, separator, name = env_id.partition(":")
        if not separator:
            raise
        names = _nearest_first(name, _registered_by(module, before))
        if names:
            hint = f"its module registers {shorten_list([f'{module}:{known}' for known in names])}"
        else:
            hint = f"importing {module} registers no environment: write the module that calls gymnasium.register"
        raise InvalidInput(f"there is no environment {env_id!r}: {hint}") from error


def _registered_by(module: str, before: set[str]) -> list[str]:
    """Names that are new since before the module was imported, or of the same package if it was imported earlier."""
    package = module.partition(".")[0]
    return [name for name, spec in registration.registry.items() if name not in before or _package(spec) == package]


def _package(spec: registration.EnvSpec) -> str:
    """The package of an environment's class or function."""
    entry_point = spec.entry_point
    name = entry_point.partition(":")[0] if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return name.partition(".")[0]


def _nearest_first(name: str, known: list[str]) -> list[str]:
    def distance(other: str) -> float:
        return -SequenceMatcher(None, name.lower(), other.lower()).ratio()

    return sorted(known, key=distance)
