"""From a few words to a plan: presets by environment, every setting replaceable, lists crossed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, Unpack

import polars as pl
from torch import nn

from valueshare.envs import atari_protocol, environment_spec
from valueshare.envs.base import Backend, EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.experiments.presets import Preset, preset_for
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.population.agents import (
    AgentSettings,
    agent_table,
    check_agents,
    check_seeds,
    listed,
    listed_seeds,
)
from valueshare.population.settings import TrainingSettings, counted, whole
from valueshare.population.state import NetworkFactory
from valueshare.runs.options import Settings
from valueshare.runs.plan import Plan, parts
from valueshare.text import how_many

OWN = tuple(field.name for field in fields(AgentSettings))
_OF_QUANTILES = ("quantiles", "target_quantiles", "acting_quantiles", "kappa")


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
    **settings: Unpack[Settings],
) -> Plan:
    """The plan of a run: presets by environment, with the given settings in their place."""
    given: dict[str, Any] = {**settings}
    _check_names(given)
    envs, algorithms = _names("env", env), _names("algorithm", algorithm)
    for name in algorithms:
        _check_algorithm(name)
    _check_is_read(algorithms, k, given)
    if network is not None:
        _check_factory(network)
    first_seed = whole("first_seed", first_seed)
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        seeds = whole("seeds", seeds)
        if seeds < 1:
            raise InvalidInput(f"seeds = {seeds}: write how many, at least 1")
        check_seeds(seeds)
        if first_seed < 0:
            raise InvalidInput(f"first_seed = {first_seed}: seeds are whole numbers from 0")
        seeds = range(first_seed, first_seed + seeds)
    elif first_seed:
        raise InvalidInput("first_seed goes with a number of seeds: leave it out beside a list")
    seeds = [whole("seeds", seed) for seed in listed_seeds(seeds)]  # NumPy's too
    chosen = [_environment(env, algorithms, backend, given) for env in envs]
    presets = {spec.name: preset for preset, spec in chosen}
    if len(presets) < len(chosen):  # Pong and ALE/Pong-v5 are one
        raise InvalidInput(f"env = {', '.join(envs)}: write each of them once")
    specs = {spec.name: spec for _, spec in chosen}
    shared = {name: preset.settings for name, preset in presets.items()}
    tables = [
        agent_table(name, algorithms, seeds=seeds, k=listed(k), own=_combinations(preset, given))
        for name, preset in presets.items()
    ]
    table = pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))
    return Plan(
        agents=table,
        settings=shared,
        backends={name: spec.backend for name, spec in specs.items()},
        device=str(device),  # PyTorch's own too
        compiled=compiled,
        network=None if network is None else _name_of(network),
        families=families(shared, specs),
    )


def _environment(
    env: str, algorithms: Sequence[str], backend: Backend | None, given: dict[str, Any]
) -> tuple[Preset, EnvironmentSpec]:
    """The preset of an environment with the given settings in their place, and its spec.

    Pong becomes ALE/Pong-v5, with a protocol that is said even where it is the usual one.
    """
    found = environment_spec(env, backend)
    name = found.name if found.backend == "ale" else env
    preset = overridden(preset_for(name, algorithms), given)
    if found.backend == "ale":
        protocol = atari_protocol(preset.settings.atari_protocol)
        if given.get("clip_rewards", protocol.clip_rewards) != protocol.clip_rewards:
            raise InvalidInput(
                f"clip_rewards = {given['clip_rewards']}: whether training rewards are signs is "
                f"the protocol's, {protocol.name}: leave it out"
            )
        settings = replace(
            preset.settings, atari_protocol=protocol.name, clip_rewards=protocol.clip_rewards
        )
        preset = preset._replace(settings=settings)
    spec = environment_spec(name, found.backend, preset.settings.atari_protocol)
    _check_episodes_end(spec, preset.settings)
    return preset, replace(spec, name=name)


def families(
    settings: Mapping[str, TrainingSettings], specs: Mapping[str, EnvironmentSpec]
) -> dict[str, str]:
    """Which Atari games can share populations: by game, the first game of its kind.

    Games are of one kind if all but their names is equal: protocol and other settings, frames and
    actions. Other environments share with none: a backend steps one name at a time.
    """
    kinds: dict[tuple[TrainingSettings, EnvironmentSpec], str] = {}
    return {
        env: kinds.setdefault((settings[env], replace(spec, name="")), env)
        for env, spec in specs.items()
        if spec.backend == "ale"
    }


def overridden(preset: Preset, given: dict[str, Any]) -> Preset:
    """A preset with the given settings in the place of its own.

    A new evaluation interval is the phase too, and evaluating by timesteps is not by episodes.
    """
    shared = {name: value for name, value in given.items() if name not in OWN}
    if "steps" in shared:
        shared["total_steps"] = counted("steps", shared.pop("steps"))
    if "eval_interval" in shared:
        shared.setdefault("checkpoint_interval", shared["eval_interval"])
    if shared.get("eval_timesteps"):
        shared.setdefault("eval_episodes", 0)
    return preset._replace(settings=replace(preset.settings, **shared))


def described(plan: Plan) -> list[str]:
    """What a plan will run, in a few lines."""
    populations = parts(plan)
    lines = []
    for label in dict.fromkeys(part.label for part in populations):
        own = [part for part in populations if part.label == label]
        agents = how_many(sum(part.agents.height for part in own), "agent")
        count = how_many(len(own), "population")
        steps = how_many(own[0].settings.total_steps, "step")
        lines.append(f"{label}: {agents} in {count}, {steps} each")
        if own[0].settings.never_learns:
            lines.append(
                f"note: {label}: nothing is learned in {steps}; with these learning_starts and "
                f"update_interval the first update is after step {own[0].settings.first_update:,}"
            )
    agents = how_many(plan.agents.height, "agent")
    in_all = how_many(sum(part.agent_steps for part in populations), "agent-step")
    return [*lines, *_sharing_nothing(plan), f"{agents}, {in_all} in all, on {plan.device}"]


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
    first, *others = plan.settings
    envs = [first, *others] if len(others) < 3 else [first, f"and-{len(others)}-more"]
    names = [*envs, *plan.agents["algorithm"].unique(maintain_order=True)]
    return Path("runs") / "-".join(name.replace("/", "-").replace(":", "-") for name in names)


def _sharing_nothing(plan: Plan) -> list[str]:
    """Notes on algorithms that share no value, because every k that they are given is 0.

    A shard may have no other k of a sweep that has.
    """
    if plan.shard is not None:
        return []
    largest = plan.agents.group_by("algorithm", maintain_order=True).agg(pl.col("k").max())
    return [
        f"note: {name} with k = 0 is {name.removeprefix('ib-')}: to share value across actions, "
        "give a k above 0"
        for name, k in largest.iter_rows()
        if k == 0 and ALGORITHMS[name].uses_k
    ]


def _combinations(preset: Preset, given: dict[str, Any]) -> list[AgentSettings]:
    names = [name for name in OWN if name in given]
    values = [listed(given[name]) for name in names]
    for name, several in zip(names, values, strict=True):
        if not several:
            raise InvalidInput(f"no {name} is given: write at least one number, or leave it out")
    check_agents(math.prod(len(several) for several in values))
    return [replace(preset.own, **dict(zip(names, row, strict=True))) for row in product(*values)]


def _check_names(given: dict[str, Any]) -> None:
    known = list(Settings.__annotations__)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(known)}"
            raise InvalidInput(f"there is no setting {name!r}: {hint}")


def _names(kind: str, given: str | Sequence[str]) -> list[str]:
    """One name or several, as a list."""
    names: list[Any] = listed(given)
    if not names:
        raise InvalidInput(f"no {kind} is given: write at least one name")
    for name in names:
        if not isinstance(name, str):
            hint = "; one of your own is registered with Gymnasium first" if kind == "env" else ""
            example = {"env": "CartPole-v1", "algorithm": "ib-dqn"}[kind]
            raise InvalidInput(
                f"{kind} is given as {type(name).__name__}: write its name, like {example!r}{hint}"
            )
    return names


def _check_factory(network: NetworkFactory) -> None:
    if isinstance(network, nn.Module) or not callable(network):
        raise InvalidInput(
            f"network is given as {type(network).__name__}: write a function of (shape, k) that "
            "makes one agent's module"
        )


def _check_algorithm(name: str) -> None:
    if name not in ALGORITHMS:
        near = get_close_matches(name.lower(), ALGORITHMS, 2)
        known = ", ".join(ALGORITHMS)
        hint = f"did you mean {' or '.join(near)}?" if near else f"write one of {known}"
        raise InvalidInput(f"there is no algorithm {name!r}: {hint}")


def _check_is_read(
    algorithms: Sequence[str], k: float | Sequence[float], given: dict[str, Any]
) -> None:
    """Refuse what none of the algorithms reads; k = 0 is what those without one do anyway."""
    with_quantiles = [name for name, algorithm in ALGORITHMS.items() if algorithm.samples.learn]
    readers_of = {
        "k": [name for name, algorithm in ALGORITHMS.items() if algorithm.uses_k],
        "beta": [name for name, algorithm in ALGORITHMS.items() if algorithm.uses_beta],
        **dict.fromkeys(_OF_QUANTILES, with_quantiles),
    }
    values = given | {"k": [one for one in listed(k) if one != 0]}
    for name, readers in readers_of.items():
        shown = ", ".join(f"{one}" for one in listed(values.get(name, ())))
        if shown and not set(readers) & set(algorithms):
            have, them = ("has", "it") if len(readers) == 1 else ("have", "one of them")
            raise InvalidInput(
                f"{name} = {shown}: only {', '.join(readers)} {have} it; train {them}, or leave "
                f"{name} out"
            )


def _check_episodes_end(spec: EnvironmentSpec, settings: TrainingSettings) -> None:
    limits = (settings.eval_episode_limit, spec.episode_limit)
    if settings.eval_episodes and limits == (None, None):
        raise InvalidInput(
            f"{spec.name} has no episode limit, so an episode may never end: write "
            "--eval-episode-limit, or evaluate by --eval-timesteps"
        )


def _name_of(network: NetworkFactory) -> str:
    name = getattr(network, "__qualname__", type(network).__qualname__)
    return f"{network.__module__}.{name}"
