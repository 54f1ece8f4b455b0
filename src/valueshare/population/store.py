"""Storing: one step of every agent, and how it becomes transitions in replay."""

from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.nn.stacking import per_agent
from valueshare.population.settings import TrainingSettings
from valueshare.replay import transitions
from valueshare.replay.transitions import Transitions


class StepTensors(NamedTuple):
    """One step of every agent's environment."""

    observation: Tensor  # [P, ...]  to act on next: the newest frame of a stack
    final_observation: Tensor  # [P, ...]  the observation of the step itself, if it `ended` an episode
    reward: Tensor  # [P]
    terminated: Tensor  # [P]
    ended: Tensor  # [P]  terminated or truncated
    action: Tensor  # [P]  the actions of that step


@torch.no_grad()
def store(replay: Transitions, step: StepTensors, discount: Tensor, settings: TrainingSettings) -> None:
    """Add a step to replay, all of it on the device of the replay. Shapes: discount [P]."""
    transitions.add(
        replay,
        action=step.action,
        reward=training_reward(settings, step.reward),
        discount=discount.masked_fill(step.terminated, 0.0),
        next_observation=torch.where(per_agent(step.ended, step.observation), step.final_observation, step.observation),
        ended=step.ended,
        observation=step.observation,
    )


def training_reward(settings: TrainingSettings, reward: Tensor) -> Tensor:
    """Rewards on the scale that agents learn from."""
    scaled = reward * settings.reward_scale
    return scaled.sign() if settings.clip_rewards else scaled
