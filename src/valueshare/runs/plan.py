"""What a training run is, before anything of it has run: a table of agents and their settings.

`config.json` of a run folder is a plan as JSON, but for the table, of which it has the checksum.
"""

import hashlib
import json
from typing import Any, NamedTuple

import polars as pl

from valueshare import __version__
from valueshare.envs.base import Backend
from valueshare.errors import InvalidInput
from valueshare.population.agents import populations
from valueshare.population.settings import TrainingSettings

FORMAT = 1  # of the run folder; a newer one is refused
KIND = "training"


class Plan(NamedTuple):
    """Everything that decides the numbers of a run."""

    agents: pl.DataFrame  # the table, one row an agent
    settings: dict[str, TrainingSettings]  # by environment
    backends: dict[str, Backend]  # by environment
    device: str = "cpu"
    compiled: bool = False
    network: str | None = None  # the name of a factory of the caller's own


class Part(NamedTuple):
    """One population of a run."""

    name: str  # of its files
    agents: pl.DataFrame
    settings: TrainingSettings
    backend: Backend

    @property
    def env(self) -> str:
        return str(self.agents["env"][0])

    @property
    def agent_steps(self) -> int:
        """Steps of all its agents together."""
        return self.agents.height * self.settings.total_steps


def parts(plan: Plan) -> list[Part]:
    """The populations, in the order in which they run."""
    return [
        Part(f"population-{number}", agents, plan.settings[env], plan.backends[env])
        for number, agents in enumerate(populations(plan.agents))
        for env in [str(agents["env"][0])]
    ]


def config(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON values."""
    values = {
        "format": FORMAT,
        "kind": KIND,
        "valueshare": __version__,
        "settings": {env: settings.to_json() for env, settings in plan.settings.items()},
        "backends": plan.backends,
        "device": plan.device,
        "compile": plan.compiled,
        "network": plan.network,
        "agents": table_digest(plan.agents),
    }
    plain: dict[str, Any] = json.loads(json.dumps(values))  # tuples become lists
    return plain


def from_config(values: dict[str, Any], agents: pl.DataFrame) -> Plan:
    """The way back, of a format that `check_format` accepts."""
    return Plan(
        agents=agents,
        settings={e: TrainingSettings.from_json(s) for e, s in values["settings"].items()},
        backends=values["backends"],
        device=values["device"],
        compiled=values["compile"],
        network=values["network"],
    )


def check_format(values: dict[str, Any]) -> None:
    """Refuse what a newer version wrote."""
    if not isinstance(values.get("format"), int) or values["format"] > FORMAT:
        raise InvalidInput(
            f"this run folder has format {values.get('format')}, and this version reads {FORMAT}: "
            f"install the newer valueshare that wrote it, {values.get('valueshare')}"
        )


def difference(stored: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """The first setting in which two configurations differ, in words; None where none does."""
    before, now = _flat(stored), _flat(wanted)
    for name in (*now, *before):
        if name != "valueshare" and before.get(name, "absent") != now.get(name, "absent"):
            if name == "agents":
                return "the table of agents is another one"
            return f"{name} is {_shown(before, name)} there and {_shown(now, name)} here"
    return None


def table_digest(table: pl.DataFrame) -> str:
    rows = json.dumps(table.to_dicts(), sort_keys=True).encode()
    return hashlib.blake2b(rows, digest_size=16).hexdigest()


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Settings by name; those of an environment come with the environment's name."""
    plain = {name: value for name, value in values.items() if name != "settings"}
    for env, settings in values.get("settings", {}).items():
        plain |= {f"{name} of {env}": value for name, value in settings.items()}
    return plain


def _shown(values: dict[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "absent"
