"""A study of deep Q-learners as data: runs, their size at each scale, and where they depart from the paper."""

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.experiments.scales import by_scale
from valueshare.population.presets import Preset
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.runs.plan import Plan
from valueshare.schema import Backend
from valueshare.setting import as_count

OVERLAP = "the next action is chosen before the update of a step, because learning overlaps the {}"
REPLACEMENT = "batches are drawn with replacement"


class Study(NamedTuple):
    """Runs that belong together, and where they depart from the paper, one sentence each."""

    name: str
    scale: str
    runs: dict[str, Plan]  # by the name of the run's folder; "": the study is one run in the study's own folder
    deviations: tuple[str, ...]


class StudySize(NamedTuple):
    """The size of a study."""

    seeds: int
    changes: dict[str, Any]  # of the published settings
    k: tuple[float, ...] = ()
    step_sizes: tuple[float, ...] = ()  # empty: the published one
    epsilon_steps: int | None = None  # None: the published number


def scaled(
    published: Preset,
    scales: Mapping[str, StudySize],
    scale: str,
    *,
    seeds: int | None,
    steps: int | None = None,
    eval_episodes: int | None,
    tf32: bool,
) -> tuple[StudySize, TrainingSettings, list[AgentSettings]]:
    """A scale by its name, its settings, and its agent settings for each step size; given arguments replace them."""
    chosen, (paper, agent_settings) = by_scale(scales, scale), published
    if seeds is not None and seeds < 2:
        raise InvalidInput(f"`seeds = {seeds}`: an interval needs at least 2")
    changes = dict(chosen.changes)
    for name, count in (("steps", steps), ("eval_episodes", eval_episodes)):
        if count is not None:
            changes[name] = as_count(name, count)
    episodes = changes.get("eval_episodes", paper.eval_episodes)
    settings = replace(paper, tf32=tf32, **changes, eval_envs=min(paper.eval_envs, episodes))
    if chosen.epsilon_steps is not None:
        agent_settings = replace(agent_settings, epsilon_steps=chosen.epsilon_steps)
    sizes = chosen.step_sizes or (agent_settings.step_size,)
    agent_variants = [replace(agent_settings, step_size=size) for size in sizes]
    return chosen._replace(seeds=chosen.seeds if seeds is None else seeds), settings, agent_variants


def plan_of(agents: pl.DataFrame, settings: TrainingSettings, backend: Backend, **more: Any) -> Plan:
    """A plan of environments with the same settings and backend; `more` are other fields of it."""
    envs = agents["env"].unique(maintain_order=True).to_list()
    return Plan(agents, dict.fromkeys(envs, settings), dict.fromkeys(envs, backend), **more)


def changed_settings(paper: TrainingSettings, settings: TrainingSettings, ignored: Container[str]) -> list[str]:
    """One sentence per setting that is not the paper's.

    Those in `ignored` are left out: the paper does not state them, or these algorithms do not use them.
    """
    return [
        f"{name.replace('_', ' ')} {_setting_text(value)} instead of {_setting_text(getattr(paper, name))}"
        for name, value in settings.to_json().items()
        if name not in ignored and value != getattr(paper, name)
    ]


def _setting_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    if isinstance(value, tuple | list):
        return "-".join(str(item) for item in value)
    return f"{value:,}" if type(value) is int else str(value)
