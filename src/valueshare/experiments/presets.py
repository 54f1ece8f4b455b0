"""Settings that are known to work, one function an environment; every field can be replaced.

preset = lunarlander()
settings = dataclasses.replace(preset.settings, total_steps=50_000)
"""

from typing import NamedTuple

from valueshare.population.agents import AgentSettings
from valueshare.population.settings import TrainingSettings


class Preset(NamedTuple):
    """What a population shares, and what each of its agents has of its own."""

    settings: TrainingSettings
    own: AgentSettings


def lunarlander() -> Preset:
    """The paper's LunarLander-v3 study (IB-DQN against k); ten environments an agent share its 100
    evaluation episodes."""
    return Preset(
        TrainingSettings(
            total_steps=100_000,
            phase_steps=10_000,
            hidden=(256, 256),
            observation_scale=0.1,
            reward_scale=0.1,
            minibatch=128,
            replay_capacity=500_000,
            replay_start=1_000,
            update_every=1,
            target_every=100,
            loss="half-squared",
            reduction="mean",
            optimizer="adam",
            optimizer_epsilon=3.125e-4,
            eval_every=10_000,
            eval_episodes=100,
            eval_copies=10,
            eval_episode_limit=1_000,
        ),
        AgentSettings(
            step_size=1e-3,
            discount=0.99,
            epsilon_start=1.0,
            epsilon_end=0.05,
            epsilon_steps=10_000,
        ),
    )


def cartpole() -> Preset:
    """CartPole-v1 for a CPU, 50,000 steps.

    Step size and discount are the best of four pairs tried for 16,000 steps with four seeds each.
    """
    return Preset(
        TrainingSettings(
            total_steps=50_000,
            phase_steps=5_000,
            hidden=(128, 128),
            reward_scale=0.1,
            minibatch=64,
            replay_capacity=50_000,
            replay_start=1_000,
            update_every=1,
            target_every=100,
            optimizer_epsilon=3.125e-4,
            eval_every=5_000,
            eval_episodes=10,
            eval_copies=10,
        ),
        AgentSettings(step_size=1e-3, discount=0.98, epsilon_end=0.05, epsilon_steps=5_000),
    )


def generic() -> Preset:
    """A sound start for any environment with vector observations and rewards of order one."""
    return Preset(
        TrainingSettings(
            total_steps=100_000,
            phase_steps=10_000,
            hidden=(128, 128),
            minibatch=64,
            replay_capacity=100_000,
            replay_start=1_000,
            update_every=4,
            target_every=500,
            loss="huber",
            eval_every=10_000,
            eval_episodes=10,
            eval_copies=10,
        ),
        AgentSettings(step_size=5e-4, discount=0.99, epsilon_end=0.05, epsilon_steps=10_000),
    )


PRESETS = {"LunarLander-v3": lunarlander, "CartPole-v1": cartpole}


def preset_for(env: str) -> Preset:
    """The preset of an environment, or the generic one."""
    return PRESETS.get(env, generic)()
