"""The LunarLander studies as data, each at three scales: IB-DQN against k, and against k and the step size."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.experiments.deviations import changed_settings
from valueshare.population.agents import agent_table
from valueshare.population.presets import lunarlander_paper
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.text import how_many

ENV = "LunarLander-v3"
PAPER_K = (0.0, *(2.0**i for i in range(16)))  # 0, 1, 2, 4, ..., 32768
PAPER_SEEDS = 120
StudyScale = Literal["smoke", "small", "paper"]
StepSizeScale = Literal["smoke", "small", "full"]


class Study(NamedTuple):
    """Agents and their settings, ready to be run."""

    agents: pl.DataFrame
    settings: TrainingSettings
    deviations: tuple[str, ...]  # from the paper, one sentence each


class Scale(NamedTuple):
    """The size of a study."""

    k: tuple[float, ...]
    seeds: int
    changes: dict[str, Any]  # of the paper's settings
    step_sizes: tuple[float, ...] = ()  # none: the paper's alone


SMALL: dict[str, Any] = {
    "steps": 50_000,
    "checkpoint_interval": 5_000,
    "eval_interval": 5_000,
    "eval_episodes": 5,
    "hidden": (128, 128),
    "batch_size": 64,
    "update_interval": 4,
}
SMOKE: dict[str, Any] = {
    "steps": 300,
    "checkpoint_interval": 100,
    "eval_interval": 100,
    "eval_episodes": 2,
    "eval_episode_limit": 200,
    "hidden": (16, 16),
    "batch_size": 16,
    "learning_starts": 50,
    "target_update_interval": 20,
    "update_interval": 4,
}
# Small: 5 x 8 agents x 50,000 steps, with a smaller network, half the batch and a quarter of the updates. Agents
# learn not to crash at once, most of them not yet to land (mean scores near -75 at the end): it shows how large k fail,
# and is too short to tell small k from 0.
_K_SCALES: dict[str, Scale] = {
    "smoke": Scale((0.0, 16.0, 32_768.0), 2, SMOKE),
    "small": Scale((0.0, 4.0, 32.0, 1_024.0, 32_768.0), 8, SMALL),
    "paper": Scale(PAPER_K, PAPER_SEEDS, {}),
}
# A factor of about 3 between neighbours. With Adam the size of a step does not grow with the gradient, so an update
# moves the mean of the action-values about k + 1 times as far: larger k should want smaller step sizes.
STEP_SIZES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
_STEP_SIZE_SCALES: dict[str, Scale] = {
    "smoke": Scale((0.0, 4.0, 128.0), 4, SMOKE, (1e-4, 1e-3)),
    "small": Scale((0.0, 1.0, 4.0, 16.0, 64.0), 6, {**SMALL, "steps": 100_000}, (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)),
    "full": Scale(PAPER_K[:9], 30, {}, STEP_SIZES),  # k = 0, 1, 2, 4, ..., 128
}


def lunarlander_study(
    scale: StudyScale = "small", *, eval_episodes: int | None = None, seeds: int | None = None, tf32: bool = False
) -> Study:
    """The paper's study, or a smaller one; `eval_episodes` and `seeds` replace the scale's own."""
    return _study(_K_SCALES, scale, eval_episodes, seeds, tf32)


def lunarlander_step_size_study(
    scale: StepSizeScale = "small", *, eval_episodes: int | None = None, seeds: int | None = None, tf32: bool = False
) -> Study:
    """k and the step size together, which the paper leaves open; options as in `lunarlander_study`."""
    return _study(_STEP_SIZE_SCALES, scale, eval_episodes, seeds, tf32)


def _study(scales: Mapping[str, Scale], scale: str, eval_episodes: int | None, seeds: int | None, tf32: bool) -> Study:
    chosen, settings, agent_settings = scaled(scales, scale, eval_episodes, seeds, tf32)
    agents = agent_table(ENV, "ib-dqn", seeds=range(chosen.seeds), k=chosen.k, agent_settings=agent_settings)
    return Study(agents, settings, deviations(agents, settings))


def scaled(
    scales: Mapping[str, Scale], scale: str, eval_episodes: int | None, seeds: int | None, tf32: bool
) -> tuple[Scale, TrainingSettings, list[AgentSettings]]:
    """A scale by its name with its settings, and those of agents with each step size."""
    if scale not in scales:
        raise InvalidInput(f"unknown scale {scale!r}: write one of {', '.join(scales)}")
    if eval_episodes is not None and eval_episodes < 1:
        raise InvalidInput(f"eval-episodes = {eval_episodes}: write a number >= 1")
    if seeds is not None and seeds < 2:
        raise InvalidInput(f"seeds = {seeds}: an interval needs at least 2")
    paper, agent_settings = lunarlander_paper()
    chosen = scales[scale]
    changes = chosen.changes if eval_episodes is None else {**chosen.changes, "eval_episodes": eval_episodes}
    episodes = changes.get("eval_episodes", paper.eval_episodes)
    settings = replace(paper, tf32=tf32, **changes, eval_envs=min(paper.eval_envs, episodes))
    each = [replace(agent_settings, step_size=size) for size in chosen.step_sizes or (agent_settings.step_size,)]
    return chosen._replace(seeds=chosen.seeds if seeds is None else seeds), settings, each


def deviations(agents: pl.DataFrame, settings: TrainingSettings) -> tuple[str, ...]:
    """Where a run departs from the paper's settings, in sentences."""
    # The paper does not say how many environments evaluate at once, or how often it saves.
    paper, agent_settings = lunarlander_paper()
    sentences = changed_settings(paper, settings, ("eval_envs", "checkpoint_interval"))
    ks = set(agents["k"].to_list())
    if ks != set(PAPER_K):
        sentences.append(f"{how_many(len(ks), 'value')} of k instead of {len(PAPER_K)}")
    cell = [name for name in ("k", "step_size") if name in agents.columns]
    step_sizes = set(agents["step_size"].to_list()) if "step_size" in cell else set()
    if len(step_sizes) > 1:
        sentences.append(f"{len(step_sizes)} step sizes instead of {agent_settings.step_size:g} alone")
    fewest = min(agents.group_by(cell).len()["len"].to_list())
    if fewest != PAPER_SEEDS:
        sentences.append(f"{how_many(fewest, 'seed')} instead of {PAPER_SEEDS}")
    phase = f"{settings.checkpoint_interval:,} steps, at the end of a phase"
    return (
        *sentences,
        f"an episode under way ends as truncated every {phase}, which makes a run resumable",
        "an update samples the transitions up to the step before, because learning overlaps the environments",
        "batches are drawn with replacement",
    )
