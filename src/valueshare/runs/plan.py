"""The plan of a training run: a table of agents, their settings, and the populations they form.

`config.json` of a run folder is a plan as JSON, with a checksum in place of the table.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from valueshare._version import __version__
from valueshare.envs import atari_protocol
from valueshare.errors import OTHER_OUT, InvalidInput
from valueshare.integers import ceil_div
from valueshare.population.agents import populations, table_digest
from valueshare.population.run_config import check_agents_of_run, checked_config
from valueshare.population.settings import ABSENT, TrainingSettings, comparable, differences
from valueshare.population.spec import PopulationSpec
from valueshare.schema import FORMAT, Backend, Invalid, TrainingConfig, validate_as
from valueshare.setting import as_count
from valueshare.text import ranges

KIND = "training"
AUTO = "auto"  # a device that is chosen when the run starts
OPTIONAL = ("families", "chunks", "shard", "actions")  # fields of config.json that are left out where they are empty
CHOSEN_AT_START = ("device", "compile")  # unless they are given


@dataclass(frozen=True)
class Plan:
    """A run before it starts: everything that determines its numbers, and how they are stored."""

    agents: pl.DataFrame  # the table, one row per agent
    settings: dict[str, TrainingSettings]  # by environment
    backends: dict[str, Backend]  # by environment
    device: str = "cpu"  # or AUTO
    compiled: bool | None = False  # None: chosen when the run starts
    network: str | None = None  # the name of the function that makes a custom network
    # Environments that share populations: the family's name by environment. Each other one is its own family. Stored,
    # so that a folder can be read where the environments are not installed.
    families: Mapping[str, str] = field(default_factory=dict)
    # Number of chunks by the name of a population that is split; the chunks are populations too. It changes no number,
    # and is stored so that the names of files stay the same.
    chunks: Mapping[str, int] = field(default_factory=dict)
    shard: str | None = None  # 2/8: the second of eight shards of a larger table
    # Numbers of actions by environment, as far as they are known: reports name k = n by them.
    actions: Mapping[str, int] = field(default_factory=dict)
    # Earlier numbers of steps by environment, of a run that was extended: its first checkpoints were made for them.
    extended_from: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Algorithms with the layer that were requested at k = 0 beside the same without it; for a note, and not stored.
    same_at_zero: tuple[str, ...] = ()

    @cached_property
    def unsplit_populations(self) -> dict[str, PopulationSpec]:
        """The populations by name before any of them is split."""
        family = {env: self.families.get(env, env) for env in self.settings}
        return {
            f"population-{number}": self._population(f"population-{number}", agents)
            for number, agents in enumerate(populations(self.agents, family))
        }

    @cached_property
    def populations(self) -> dict[str, PopulationSpec]:
        """The populations that run, by name, in the order of the table."""
        specs = {}
        for name, unsplit in self.unsplit_populations.items():
            agents, count = unsplit.agents, self.chunks.get(name, 1)
            for chunk in range(count):
                start, end = (agents.height * number // count for number in (chunk, chunk + 1))
                chunk_name = name if count == 1 else f"{name}-{chunk}"
                specs[chunk_name] = self._population(chunk_name, agents[start:end])
        return specs

    def _population(self, name: str, agents: pl.DataFrame) -> PopulationSpec:
        env = str(agents["env"][0])
        return PopulationSpec(name, agents, self.settings[env], self.backends[env], self.extended_from.get(env, ()))


def to_config(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON values; without a device or compilation that is left open."""
    optional: dict[str, Any] = {name: getattr(plan, name) for name in (*OPTIONAL, "extended_from")}
    optional["protocols"] = {
        env: {"name": settings.atari_protocol, "digest": atari_protocol(settings.atari_protocol).digest}
        for env, settings in plan.settings.items()
        if settings.atari_protocol
    }
    values = {
        "format": FORMAT,
        "kind": KIND,
        "valueshare": __version__,
        "settings": {env: settings.to_json() for env, settings in plan.settings.items()},
        "backends": plan.backends,
        **({} if plan.device == AUTO else {"device": plan.device}),
        **({} if plan.compiled is None else {"compile": plan.compiled}),
        "network": plan.network,
        "agents": table_digest(plan.agents),
        **{name: value for name, value in optional.items() if value},
    }
    plain: dict[str, Any] = json.loads(json.dumps(values))  # tuples become lists
    return plain


def from_config(values: dict[str, Any], agents: pl.DataFrame) -> Plan:
    """The plan that config.json describes, with every value checked; `check_table` has checked the agents."""
    stored, settings = checked_config(values)
    check_agents_of_run(stored, agents)
    return Plan(
        agents=agents,
        settings=settings,
        backends=dict(stored.backends),
        device=stored.device,
        compiled=stored.compile,
        network=stored.network,
        **{name: getattr(stored, name) for name in OPTIONAL},
        extended_from={env: tuple(steps) for env, steps in stored.extended_from.items()},
    )


def split(plan: Plan, limit: int | Mapping[str, int]) -> Plan:
    """The plan with at most `limit` agents per population, one number or by the population's name; 0: no limit.

    Chunks that exist already are not merged.
    """
    if not limit:
        return plan
    chunks = dict(plan.chunks)
    for name, unsplit in plan.unsplit_populations.items():
        agents = unsplit.agents.height
        largest = limit if isinstance(limit, int) else limit.get(name, agents)
        count = max(chunks.get(name, 1), ceil_div(agents, largest))
        if count > 1:
            chunks[name] = count
    return replace(plan, chunks=chunks)


def extend_plan(plan: Plan, steps: int) -> Plan:
    """The plan with `steps` steps in total; its schedules, of epsilon and of the step size, stay as they were."""
    steps = as_count("steps", steps)
    longest = max(settings.steps for settings in plan.settings.values())
    if steps <= longest:
        raise InvalidInput(f"`steps = {steps:,}`: this run has {longest:,} already; write a larger total")
    longer, earlier = {}, {}
    for env, settings in plan.settings.items():
        linear = settings.step_size_schedule == "linear"
        schedule_steps = (settings.step_size_steps or settings.steps) if linear else None
        longer[env] = replace(settings, steps=steps, step_size_steps=schedule_steps)
        earlier[env] = (*plan.extended_from.get(env, ()), settings.steps)
    return replace(plan, settings=longer, extended_from=earlier)


def difference(
    stored: dict[str, Any],
    wanted: dict[str, Any],
    tables: Callable[[], tuple[pl.DataFrame, pl.DataFrame]] | None = None,
) -> str | None:
    """The first setting in which two configurations differ, in words; None where none does.

    `tables` reads the two tables of agents, whose columns are compared where their checksums differ.
    """
    try:
        validate_as(stored, TrainingConfig)
    except Invalid as error:
        raise InvalidInput(f"config.json is damaged ({error}): {OTHER_OUT}") from error
    stored_envs, wanted_envs = (sorted(config.get("settings", {})) for config in (stored, wanted))
    if stored_envs != wanted_envs:
        return _difference_text("`env`", ", ".join(stored_envs), ", ".join(wanted_envs))
    for name, values in _differences(stored, wanted).items():
        if name == "agents":
            return _table_difference(*tables()) if tables else "the table of agents is another one"
        return _difference_text(name, *map(_shown_value, values))
    return None


def _shown_value(value: Any) -> str:
    if value is None:
        return "not given"
    return repr(value) if value is ABSENT else json.dumps(value)


def _difference_text(name: str, before: str, now: str) -> str:
    return f"{name} is {before} in the existing run, {now} now"


def extension(stored: dict[str, Any], wanted: dict[str, Any]) -> tuple[int, str] | None:
    """The --steps with which `extend` continues a stored run to those of the wanted one, and a remark on the result.

    None where the wanted run differs in more. A linear step size is 0 at the end of the stored run, so that an extended
    run learns nothing new.
    """
    changed = _differences(stored, wanted)
    if not all(name.startswith("`steps` of ") and before < now for name, (before, now) in changed.items()):
        return None
    steps = {settings["steps"] for settings in wanted["settings"].values()}
    linear = any(settings["step_size_schedule"] == "linear" for settings in wanted["settings"].values())
    if len(steps) > 1:
        return None
    return steps.pop(), " (but its step size has fallen linearly to 0, and stays there)" if linear else ""


def _differences(stored: dict[str, Any], wanted: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Differences between two configurations; values that the wanted one leaves open equal the stored ones."""
    return differences(_flat(stored), _flat({name: stored[name] for name in CHOSEN_AT_START} | wanted))


def _table_difference(before: pl.DataFrame, now: pl.DataFrame) -> str:
    """The columns of two tables of agents that have other values, in words."""
    texts = []
    for name in (name for name in now.columns if name not in ("agent", "env")):
        values = [sorted(table[name].unique().to_list()) for table in (before, now)]
        if values[0] != values[1]:
            shown = [ranges(column) if name == "seed" else ", ".join(map(_plain, column)) for column in values]
            texts.append(_difference_text("`seeds`" if name == "seed" else f"`{name}`", *shown))
    return "; ".join(texts) or "the same values in other combinations"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration by name, its settings by name and environment, without what changes no number."""
    plain = {k: v for k, v in config.items() if k not in ("settings", "chunks", "actions", "valueshare")}
    for env, settings in config.get("settings", {}).items():
        plain |= {f"`{name}` of {env}": value for name, value in comparable(settings).items()}
    return plain
