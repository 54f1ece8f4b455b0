"""The LunarLander study as data: IB-DQN against k, at three scales."""

from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.experiments.deviations import changed_settings
from valueshare.population.agents import agent_table
from valueshare.population.presets import lunarlander_paper
from valueshare.population.settings import TrainingSettings
from valueshare.text import how_many

ENV = "LunarLander-v3"
PAPER_K = (0.0, *(2.0**i for i in range(16)))  # 0, 1, 2, 4, ..., 32768
StudyScale = Literal["smoke", "small", "paper"]


class Study(NamedTuple):
    """Agents and their settings, ready to be run."""

    agents: pl.DataFrame
    settings: TrainingSettings
    deviations: tuple[str, ...]  # from the paper, one sentence each


class _Scale(NamedTuple):
    k: tuple[float, ...]
    seeds: int
    changes: dict[str, Any]  # of the paper's settings


# Small: 5 x 8 agents x 50,000 steps, with a smaller network, half the batch and a quarter of the updates. Agents
# learn not to crash at once, most of them not yet to land (mean scores near -75 at the end): it shows how large k fail,
# and is too short to tell small k from 0.
_SCALES: dict[StudyScale, _Scale] = {
    "paper": _Scale(PAPER_K, 120, {}),
    "small": _Scale(
        (0.0, 4.0, 32.0, 1_024.0, 32_768.0),
        8,
        {
            "steps": 50_000,
            "checkpoint_interval": 5_000,
            "eval_interval": 5_000,
            "eval_episodes": 5,
            "hidden": (128, 128),
            "batch_size": 64,
            "update_interval": 4,
        },
    ),
    "smoke": _Scale(
        (0.0, 16.0, 32_768.0),
        2,
        {
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
        },
    ),
}


def lunarlander_study(
    scale: StudyScale = "small", *, eval_episodes: int | None = None, seeds: int | None = None, tf32: bool = False
) -> Study:
    """The paper's study, or a smaller one; `eval_episodes` and `seeds` replace the scale's own."""
    if scale not in _SCALES:
        raise InvalidInput(f"unknown scale {scale!r}: write one of {', '.join(get_args(StudyScale))}")
    if eval_episodes is not None and eval_episodes < 1:
        raise InvalidInput(f"eval-episodes = {eval_episodes}: write a number >= 1")
    if seeds is not None and seeds < 2:
        raise InvalidInput(f"seeds = {seeds}: an interval needs at least 2")
    paper, agent_settings = lunarlander_paper()
    chosen = _SCALES[scale]
    changes = chosen.changes if eval_episodes is None else {**chosen.changes, "eval_episodes": eval_episodes}
    episodes = changes.get("eval_episodes", paper.eval_episodes)
    settings = replace(paper, tf32=tf32, **changes, eval_envs=min(paper.eval_envs, episodes))
    count = chosen.seeds if seeds is None else seeds
    agents = agent_table(ENV, "ib-dqn", seeds=range(count), k=chosen.k, agent_settings=agent_settings)
    return Study(agents, settings, deviations(agents, settings))


def deviations(agents: pl.DataFrame, settings: TrainingSettings) -> tuple[str, ...]:
    """Where a run departs from the paper's settings, in sentences."""
    # The paper does not say how many environments evaluate at once, or how often it saves.
    sentences = changed_settings(lunarlander_paper().settings, settings, ("eval_envs", "checkpoint_interval"))
    ks = set(agents["k"].to_list())
    if ks != set(PAPER_K):
        sentences.append(f"{how_many(len(ks), 'value')} of k instead of {len(PAPER_K)}")
    fewest = min(agents.group_by("k").len()["len"].to_list())
    if fewest != _SCALES["paper"].seeds:
        sentences.append(f"{how_many(fewest, 'seed')} instead of {_SCALES['paper'].seeds}")
    phase = f"{settings.checkpoint_interval:,} steps, at the end of a phase"
    return (
        *sentences,
        f"an episode under way ends as truncated every {phase}, which makes a run resumable",
        "an update samples the transitions up to the step before, because learning overlaps the environments",
        "batches are drawn with replacement",
    )
