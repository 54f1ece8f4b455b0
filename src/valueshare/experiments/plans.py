"""From a few words to a plan: presets by environment, every setting replaceable, lists crossed."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from valueshare.envs import environment_spec
from valueshare.envs.base import Backend
from valueshare.errors import InvalidInput
from valueshare.experiments.presets import Preset, preset_for
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.population.agents import AgentSettings, agent_table
from valueshare.population.state import NetworkFactory
from valueshare.runs.options import Options
from valueshare.runs.plan import Plan, parts

OWN = tuple(field.name for field in fields(AgentSettings))


MOST_SEEDS = 100_000


def make_plan(
    env: str | Sequence[str],
    algorithm: str | Sequence[str] = "ib-dqn",
    *,
    k: float | Sequence[float] = 0.0,
    seeds: int | Iterable[int] = 8,
    first_seed: int = 0,
    network: NetworkFactory | None = None,
    device: str = "cpu",
    compiled: bool = False,
    backend: Backend | None = None,
    **settings: Any,
) -> Plan:
    """The plan of a run: presets by environment, with the given settings in their place."""
    _check_names(settings)
    envs, algorithms = _listed(env), _listed(algorithm)
    for name in algorithms:
        _check_algorithm(name)
    if isinstance(seeds, int | np.integer):
        if seeds < 1:
            raise InvalidInput(f"seeds = {seeds}: write how many, at least 1")
        if seeds > MOST_SEEDS:
            raise InvalidInput(f"seeds = {seeds:,}: at most {MOST_SEEDS:,} in one run")
        if first_seed < 0:
            raise InvalidInput(f"first_seed = {first_seed}: seeds are whole numbers from 0")
        seeds = range(first_seed, first_seed + int(seeds))
    elif first_seed:
        raise InvalidInput("first_seed goes with a number of seeds: leave it out beside a list")
    seeds = [int(seed) for seed in seeds]  # NumPy's too
    presets = {name: overridden(preset_for(name), settings) for name in envs}
    specs = {name: environment_spec(name, backend) for name in envs}
    tables = [
        agent_table(
            name, algorithms, seeds=seeds, k=_listed(k), own=_combinations(preset, settings)
        )
        for name, preset in presets.items()
    ]
    table = pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))
    return Plan(
        agents=table,
        settings={name: preset.settings for name, preset in presets.items()},
        backends={name: spec.backend for name, spec in specs.items()},
        device=device,
        compiled=compiled,
        network=None if network is None else _name_of(network),
    )


def overridden(preset: Preset, given: dict[str, Any]) -> Preset:
    """A preset with the given settings in the place of its own.

    A new evaluation interval is the phase too, and evaluating by timesteps is not by episodes.
    """
    shared = {name: value for name, value in given.items() if name not in OWN}
    if "steps" in shared:
        shared["total_steps"] = shared.pop("steps")
    if "eval_every" in shared:
        shared.setdefault("phase_steps", shared["eval_every"])
    if shared.get("eval_timesteps"):
        shared.setdefault("eval_episodes", 0)
    return preset._replace(settings=replace(preset.settings, **shared))


def described(plan: Plan) -> list[str]:
    """What a plan will run, in a few lines."""
    populations = parts(plan)
    steps = sum(part.agent_steps for part in populations)
    lines = []
    for env in plan.settings:
        own = [part for part in populations if part.env == env]
        agents = sum(part.agents.height for part in own)
        each = plan.settings[env].total_steps
        count = "1 population" if len(own) == 1 else f"{len(own)} populations"
        lines.append(f"{env}: {agents:,} agents in {count}, {each:,} steps each")
    return [*lines, f"{plan.agents.height:,} agents, {steps:,} steps in all, on {plan.device}"]


def in_full(plan: Plan) -> list[str]:
    """Everything a plan will run: every setting of every environment."""
    lines = described(plan)
    for env, settings in plan.settings.items():
        lines += ["", f"{env} ({plan.backends[env]})"]
        own = plan.agents.filter(pl.col("env") == env)
        for name in ("algorithm", "k", *OWN, "seed"):
            values = own[name].unique(maintain_order=True).to_list()
            lines.append(f"  {name} = {', '.join(str(value) for value in values)}")
        lines += [f"  {name} = {value}" for name, value in settings.to_json().items()]
    return lines


def default_folder(plan: Plan) -> Path:
    """Where a run goes that was given no folder: runs/CartPole-v1-ib-dqn."""
    names = [*plan.settings, *plan.agents["algorithm"].unique(maintain_order=True)]
    return Path("runs") / "-".join(name.replace("/", "-").replace(":", "-") for name in names)


def _combinations(preset: Preset, given: dict[str, Any]) -> list[AgentSettings]:
    names = [name for name in OWN if name in given]
    values = [_listed(given[name]) for name in names]
    return [replace(preset.own, **dict(zip(names, row, strict=True))) for row in product(*values)]


def _check_names(given: dict[str, Any]) -> None:
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(known)}"
            raise InvalidInput(f"there is no setting {name!r}: {hint}")


def _check_algorithm(name: str) -> None:
    if name not in ALGORITHMS:
        near = get_close_matches(name.lower(), ALGORITHMS, 2)
        known = ", ".join(ALGORITHMS)
        hint = f"did you mean {' or '.join(near)}?" if near else f"write one of {known}"
        raise InvalidInput(f"there is no algorithm {name!r}: {hint}")


def _name_of(network: NetworkFactory) -> str:
    name = getattr(network, "__qualname__", type(network).__qualname__)
    return f"{network.__module__}.{name}"


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(value)
    return [value]
