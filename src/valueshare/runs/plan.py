"""What a training run is, before anything of it has run: a table of agents and their settings.

`config.json` of a run folder is a plan as JSON, but for the table, of which it has the checksum.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl

from valueshare import __version__
from valueshare.envs import atari_protocol
from valueshare.envs.base import Backend
from valueshare.population.agents import check_table, populations, table_digest
from valueshare.population.settings import NOT_OF_RESULTS, TrainingSettings
from valueshare.records import FORMAT
from valueshare.schema import Invalid, TrainingConfig, checked

KIND = "training"


class Plan(NamedTuple):
    """Everything that decides the numbers of a run."""

    agents: pl.DataFrame  # the table, one row per agent
    settings: dict[str, TrainingSettings]  # by environment
    backends: dict[str, Backend]  # by environment
    device: str = "cpu"
    compiled: bool = False
    network: str | None = None  # the name of a factory of the caller's own
    # Environments that share populations: the family's name by environment. Those that are not in
    # it are families of their own. Part of the plan, so that a folder can be read where the
    # environments themselves are not installed.
    families: Mapping[str, str] = MappingProxyType({})
    # Into how many populations of equal size one is cut, by its name; what is not here is whole.
    # It changes no number, and is part of the plan so that the names of files stay.
    pieces: Mapping[str, int] = MappingProxyType({})
    shard: str | None = None  # 2/8: the second of eight parts of a larger table


class Part(NamedTuple):
    """One population of a run."""

    name: str  # of its files
    agents: pl.DataFrame
    settings: TrainingSettings
    backend: Backend

    @property
    def env(self) -> str:
        """Its environment, or one of them: where there are more, they differ in name alone."""
        return str(self.agents["env"][0])

    @property
    def label(self) -> str:
        """Its environments in a few words."""
        others = self.agents["env"].n_unique() - 1
        return f"{self.env} and {others} more" if others else self.env

    @property
    def agent_steps(self) -> int:
        """Steps of all its agents together."""
        return self.agents.height * self.settings.steps


def parts(plan: Plan) -> list[Part]:
    """The populations, in the order of the table."""
    return [
        Part(name, agents, plan.settings[env], plan.backends[env])
        for number, whole in enumerate(_whole_populations(plan))
        for name, agents in _pieces(plan, f"population-{number}", whole)
        for env in [str(agents["env"][0])]
    ]


def _whole_populations(plan: Plan) -> list[pl.DataFrame]:
    """The populations before any of them is split."""
    family = {env: plan.families.get(env, env) for env in plan.settings}
    return populations(plan.agents, family)


def _pieces(plan: Plan, name: str, agents: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    count = plan.pieces.get(name, 1)
    if count == 1:
        yield name, agents
        return
    ends = [agents.height * number // count for number in range(count + 1)]
    for number, (start, end) in enumerate(pairwise(ends)):
        yield f"{name}-{number}", agents[start:end]


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
    # Only where there are any: folders of older versions have none of them.
    for name in ("families", "pieces"):
        if getattr(plan, name):
            values[name] = dict(getattr(plan, name))
    if plan.shard is not None:
        values["shard"] = plan.shard
    named = {env: s.atari_protocol for env, s in plan.settings.items() if s.atari_protocol}
    if named:
        values["protocols"] = {
            env: {"name": name, "digest": atari_protocol(name).digest}
            for env, name in named.items()
        }
    plain: dict[str, Any] = json.loads(json.dumps(values))  # tuples become lists
    return plain


def from_config(values: dict[str, Any], agents: pl.DataFrame) -> Plan:
    """The plan that config.json describes, of a format that `check_format` accepts; all checked."""
    stored = checked(values, TrainingConfig)
    check_table(agents)
    plan = Plan(
        agents=agents,
        settings={e: TrainingSettings.from_json(s) for e, s in stored.settings.items()},
        backends=dict(stored.backends),
        device=stored.device,
        compiled=stored.compile,
        network=stored.network,
        families=stored.families,
        pieces=stored.pieces,
        shard=stored.shard,
    )
    if unknown := set(agents["env"]) - plan.settings.keys():
        raise Invalid(f"there are no settings of {', '.join(sorted(unknown))}")
    heights = {f"population-{i}": one.height for i, one in enumerate(_whole_populations(plan))}
    for name, count in plan.pieces.items():
        if count > heights.get(name, 0):
            raise Invalid(f"pieces of {name}: {count}, and it has {heights.get(name, 0)} agents")
    return plan


def difference(stored: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """The first setting in which two configurations differ, in words; None where none does."""
    there, here = (sorted(of.get("settings", {})) for of in (stored, wanted))
    if there != here:
        return f"env is {', '.join(there)} there and {', '.join(here)} here"
    before, now = _flat(stored), _flat(wanted)
    if "protocols" not in stored:  # of before there was a digest: the name is a setting
        now.pop("protocols", None)
    for name in (*now, *before):
        if name != "valueshare" and before.get(name, "absent") != now.get(name, "absent"):
            if name == "agents":
                return "the table of agents is another one"
            return f"{name} is {_shown(before, name)} there and {_shown(now, name)} here"
    return None


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Settings by name; those of an environment come with the environment's name.

    A setting that an older version did not have yet is what it is by default. Those that change no
    number are left out.
    """
    plain = {k: value for k, value in values.items() if k not in ("settings", "pieces")}
    defaults = json.loads(json.dumps(TrainingSettings().to_json()))
    for env, settings in values.get("settings", {}).items():
        whole = (defaults | settings).items()
        plain |= {f"{name} of {env}": v for name, v in whole if name not in NOT_OF_RESULTS}
    return plain


def _shown(values: dict[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "absent"
