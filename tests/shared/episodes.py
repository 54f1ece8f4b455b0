"""Episodes and networks of the runs in conftest.py."""

import json
import time
from pathlib import Path
from typing import Any

from torch import nn

from valueshare.children import Child, ChildResult
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn.torsos import NetworkShape
from valueshare.runs.policies import read_policy, read_weights
from valueshare.video.rendering import make_rendered_env
from valueshare.video.rollouts import RolloutStep, rollout

ALGORITHMS_PLAYED = ("ib-dqn", "dueling-dqn", "rdq", "ib-iqn")
HIDDEN = (16, 16)
K = 4.0
SHORT: dict[str, Any] = {
    "steps": 120,
    "eval_interval": 60,
    "eval_episodes": 1,
    "eval_episode_limit": 40,
    "batch_size": 8,
    "learning_starts": 20,
    "progress": False,
}


def network_of(folder: Path, agent: int, algorithm: str) -> nn.Module:
    """One agent's own module with its weights: no population, no vmap."""
    shape = NetworkShape((4,), 2, HIDDEN, 1.0)
    module = ALGORITHMS[algorithm].build(shape, K)
    module.load_state_dict(read_weights(folder, agent)[0])
    return module


def episode(folder: Path, agent: int, **options: Any) -> list[RolloutStep]:
    trained = read_policy(folder, agent)
    env = trained.population.env
    rendered = make_rendered_env(env, trained.population.settings.atari_protocol)
    given = {"episodes": 1, "seed": 3, "epsilon": 0.0, "episode_limit": None, **options}
    shown = list(rollout(trained, rendered, **given))
    rendered.close()
    return shown


def rendered_clip(folder: Path, video: Path) -> ChildResult:
    """The end of the process that renders a clip of agent 0."""
    child = Child("valueshare.video.clip", json.dumps({"folder": str(folder), "agent": 0, "video": str(video)}))
    until = time.monotonic() + 240
    while not child.has_ended() and time.monotonic() < until:
        time.sleep(0.1)
    result = child.result()
    child.close()
    return result
