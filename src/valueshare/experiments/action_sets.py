"""LunarLander with more and more actions, as data: its two continuous engines in bins.

The task stays the same and the number of actions grows. The gridworld with copies of its actions is in `studies.py`.
"""

from typing import Literal

import polars as pl

from valueshare.envs.action_bins import split_bins
from valueshare.experiments.lunarlander import SMALL, SMOKE, Scale, Study, deviations, scaled
from valueshare.population.agents import agent_table

ENV = "LunarLanderContinuous-v3"
ALGORITHMS = ("dqn", "ib-dqn", "dueling-dqn")
ActionsScale = Literal["smoke", "small", "full"]

# The k are those that do not depend on n. IB-DQN(n) with n = 225 moves the mean of the action-values about 226 times as
# far as DQN with the same step size of Adam: so step sizes go further down than for LunarLander's four actions.
_SCALES: dict[str, Scale] = {
    "smoke": Scale((1.0,), 2, SMOKE, (1e-4, 1e-3)),
    "small": Scale((1.0,), 4, SMALL, (1e-4, 3e-4, 1e-3)),
    "full": Scale((1.0,), 30, {}, (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)),
}
_BINS: dict[str, tuple[int, ...]] = {"smoke": (3, 7), "small": (3, 7, 15), "full": (3, 7, 15)}  # per engine


def lunarlander_actions_study(
    scale: ActionsScale = "small", *, eval_episodes: int | None = None, seeds: int | None = None, tf32: bool = False
) -> Study:
    """DQN, IB-DQN(1), IB-DQN(n) and Dueling DQN with 9, 49 and 225 actions and several step sizes each."""
    chosen, settings, agent_settings = scaled(_SCALES, scale, eval_episodes, seeds, tf32)
    envs = [f"{ENV}-bins{bins}x{bins}" for bins in _BINS[scale]]
    tables = [
        agent_table(
            env,
            ALGORITHMS,
            seeds=range(chosen.seeds),
            k=(*chosen.k, float(split_bins(env).actions or 0)),
            agent_settings=agent_settings,
        )
        for env in envs
    ]
    agents = pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))
    counts = ", ".join(str(split_bins(env).actions) for env in envs)
    own = f"LunarLander's two continuous engines in bins, {counts} actions, instead of its 4 actions"
    return Study(agents, settings, (own, *deviations(agents, settings)))
