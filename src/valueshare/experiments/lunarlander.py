"""The LunarLander studies as data: IB-DQN against k, against k and the step size, and with more and more actions.

For more actions, LunarLander's two continuous engines are in bins: the task stays the same and the number of actions
grows. The gridworld with copies of its actions is in `tabular_designs.py`.
"""

from typing import Any, Literal

import polars as pl

from valueshare.envs import environment_spec
from valueshare.experiments.study import OVERLAP, REPLACEMENT, Study, StudySize, changed_settings, plan_of, scaled
from valueshare.population.agents import agent_table, concat_agents
from valueshare.population.presets import lunarlander_paper
from valueshare.population.settings import TrainingSettings
from valueshare.text import pluralize

ENV, CONTINUOUS = "LunarLander-v3", "LunarLanderContinuous-v3"
PAPER_K = (0.0, *(2.0**i for i in range(16)))  # 0, 1, 2, 4, ..., 32768
PAPER_SEEDS = 120
ACTIONS_ALGORITHMS = ("dqn", "ib-dqn", "dueling-dqn")
LunarLanderName = Literal["lunarlander", "lunarlander-step-size", "lunarlander-actions"]

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
# A factor of about 3 between neighbours. With Adam the size of a step does not grow with the gradient, so an update
# moves the mean of the action-values about k + 1 times as far: larger k should want smaller step sizes.
STEP_SIZES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SCALES: dict[LunarLanderName, dict[str, StudySize]] = {
    # Small: 5 x 8 agents x 50,000 steps, with a smaller network, half the batch and a quarter of the updates. Agents
    # learn not to crash at once, most of them not yet to land (mean scores near -75 at the end): it shows how large k
    # fail, and is too short to tell small k from 0.
    "lunarlander": {
        "smoke": StudySize(2, SMOKE, (0.0, 16.0, 32_768.0)),
        "small": StudySize(8, SMALL, (0.0, 4.0, 32.0, 1_024.0, 32_768.0)),
        "paper": StudySize(PAPER_SEEDS, {}, PAPER_K),
    },
    "lunarlander-step-size": {
        "smoke": StudySize(4, SMOKE, (0.0, 4.0, 128.0), (1e-4, 1e-3)),
        "small": StudySize(6, {**SMALL, "steps": 100_000}, (0.0, 1.0, 4.0, 16.0, 64.0), (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)),
        "full": StudySize(30, {}, PAPER_K[:9], STEP_SIZES),  # k = 0, 1, 2, 4, ..., 128
    },
    # The k are those that do not depend on n. IB-DQN(n) with n = 225 moves the mean of the action-values about 226
    # times as far as DQN with the same step size of Adam: so step sizes go further down than for four actions.
    "lunarlander-actions": {
        "smoke": StudySize(2, SMOKE, (1.0,), (1e-4, 1e-3)),
        "small": StudySize(4, SMALL, (1.0,), (1e-4, 3e-4, 1e-3)),
        "full": StudySize(30, {}, (1.0,), (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)),
    },
}
BINS: dict[str, tuple[int, ...]] = {"smoke": (3, 7), "small": (3, 7, 15), "full": (3, 7, 15)}  # per engine


def lunarlander_study(
    name: LunarLanderName = "lunarlander",
    scale: str = "small",
    *,
    eval_episodes: int | None = None,
    seeds: int | None = None,
    tf32: bool = False,
    **placement: Any,
) -> Study:
    """The paper's study, or one of ours beside it; `eval_episodes` and `seeds` replace the scale's own.

    `lunarlander-step-size` sweeps k and the step size together. `lunarlander-actions` has DQN, IB-DQN(1), IB-DQN(n) and
    Dueling DQN with several step sizes each. `placement` is the device and the compilation of the plan.
    """
    chosen, settings, agent_variants = scaled(
        lunarlander_paper(), SCALES[name], scale, seeds=seeds, eval_episodes=eval_episodes, tf32=tf32
    )
    binned = name == "lunarlander-actions"
    envs = [f"{CONTINUOUS}-bins{n}x{n}" for n in BINS[scale]] if binned else [ENV]
    actions = {env: environment_spec(env, "envpool").actions for env in envs}
    tables = [
        agent_table(
            env,
            ACTIONS_ALGORITHMS if binned else "ib-dqn",
            seeds=range(chosen.seeds),
            k=(*chosen.k, float(actions[env])) if binned else chosen.k,
            agent_settings=agent_variants,
        )
        for env in envs
    ]
    agents = concat_agents(tables)
    sentences = deviations(agents, settings)
    if binned:
        counts = ", ".join(map(str, actions.values()))
        sentences.insert(0, f"LunarLander's two continuous engines in bins, {counts} actions, instead of its 4 actions")
    plan = plan_of(agents, settings, "envpool", actions=actions, **placement)
    return Study(name, scale, {"": plan}, tuple(sentences))


def deviations(agents: pl.DataFrame, settings: TrainingSettings) -> list[str]:
    """Departures of a run from the paper's settings, in sentences."""
    # The paper does not say how many environments evaluate at once, or how often it saves.
    paper, agent_settings = lunarlander_paper()
    sentences = changed_settings(paper, settings, ("eval_envs", "checkpoint_interval"))
    ks, step_sizes = (agents[name].unique() for name in ("k", "step_size"))
    if set(ks) != set(PAPER_K):
        sentences.append(f"{pluralize(len(ks), 'value')} of k instead of {len(PAPER_K)}")
    if len(step_sizes) > 1:
        sentences.append(f"{len(step_sizes)} step sizes instead of {agent_settings.step_size:g} alone")
    fewest = min(agents.group_by("env", "algorithm", "k", "step_size").len()["len"])
    if fewest != PAPER_SEEDS:
        sentences.append(f"{pluralize(fewest, 'seed')} instead of {PAPER_SEEDS}")
    phase = f"{settings.checkpoint_interval:,} steps, at the end of a phase"
    return [
        *sentences,
        f"an episode under way ends as truncated every {phase}, which makes a run resumable",
        OVERLAP.format("environments"),
        REPLACEMENT,
    ]
