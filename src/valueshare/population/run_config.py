"""The `config.json` of a training run, checked as a whole and without PyTorch: for `resume`, `report` and others."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.algorithm_info import ALGORITHM_INFO
from valueshare.errors import InvalidInput, one_line, without_marks
from valueshare.population.agents import populations, table_digest
from valueshare.population.settings import TrainingSettings
from valueshare.records import AGENTS
from valueshare.result_files import SizeLimit, Unreadable, read_parquet
from valueshare.schema import CONFIG, Invalid, TrainingConfig, validate_as

RESTORE = "restore the original file, or start the run again in another folder"  # a missing or damaged file


class NotOneRun(Invalid):
    """A configuration and a table of agents that do not belong together."""


def checked_config(values: Mapping[str, Any]) -> tuple[TrainingConfig, dict[str, TrainingSettings]]:
    """The configuration, and the settings of each environment; `Invalid` or `InvalidInput` where it does not fit."""
    stored = validate_as(values, TrainingConfig)
    settings = {env: TrainingSettings.from_json(own) for env, own in stored.settings.items()}
    for env, earlier in stored.extended_from.items():
        steps = [*earlier, settings[env].steps]
        if not earlier or sorted(set(steps)) != steps:
            raise Invalid(f"extended_from of {env} does not grow to its steps")
    return stored, settings


def check_agents_of_run(stored: TrainingConfig, agents: pl.DataFrame) -> None:
    """Refuse a table of agents that this configuration cannot belong to; `check_columns` is called before."""
    if unknown := set(agents["env"].unique()) - stored.settings.keys():
        raise NotOneRun(f"there are no settings of {', '.join(sorted(unknown))}")
    if others := set(agents["algorithm"].unique()) - ALGORITHM_INFO.keys():
        raise NotOneRun(f"algorithm = {min(others)!r} is unknown")
    if table_digest(agents) != stored.agents:
        raise NotOneRun("the table of agents has another checksum")
    if stored.chunks:
        family = {env: stored.families.get(env, env) for env in stored.settings}
        heights = {f"population-{i}": group.height for i, group in enumerate(populations(agents, family))}
        for name, count in stored.chunks.items():
            if count > heights.get(name, 0):
                raise NotOneRun(f"chunks of {name}: {count}, and it has {heights.get(name, 0)} agents")


def read_agents(folder: Path, limit: SizeLimit | None = None) -> pl.DataFrame:
    """The table of agents of a run folder; one that is missing or cannot be read is refused."""
    try:
        return read_parquet(folder / AGENTS, limit)
    except FileNotFoundError as error:
        raise InvalidInput(f"{folder / AGENTS} is missing: {RESTORE}") from error
    except Unreadable as error:
        raise InvalidInput(f"{error}; {RESTORE}") from error
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damaged_agents(folder, one_line(error)) from error


def damaged_agents(folder: Path, reason: str) -> InvalidInput:
    return InvalidInput(f"{folder / AGENTS} is damaged ({reason}): {RESTORE}")


def check_columns(agents: pl.DataFrame) -> None:
    """Refuse a table without the columns of agents, or with other values than JSON has."""
    for name in ("agent", "seed"):
        if name not in agents.columns:
            raise InvalidInput(f"it has no column {name!r}")
    for name in ("env", "algorithm"):
        if agents.schema.get(name) != pl.String or agents[name].null_count():
            raise InvalidInput(f"{name} is not a column of names")
    for name, kind in agents.schema.items():
        if not (kind.is_integer() or kind.is_float() or kind == pl.String):
            raise InvalidInput(f"{name} is not a column of numbers or names")


@contextmanager
def damage_named(folder: Path) -> Iterator[None]:
    """Turn errors of `checked_config` and `check_agents_of_run` into refusals that name the files of a run folder."""
    try:
        yield
    except NotOneRun as error:
        files = f"{folder}: {CONFIG} and {AGENTS} are not of one run"
        raise InvalidInput(f"{files} ({error}): restore the original files") from error
    except (Invalid, InvalidInput) as error:
        raise InvalidInput(f"{folder / CONFIG} is damaged ({without_marks(error)}): {RESTORE}") from error
