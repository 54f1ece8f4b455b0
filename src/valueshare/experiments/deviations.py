"""Settings of a study that are not the paper's, in sentences."""

from collections.abc import Container
from typing import Any

from valueshare.population.settings import TrainingSettings


def changed_settings(paper: TrainingSettings, settings: TrainingSettings, ignored: Container[str]) -> list[str]:
    """One sentence per setting that is not the paper's.

    Those in `ignored` are left out: the paper does not state them, or these algorithms do not use them.
    """
    return [
        f"{name.replace('_', ' ')} {_shown(value)} instead of {_shown(getattr(paper, name))}"
        for name, value in settings.to_json().items()
        if name not in ignored and value != getattr(paper, name)
    ]


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "-".join(str(item) for item in value)
    return f"{value:,}" if type(value) is int else str(value)
