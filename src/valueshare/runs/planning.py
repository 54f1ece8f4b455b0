"""Makes plans from options: presets by environment, any setting replaced, lists crossed."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any

import polars as pl
from torch import nn

from valueshare.algorithm_info import LAYER_PREFIX, algorithm_name, setting_readers
from valueshare.envs import atari_protocol, environment_spec
from valueshare.envs.backends import BACKENDS
from valueshare.envs.base import EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient, is_n, resolve_ks
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.population.agents import agent_table, as_list, check_agent_count, concat_agents, seed_list
from valueshare.population.evaluate import check_evaluation
from valueshare.population.networks import NetworkFactory
from valueshare.population.other_names import canonical_name, check_known
from valueshare.population.presets import Preset, preset_for
from valueshare.population.settings import OPTIMIZER_SETTINGS, PER_AGENT, SETTINGS, AgentSettings, TrainingSettings
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.plan import Plan
from valueshare.schema import Backend
from valueshare.setting import refuse_repeated

LAUNCHER_FIELDS = {field.name for field in fields(LauncherOptions)}


def make_plan(
    env: str | Sequence[str],
    algorithm: str | Sequence[str] = "ib-dqn",
    *,
    k: Coefficient | Sequence[Coefficient] = 0.0,
    seeds: int | Iterable[int] = 8,
    first_seed: int = 0,
    network: NetworkFactory | None = None,
    device: str = "cpu",
    compiled: bool | None = False,
    backend: Backend | None = None,
    **settings: Any,
) -> Plan:
    """The plan of a run: each environment's preset, overridden by `settings`; k = "n" is its number of actions."""
    for name in settings:
        option = name if name in LAUNCHER_FIELDS else canonical_name(name)
        if option in LAUNCHER_FIELDS:
            raise InvalidInput(
                f"`{name}` belongs to the launcher: write launcher=valueshare.LauncherOptions({option}=...)"
            )
        check_known("setting", name, SETTINGS)
    if not (compiled is None or isinstance(compiled, bool)):
        raise InvalidInput(f"`compile = {compiled!r}`: write True or False, or leave it out")
    envs = _names("env", env)
    algorithms = [algorithm_name(name) for name in _names("algorithm", algorithm)]
    for name in algorithms:
        check_known("algorithm", name, ALGORITHMS)
    # Listed once: from Python, a list of values may be an iterator.
    given: list[Coefficient] = as_list(k)
    k_values: list[Coefficient] = ["n" if is_n(value) else value for value in given]
    for value in k_values:
        if not is_n(value) and (not isinstance(value, Real) or isinstance(value, bool)):
            raise InvalidInput(f"`k = {value!r}`: write a number, or 'n', the number of actions")
    refuse_repeated("algorithm", algorithms)
    refuse_repeated("k", k_values)
    settings |= {name: as_list(settings[name]) for name in PER_AGENT if name in settings}
    _refuse_unread_settings(algorithms, k_values, settings)
    network_name = None if network is None else _factory_name(network)
    seeds = seed_list(seeds, first_seed)
    chosen = [_environment(env, algorithms, backend, settings) for env in envs]
    refuse_repeated("env", [spec.name for _, spec in chosen])  # Pong and ALE/Pong-v5 are one
    presets = {spec.name: preset for preset, spec in chosen}
    specs = {spec.name: spec for _, spec in chosen}
    shared = {name: preset.settings for name, preset in presets.items()}
    _refuse_unread_optimizer_settings({preset_settings.optimizer for preset_settings in shared.values()}, settings)
    tables = [
        agent_table(
            name,
            algorithms,
            seeds=seeds,
            k=resolve_ks(k_values, specs[name].actions),
            agent_settings=_combinations(preset, settings),
        )
        for name, preset in presets.items()
    ]
    agents, same_at_zero = without_same_at_zero(concat_agents(tables))
    return Plan(
        agents=agents,
        settings=shared,
        backends={name: spec.backend for name, spec in specs.items()},
        device=str(device),  # PyTorch's own too
        compiled=compiled,
        network=network_name,
        families=families(shared, specs),
        actions={name: spec.actions for name, spec in specs.items()},
        same_at_zero=same_at_zero,
    )


def without_same_at_zero(agents: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The agents without those of ib-NAME with k = 0 where NAME is trained too; and the algorithms of those left out.

    They are the same agents, which would be trained twice and compared with themselves.
    """
    names = [f"{LAYER_PREFIX}{name}" for name in agents["algorithm"].unique(maintain_order=True)]
    repeated = (pl.col("k") == 0) & pl.col("algorithm").is_in(names)
    left_out = agents.filter(repeated)["algorithm"].unique(maintain_order=True)
    return concat_agents([agents.filter(~repeated)]), tuple(left_out)


def _environment(
    env: str, algorithms: Sequence[str], backend: Backend | None, overrides: dict[str, Any]
) -> tuple[Preset, EnvironmentSpec]:
    """The preset of an environment, overridden, and its spec; Pong becomes ALE/Pong-v5, with its protocol named."""
    env_spec = environment_spec(env, backend)
    has_protocols = BACKENDS[env_spec.backend].has_protocols
    name = env_spec.name if has_protocols else env
    preset = override_preset(preset_for(name, algorithms, env_spec.network_shape), overrides)
    if has_protocols:
        protocol = atari_protocol(preset.settings.atari_protocol)
        if overrides.get("clip_rewards", protocol.clip_rewards) != protocol.clip_rewards:
            raise InvalidInput(
                f"`clip_rewards = {overrides['clip_rewards']}`: whether training rewards are signs is "
                f"the protocol's, {protocol.name}: leave it out"
            )
        settings = replace(preset.settings, atari_protocol=protocol.name, clip_rewards=protocol.clip_rewards)
        preset = preset._replace(settings=settings)
    spec = environment_spec(name, env_spec.backend, preset.settings.atari_protocol)
    check_evaluation(preset.settings, spec)
    return preset, replace(spec, name=name)


def families(settings: Mapping[str, TrainingSettings], specs: Mapping[str, EnvironmentSpec]) -> dict[str, str]:
    """Atari games and MinAtar games that can share populations: by game, the first game of its family.

    Games are of one family if all but their names is equal: settings, protocol, frames and actions. Other environments
    share with none: a backend steps one name at a time.
    """
    kinds: dict[tuple[TrainingSettings, EnvironmentSpec], str] = {}
    return {
        env: kinds.setdefault((settings[env], replace(spec, name="")), env)
        for env, spec in specs.items()
        if BACKENDS[spec.backend].can_mix(env)
    }


def override_preset(preset: Preset, settings: dict[str, Any]) -> Preset:
    """A preset with other settings; eval_interval sets checkpoint_interval too.

    Of eval_timesteps and eval_episodes, the one that is given replaces the other one of the preset.
    """
    shared = {name: value for name, value in settings.items() if name not in PER_AGENT}
    if "eval_interval" in shared:
        SETTINGS["eval_interval"].check(shared["eval_interval"])  # or its error would name the other one
        shared.setdefault("checkpoint_interval", shared["eval_interval"])
    for given, other in (("eval_timesteps", "eval_episodes"), ("eval_episodes", "eval_timesteps")):
        if shared.get(given):
            shared.setdefault(other, 0)
    return preset._replace(settings=replace(preset.settings, **shared))


def default_folder(plan: Plan) -> Path:
    """The default folder of a run: runs/CartPole-v1-ib-dqn."""
    first, *others = plan.settings
    envs = [first, *others] if len(others) < 3 else [first, f"and-{len(others)}-more"]
    names = [*envs, *plan.agents["algorithm"].unique(maintain_order=True)]
    return Path("runs") / "-".join(name.replace("/", "-").replace(":", "-") for name in names)


def _combinations(preset: Preset, settings: dict[str, Any]) -> list[AgentSettings]:
    names = [name for name in PER_AGENT if name in settings]
    values = [settings[name] for name in names]
    for name, candidates in zip(names, values, strict=True):
        if not candidates:
            raise InvalidInput(f"no `{name}` is given: write at least one number, or leave it out")
    check_agent_count(math.prod(len(candidates) for candidates in values))
    combinations = [replace(preset.agent_settings, **dict(zip(names, row, strict=True))) for row in product(*values)]
    for name, candidates in zip(names, values, strict=True):
        refuse_repeated(name, candidates)  # once their types are checked
    return combinations


def _names(kind: str, value: str | Sequence[str]) -> list[str]:
    """One name or several, as a list."""
    names: list[Any] = as_list(value)
    if not names:
        raise InvalidInput(f"no `{kind}` is given: write at least one name")
    for name in names:
        if not isinstance(name, str):
            hint = "; register a custom environment with Gymnasium first" if kind == "env" else ""
            example = {"env": "CartPole-v1", "algorithm": "ib-dqn"}[kind]
            raise InvalidInput(f"{kind} is given as {type(name).__name__}: write its name, like {example!r}{hint}")
    return names


def _refuse_unread_settings(algorithms: Sequence[str], k: Sequence[Coefficient], settings: dict[str, Any]) -> None:
    """Refuse settings that none of the algorithms reads; k = 0 changes none of them."""
    values = settings | {"k": [value for value in k if value != 0]}
    for name, readers in setting_readers().items():
        shown = ", ".join(map(str, as_list(values.get(name, ()))))
        if shown and not set(readers) & set(algorithms):
            have, them = ("has", "it") if len(readers) == 1 else ("have", "one of them")
            raise InvalidInput(
                f"`{name} = {shown}`: only {', '.join(readers)} {have} it; train {them}, or leave `{name}` out"
            )
    if settings.get("clip_rewards") and settings.get("reward_scale", 1.0) != 1.0:
        raise InvalidInput(
            f"`reward_scale = {settings['reward_scale']}`: with `clip_rewards`, training rewards are signs, whatever "
            "their scale; leave one of the two out"
        )
    if "loss" in settings and all(ALGORITHMS[name].is_quantile for name in algorithms):
        raise InvalidInput(
            f"`loss = {settings['loss']}`: the loss of {', '.join(algorithms)} is the quantile Huber loss; leave "
            "`loss` out"
        )


def _refuse_unread_optimizer_settings(optimizers: Collection[str], settings: dict[str, Any]) -> None:
    """Refuse optimiser settings that no chosen optimiser reads."""
    for name, reader in OPTIMIZER_SETTINGS.items():
        if name in settings and reader not in optimizers:
            shown = ", ".join(map(str, as_list(settings[name])))
            raise InvalidInput(
                f"`{name} = {shown}`: only {reader} has it; set `optimizer = {reader!r}`, or leave `{name}` out"
            )


def _factory_name(network: NetworkFactory) -> str:
    if isinstance(network, nn.Module) or not callable(network):
        raise InvalidInput(
            f"network is given as {type(network).__name__}: write a function of (shape, k) that "
            "makes one agent's module"
        )
    name = getattr(network, "__qualname__", type(network).__qualname__)
    return re.sub(r"[^\w.<>-]", "_", f"{network.__module__}.{name}")[:1_000]  # a `FunctionName`
