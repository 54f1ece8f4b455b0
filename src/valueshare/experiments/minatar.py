"""The MinAtar study as data: eight agents on five games, at three scales.

The agents are those of the paper's Atari study and Double DQN, with settings of the literature (`presets.minatar`).
One run holds all agents; those that share a network and a loss are one population of all games.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from valueshare.algorithm_info import ALGORITHM_INFO, algorithm_name
from valueshare.envs import environment_spec
from valueshare.envs.minatar import MINATAR_ACTIONS, MINATAR_GAMES
from valueshare.errors import InvalidInput
from valueshare.experiments.study import OVERLAP, REPLACEMENT, Study, StudySize, changed_settings, plan_of, scaled
from valueshare.population.agents import agent_table, concat_agents, seed_list
from valueshare.population.other_names import check_known
from valueshare.population.presets import minatar
from valueshare.population.settings import TrainingSettings
from valueshare.runs.planning import families

GAMES = MINATAR_GAMES
EPSILON_STEPS = 100_000  # of Young and Tian (2019)


class StudyAgent(NamedTuple):
    """An algorithm of the study; its step size was chosen on seeds 1,000 and 1,001 (docs/reproduction/minatar.md)."""

    algorithm: str
    k: float
    step_size: float


AGENTS = (
    StudyAgent("dqn", 0.0, 5e-4),
    StudyAgent("double-dqn", 0.0, 5e-4),
    StudyAgent("dueling-dqn", 0.0, 2.5e-4),
    StudyAgent("ib-dqn", 1.0, 5e-4),
    StudyAgent("ib-dqn", float(MINATAR_ACTIONS), 5e-4),
    StudyAgent("rdq", 0.0, 5e-4),
    StudyAgent("iqn", 0.0, 5e-4),
    StudyAgent("ib-iqn", float(MINATAR_ACTIONS), 5e-4),
)
SMOKE: dict[str, Any] = {
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
}
SMOKE_GAMES = ("Breakout", "SpaceInvaders")
SCALES: dict[str, StudySize] = {
    "smoke": StudySize(2, SMOKE, epsilon_steps=60),
    "small": StudySize(10, {}),  # 1,000,000 steps
    "full": StudySize(30, {"steps": 5_000_000, "checkpoint_interval": 250_000, "eval_interval": 250_000}),
}


def minatar_study(
    scale: str = "small",
    *,
    env: Sequence[str] = (),
    algorithm: Sequence[str] = (),
    step_size: Sequence[float] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    steps: int | None = None,
    eval_episodes: int | None = None,
    tf32: bool = False,
    **placement: Any,
) -> Study:
    """The study at a scale; what is given replaces the scale's own.

    Step sizes that are given are all run with every algorithm, instead of each algorithm's own.

    `placement` is the device and the compilation of the plan.
    """
    overrides: dict[str, Any] = {"seeds": seeds, "steps": steps, "eval_episodes": eval_episodes, "tf32": tf32}
    chosen, settings, (agent_settings, *_) = scaled(minatar(), SCALES, scale, **overrides)
    known = dict.fromkeys(agent.algorithm for agent in AGENTS)
    chosen_algorithms = list(map(algorithm_name, algorithm)) or list(known)
    for name in chosen_algorithms:
        check_known("algorithm", name, ALGORITHM_INFO)
        if name not in known:
            raise InvalidInput(f"the study has no {name}: write one of {', '.join(known)}")
    names = env or (SMOKE_GAMES if scale == "smoke" else GAMES)
    envs = list(dict.fromkeys(_env(name) for name in names))
    numbers = seed_list(chosen.seeds, first_seed)
    agents = concat_agents(
        [
            agent_table(
                name,
                agent.algorithm,
                seeds=numbers,
                k=agent.k,
                agent_settings=[replace(agent_settings, step_size=size) for size in step_size or (agent.step_size,)],
            )
            for agent in AGENTS
            if agent.algorithm in chosen_algorithms
            for name in envs
        ]
    )
    specs = {name: environment_spec(name) for name in envs}
    shared = families(dict.fromkeys(envs, settings), specs)
    actions = {name: spec.actions for name, spec in specs.items()}
    plan = plan_of(agents, settings, "numba", families=shared, actions=actions, **placement)
    return Study("minatar", scale, {"": plan}, deviations(agents, settings))


def deviations(agents: pl.DataFrame, settings: TrainingSettings) -> tuple[str, ...]:
    """Departures of a run from Dopamine's MinAtar agents, in sentences."""
    ignored = ("steps", "checkpoint_interval", "eval_interval", "eval_episodes", "eval_envs", "eval_episode_limit")
    published, agent_settings = minatar()
    step_size, epsilon_steps = f"{agent_settings.step_size:g}", agents["epsilon_steps"][0]
    step_sizes = " and ".join(f"{size:g}" for size in agents["step_size"].unique().sort())
    other_epsilon = f"epsilon falls over {epsilon_steps:,} steps; {EPSILON_STEPS:,} in Young and Tian"
    return (
        *changed_settings(published, settings, ignored),
        *([] if step_sizes == step_size else [f"step size {step_sizes} instead of {step_size}"]),
        "the network and the Huber loss are those of Young and Tian (2019)",
        *([] if epsilon_steps == EPSILON_STEPS else [other_epsilon]),
        "the end of Freeway, after 2,501 steps, is truncation, and a terminal state in MinAtar",
        "the target network is copied before the update of the same step",
        "an episode is truncated after 10,000 steps, and at the end of a phase, which makes a run resumable",
        OVERLAP.format("environments"),
        REPLACEMENT,
    )


def _env(name: str) -> str:
    """Breakout-MinAtar of breakout, Breakout or Breakout-MinAtar."""
    key = name.removesuffix("-MinAtar").lower()
    known = {game.lower(): f"{game}-MinAtar" for game in GAMES}
    if key not in known:
        raise InvalidInput(f"there is no MinAtar game {name!r}: write one of {', '.join(GAMES)}")
    return known[key]
