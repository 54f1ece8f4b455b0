"""The `config.json` of a training run, checked as a whole and without PyTorch: for `resume`, `report` and others."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from valueshare.population.settings import TrainingSettings
from valueshare.schema import Invalid, TrainingConfig, validate_as
from valueshare.text import ALGORITHM_NAMES


def checked_config(values: Mapping[str, Any]) -> tuple[TrainingConfig, dict[str, TrainingSettings]]:
    """The configuration, and the settings of each environment; `Invalid` or `InvalidInput` where it does not fit."""
    stored = validate_as(values, TrainingConfig)
    settings = {env: TrainingSettings.from_json(own) for env, own in stored.settings.items()}
    for env, earlier in stored.extended_from.items():
        steps = [*earlier, settings[env].steps]
        if not earlier or sorted(set(steps)) != steps:
            raise Invalid(f"extended_from of {env} does not grow to its steps")
    return stored, settings


def check_agents(stored: TrainingConfig, agents: pl.DataFrame) -> None:
    """Refuse a table of agents that this configuration cannot belong to; it has the columns `env` and `algorithm`."""
    if unknown := {str(env) for env in agents["env"].unique()} - stored.settings.keys():
        raise Invalid(f"there are no settings of {', '.join(sorted(unknown))}")
    if others := {str(name) for name in agents["algorithm"].unique()} - ALGORITHM_NAMES.keys():
        raise Invalid(f"algorithm = {min(others)!r}: there is none of that name")
    for name, count in stored.chunks.items():
        if count > agents.height:
            raise Invalid(f"chunks of {name}: {count}, and there are {agents.height} agents")
