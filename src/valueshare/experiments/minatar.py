"""The MinAtar study as data: eight agents on five games, at three scales.

The agents are those of the paper's Atari study and Double DQN, with settings of the literature (`presets.minatar`).
One run holds all agents; those that share a network and a loss are one population of all games.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import polars as pl

from valueshare.envs.gymnax_names import MINATAR_ACTIONS, MINATAR_GAMES
from valueshare.errors import InvalidInput
from valueshare.experiments.deviations import changed_settings
from valueshare.population.agents import agent_table
from valueshare.population.presets import minatar
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.setting import counted

GAMES = MINATAR_GAMES
AGENTS = (
    ("dqn", 0.0),
    ("double-dqn", 0.0),
    ("dueling-dqn", 0.0),
    ("ib-dqn", 1.0),
    ("ib-dqn", float(MINATAR_ACTIONS)),
    ("rdq", 0.0),
    ("iqn", 0.0),
    ("ib-iqn", float(MINATAR_ACTIONS)),
)
MinatarScale = Literal["smoke", "small", "full"]


class MinatarStudy(NamedTuple):
    """Agents and their settings, ready to be run."""

    agents: pl.DataFrame
    settings: TrainingSettings  # of every game
    deviations: tuple[str, ...]  # from the literature, one sentence each


class _Scale(NamedTuple):
    games: tuple[str, ...]
    seeds: int
    changes: dict[str, Any]  # of the preset
    epsilon_steps: int | None = None  # None: the preset's


_SCALES: dict[str, _Scale] = {
    "smoke": _Scale(
        ("Breakout", "SpaceInvaders"),
        2,
        {
            "steps": 120,
            "checkpoint_interval": 60,
            "eval_interval": 60,
            "eval_episodes": 2,
            "eval_episode_limit": 50,
            "hidden": (16,),
            "batch_size": 8,
            "replay_capacity": 200,
            "learning_starts": 20,
            "target_update_interval": 20,
            "quantiles": 4,
            "target_quantiles": 4,
            "acting_quantiles": 4,
        },
        epsilon_steps=60,
    ),
    "small": _Scale(GAMES, 10, {}),  # 1,000,000 steps
    "full": _Scale(GAMES, 30, {"steps": 5_000_000, "checkpoint_interval": 250_000, "eval_interval": 250_000}),
}


def minatar_study(
    scale: MinatarScale = "small",
    *,
    games: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    step_size: Sequence[float] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    steps: int | None = None,
    eval_episodes: int | None = None,
    tf32: bool = False,
) -> MinatarStudy:
    """The study at a scale; what is given replaces the scale's own. Several step sizes are all run."""
    if scale not in _SCALES:
        raise InvalidInput(f"unknown scale {scale!r}: write one of {', '.join(_SCALES)}")
    chosen, (published, agent_settings) = _SCALES[scale], minatar()
    for name, count in (("steps", steps), ("eval-episodes", eval_episodes)):
        if count is not None:
            counted(name, count)
    if seeds is not None and seeds < 2:
        raise InvalidInput(f"seeds = {seeds}: an interval needs at least 2")
    if first_seed < 0:
        raise InvalidInput(f"first-seed = {first_seed}: seeds are whole numbers from 0")
    given = {name: count for name, count in (("steps", steps), ("eval_episodes", eval_episodes)) if count is not None}
    changes = chosen.changes | given
    episodes = changes.get("eval_episodes", published.eval_episodes)
    settings = replace(published, tf32=tf32, **changes, eval_envs=min(published.eval_envs, episodes))
    if chosen.epsilon_steps is not None:
        agent_settings = replace(agent_settings, epsilon_steps=chosen.epsilon_steps)
    count = chosen.seeds if seeds is None else seeds
    agents = _table(
        list(dict.fromkeys(_game(name) for name in games or chosen.games)),
        [agent for agent in AGENTS if not algorithms or agent[0] in _known(algorithms)],
        range(first_seed, first_seed + count),
        [replace(agent_settings, step_size=size) for size in step_size or (agent_settings.step_size,)],
    )
    return MinatarStudy(agents, settings, deviations(agents, settings))


def deviations(agents: pl.DataFrame, settings: TrainingSettings) -> tuple[str, ...]:
    """Where a run departs from Dopamine's MinAtar agents, in sentences."""
    ignored = ("steps", "checkpoint_interval", "eval_interval", "eval_episodes", "eval_envs", "eval_episode_limit")
    published, agent_settings = minatar()
    step_sizes = ", ".join(f"{size:g}" for size in agents["step_size"].unique().sort())
    return (
        *changed_settings(published, settings, ignored),
        *([] if step_sizes == f"{agent_settings.step_size:g}" else [f"step size {step_sizes} instead of 0.00025"]),
        "the network and the Huber loss are those of Young and Tian (2019)",
        f"epsilon falls over {agents['epsilon_steps'][0]:,} steps; 100,000 in Young and Tian",
        "the end of Freeway, after 2,501 steps, is truncation, and a terminal state in MinAtar",
        "the target network is copied before the update of the same step",
        "an episode is truncated after 10,000 steps, and at the end of a phase, which makes a run resumable",
        "an update samples the transitions up to the step before, because learning overlaps the environments",
        "batches are drawn with replacement",
    )


def _table(
    games: Sequence[str],
    agents: Sequence[tuple[str, float]],
    seeds: range,
    agent_settings: Sequence[AgentSettings],
) -> pl.DataFrame:
    tables = [
        agent_table(game, algorithm, seeds=seeds, k=k, agent_settings=agent_settings)
        for algorithm, k in agents
        for game in games
    ]
    return pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))


def _game(name: str) -> str:
    """Breakout-MinAtar of breakout, Breakout or Breakout-MinAtar."""
    plain = name.removesuffix("-MinAtar").lower()
    known = {game.lower(): f"{game}-MinAtar" for game in GAMES}
    if plain not in known:
        raise InvalidInput(f"there is no MinAtar game {name!r}: write one of {', '.join(GAMES)}")
    return known[plain]


def _known(algorithms: Sequence[str]) -> Sequence[str]:
    names = dict.fromkeys(algorithm for algorithm, _ in AGENTS)
    for name in algorithms:
        if name not in names:
            raise InvalidInput(f"the study has no {name!r}: write one of {', '.join(names)}")
    return algorithms
