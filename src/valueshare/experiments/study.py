"""Plans of the studies of deep Q-learners, and their deviations from what is published.

A study is one run, or a few: algorithms with settings or a network of their own are then a run each, whose agents are
split into populations that fit a GPU. The split is in the plan and does not depend on the machine: the same command
resumes the same folders on another one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any, NamedTuple

from valueshare.algorithm_info import ALGORITHM_INFO, algorithm_name
from valueshare.envs import atari_protocol, environment_spec
from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient, resolve_ks
from valueshare.experiments.designs import STUDIES, StudyDesign, StudyKind, Sweep
from valueshare.experiments.scales import by_scale
from valueshare.learning.algorithms import algorithm_named
from valueshare.population.agents import agent_table, concat_agents, seed_list
from valueshare.population.other_names import check_known
from valueshare.population.presets import Preset
from valueshare.population.settings import PER_AGENT, SETTINGS, TrainingSettings
from valueshare.runs.plan import Plan, split
from valueshare.runs.planning import families, override_preset, without_same_at_zero
from valueshare.setting import as_count
from valueshare.text import pluralize

MOST_LISTED = 8  # values in a sentence; of more, their number
QUANTILES = ("quantiles", "target_quantiles", "acting_quantiles")


class Study(NamedTuple):
    """Runs that belong together, and their deviations from what is published, one sentence each."""

    name: str
    scale: str
    runs: dict[str, Plan]  # by the name of the run's folder; "": the study is one run in the study's own folder
    deviations: tuple[str, ...]


def make_study(
    name: str,
    scale: str = "small",
    *,
    env: Sequence[str] = (),
    algorithm: Sequence[str] = (),
    k: Sequence[Coefficient] = (),
    step_size: Sequence[float] = (),
    beta: Sequence[float] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    device: str = "auto",
    compile: bool | None = None,  # noqa: A002 (the name of the option)
    population_agents: int = 0,
    **settings: Any,
) -> Study:
    """A study by its name; what is left out has the values of the scale.

    Step sizes that are given are all run with every algorithm. `population_agents` is the largest size of a population
    in studies of several runs; 0: that of the study.
    """
    kind = STUDIES[name]
    values = {
        "k": tuple(value.lower() if isinstance(value, str) else value for value in k),
        "step_size": tuple(step_size),
        "beta": tuple(beta),
    }
    design = by_scale(kind.designs, scale)
    design = design._replace(
        envs=tuple(dict.fromkeys(map(kind.env, env or design.envs))),
        agents=_chosen_agents(kind, design, algorithm, {name: given for name, given in values.items() if given}),
        seeds=design.seeds if seeds is None else as_count("seeds", seeds),
    )
    runs, presets = dict[str, Plan](), list[tuple[list[Sweep], Preset]]()
    numbers = seed_list(design.seeds, first_seed)
    for agents in _agents_of_runs(kind, design.agents):
        preset = _changed_preset(kind, agents[0].algorithm, design.changes, settings)
        plan = replace(_plan(kind, design.envs, agents, preset, numbers), device=device, compiled=compile)
        if kind.population_agents:
            plan = split(plan, population_agents or kind.population_agents)
        runs[agents[0].algorithm if kind.population_agents else ""] = plan
        presets.append((agents, preset))
    return Study(name, scale, runs, tuple(dict.fromkeys(_deviations(kind, design, presets))))


def evaluation_steps(settings: TrainingSettings) -> int:
    """Timesteps that one agent evaluates for in a whole run, before its first step too."""
    return settings.evaluations * settings.eval_timesteps


def _chosen_agents(
    kind: StudyKind, design: StudyDesign, algorithm: Sequence[str], values: Mapping[str, tuple[Any, ...]]
) -> tuple[Sweep, ...]:
    """The agents of these algorithms, with these values; without them, those of the design or else of the paper."""
    known: dict[str, list[Sweep]] = {}
    for sweep in design.agents:
        known.setdefault(sweep.algorithm, []).append(sweep)
    names = list(dict.fromkeys(map(algorithm_name, algorithm))) or list(known)
    for name in names:
        check_known("algorithm", name, ALGORITHM_INFO)
        if name not in known:
            if kind.by_agent:
                raise InvalidInput(f"the study has no {name}: write one of {', '.join(known)}")
            of_paper = [sweep for sweep in kind.paper.agents if sweep.algorithm == name] if kind.paper else []
            known[name] = of_paper or [Sweep(name, ("n",) if algorithm_named(name).uses_k else ())]
    with_k = [name for name in names if algorithm_named(name).uses_k]
    if "k" in values and not with_k:
        raise InvalidInput(f"{', '.join(names)} have no k: leave `k` out")
    ordered = sorted(names, key=list(known).index) if kind.by_agent else names
    return tuple(
        sweep._replace(
            k=values.get("k", sweep.k) if name in with_k else (),
            step_size=values.get("step_size", sweep.step_size),
            beta=values.get("beta", sweep.beta),
        )
        for name in ordered
        for sweep in known[name]
    )


def _agents_of_runs(kind: StudyKind, agents: Sequence[Sweep]) -> list[list[Sweep]]:
    """The agents of each run: all of them, or those with the same settings, and one network and loss."""
    runs: dict[Any, list[Sweep]] = {}
    for sweep in agents:
        name = sweep.algorithm
        key = (algorithm_named(name).population_key, kind.preset(name)) if kind.population_agents else None
        runs.setdefault(key, []).append(sweep)
    return list(runs.values())


def _changed_preset(kind: StudyKind, algorithm: str, changes: Mapping[str, Any], options: Mapping[str, Any]) -> Preset:
    """The published settings of an algorithm, with the changes of the scale, and then with options."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if SETTINGS[name].kind is int:
            as_count(name, value)
    preset = kind.preset(algorithm)
    own = {name: value for name, value in changes.items() if name in PER_AGENT}
    preset = preset._replace(agent_settings=replace(preset.agent_settings, **own))
    settings = override_preset(override_preset(preset, dict(changes)), given).settings
    if settings.eval_episodes:
        settings = replace(settings, eval_envs=min(settings.eval_envs, settings.eval_episodes))
    if kind.backend == "ale":
        protocol = atari_protocol(settings.atari_protocol)
        settings = replace(settings, atari_protocol=protocol.name, clip_rewards=protocol.clip_rewards)
    return preset._replace(settings=settings)


def _plan(kind: StudyKind, envs: Sequence[str], agents: Sequence[Sweep], preset: Preset, seeds: Sequence[int]) -> Plan:
    """Every combination, environment by environment or agent by agent."""
    settings = dict.fromkeys(envs, preset.settings)
    specs = {env: environment_spec(env, kind.backend, preset.settings.atari_protocol) for env in envs}
    pairs = product(envs, agents)
    tables = [
        agent_table(
            env,
            sweep.algorithm,
            seeds=seeds,
            k=resolve_ks(sweep.k or (0.0,), specs[env].actions),
            agent_settings=[
                replace(preset.agent_settings, step_size=step_size, beta=beta)
                for step_size in sweep.step_size or (preset.agent_settings.step_size,)
                for beta in sweep.beta or (preset.agent_settings.beta,)
            ],
        )
        for env, sweep in (sorted(pairs, key=lambda pair: agents.index(pair[1])) if kind.by_agent else pairs)
    ]
    table, same_at_zero = without_same_at_zero(concat_agents(tables))
    return Plan(
        table,
        settings,
        dict.fromkeys(envs, kind.backend),
        families=families(settings, specs),
        actions={env: spec.actions for env, spec in specs.items()},
        same_at_zero=same_at_zero,
    )


def _deviations(
    kind: StudyKind, design: StudyDesign, presets: Sequence[tuple[Sequence[Sweep], Preset]]
) -> Iterator[str]:
    """Settings, algorithms, their values, games and seeds that are not those of the paper, then the study's notes."""
    for agents, preset in presets:
        quantiles = () if any(algorithm_named(sweep.algorithm).is_quantile for sweep in agents) else QUANTILES
        both = (kind.preset(agents[0].algorithm), preset)
        usual, now = (asdict(settings) | asdict(own) for settings, own in both)
        for name, value in now.items():
            if value != usual[name] and name not in (*kind.unstated, *quantiles):
                yield f"{name.replace('_', ' ')} {_value_text(value)} instead of {_value_text(usual[name])}"
    swept, of_paper = _swept(design), {} if kind.paper is None else _swept(kind.paper)
    if kind.paper is not None:
        yield from _other_agents(kind.paper, design)
        if "games" in kind.guesses and set(design.envs) == set(kind.paper.envs):
            yield kind.guesses["games"]
    of_preset = {"step size": [kind.preset(design.agents[0].algorithm).agent_settings.step_size]}
    for name, published in {**of_preset, **of_paper}.items():
        values = swept.get(name, published)
        if set(values) != set(published):
            yield f"{name}: {_listed(values)} instead of {_listed(published)}"
        elif name in kind.guesses:
            yield kind.guesses[name]
    counts = [str(environment_spec(env, kind.backend).actions) for env in design.envs] if kind.paper else []
    yield from (note.format(actions=", ".join(counts)) for note in kind.notes)


def _other_agents(paper: StudyDesign, design: StudyDesign) -> Iterator[str]:
    """Algorithms, games and seeds that are not those of the paper."""
    chosen, papers = (list(dict.fromkeys(sweep.algorithm for sweep in some.agents)) for some in (design, paper))
    if dropped := [name for name in papers if name not in chosen]:
        yield f"without {', '.join(dropped)}"
    if more := [name for name in chosen if name not in papers]:
        yield f"with {', '.join(more)}, not in the paper's study"
    if len(paper.envs) > 1 and set(design.envs) != set(paper.envs):
        games, count = pluralize(len(design.envs), "game"), len(paper.envs)
        is_part = set(design.envs) < set(paper.envs)
        yield f"{len(design.envs)} of {count} games" if is_part else f"{games}, not all of them the paper's {count}"
    if design.seeds != paper.seeds:
        yield f"{pluralize(design.seeds, 'seed')} instead of {paper.seeds}"


def _swept(design: StudyDesign) -> dict[str, list[Any]]:
    """The values of k, step size and beta that a design has, in words; without the preset's own."""
    found: dict[str, list[Any]] = {}
    for sweep in design.agents:
        values = {f"k of {sweep.algorithm}": sweep.k, "step size": sweep.step_size, "beta": sweep.beta}
        for name, given in values.items():
            if given:
                found[name] = list(dict.fromkeys([*found.get(name, ()), *given]))
    return {
        name: sorted(values, key=lambda value: math.inf if value == "n" else value) for name, values in found.items()
    }


def _listed(values: Sequence[Coefficient]) -> str:
    if len(values) > MOST_LISTED:
        return f"{len(values)} values"
    return ", ".join(value if isinstance(value, str) else f"{value:g}" for value in values)


def _value_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return f"{value:,}" if type(value) is int else str(value)
