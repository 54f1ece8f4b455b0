"""Settings by environment, one function each; every field can be replaced:

preset = lunarlander()
settings = dataclasses.replace(preset.settings, steps=50_000)
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from valueshare.algorithm_info import info_named, without_layer
from valueshare.envs.action_bins import split_bins
from valueshare.envs.atari_games import is_atari
from valueshare.envs.minatar import is_minatar
from valueshare.envs.protocols import DEFAULT_PROTOCOL
from valueshare.errors import InvalidInput
from valueshare.nn.torsos import is_small
from valueshare.population.settings import AgentSettings, TrainingSettings


class Preset(NamedTuple):
    """The settings of a population and of its agents."""

    settings: TrainingSettings
    agent_settings: AgentSettings


def lunarlander_paper() -> Preset:
    """The paper's LunarLander-v3 study of k; ten environments per agent share its 100 evaluation episodes."""
    return Preset(
        TrainingSettings(
            steps=100_000,
            checkpoint_interval=10_000,
            hidden=(256, 256),
            initialization="paper",
            observation_scale=0.1,
            reward_scale=0.1,
            batch_size=128,
            replay_capacity=500_000,
            learning_starts=1_000,
            update_interval=1,
            target_update_interval=100,
            loss="half-squared",
            reduction="mean",
            optimizer="adam",
            optimizer_epsilon=3.125e-4,
            eval_interval=10_000,
            eval_episodes=100,
            eval_envs=10,
            eval_episode_limit=1_000,
        ),
        AgentSettings(step_size=1e-3, discount=0.99, epsilon_start=1.0, epsilon_end=0.05, epsilon_steps=10_000),
    )


def lunarlander() -> Preset:
    """LunarLander-v3 for a CPU, 200,000 steps; the paper's settings are `lunarlander_paper`.

    The best of 18 settings on seeds 200 to 207, where it scored 179 in the last evaluation.
    """
    return _classic(
        TrainingSettings(
            steps=200_000,
            reward_scale=0.1,
            batch_size=64,
            replay_capacity=100_000,
            update_interval=4,
            target_update_interval=1_000,
            loss="huber",
        ),
        AgentSettings(step_size=5e-4, epsilon_end=0.1, epsilon_steps=40_000),
    )


def cartpole() -> Preset:
    """CartPole-v1 for a CPU, 50,000 steps.

    The step size falls to 0, and Adam's epsilon is the paper's: with a constant step size, or with 1e-8, agents that
    learn fast get worse again. Chosen on seeds 400 to 407; epsilon on seeds 800 to 815 (docs/presets.md).

    Values reach 10. With kappa = 20 IQN squares its errors like DQN does; its outputs are then
    expectiles rather than quantiles.
    """
    return _classic(
        TrainingSettings(
            steps=50_000,
            observation_scale=2.0,
            reward_scale=0.1,
            batch_size=256,
            replay_capacity=20_000,
            update_interval=8,
            target_update_interval=160,
            loss="half-squared",
            step_size_schedule="linear",
            optimizer_epsilon=3.125e-4,
            quantiles=8,
            target_quantiles=8,
            acting_quantiles=8,
            kappa=20.0,
        ),
        AgentSettings(step_size=2.5e-3, epsilon_end=0.3, epsilon_steps=5_000),
    )


def acrobot() -> Preset:
    """Acrobot-v1 for a CPU, 100,000 steps.

    The best of five settings on seeds 200 to 207, where it scored -82 in the last evaluation.
    """
    return _classic(
        TrainingSettings(
            steps=100_000,
            hidden=(64, 64),
            reward_scale=0.1,
            batch_size=256,
            replay_capacity=100_000,
            update_interval=8,
            target_update_interval=400,
            loss="half-squared",
        ),
        AgentSettings(step_size=5e-4, epsilon_end=0.1, epsilon_steps=10_000),
    )


def mountaincar() -> Preset:
    """MountainCar-v0 for a CPU, 120,000 steps.

    The best of five settings on seeds 200 to 207, where it scored -105 in the last evaluation.
    """
    return _classic(
        TrainingSettings(
            steps=120_000,
            hidden=(64, 64),
            observation_scale=10.0,
            reward_scale=0.1,
            batch_size=256,
            replay_capacity=50_000,
            update_interval=8,
            target_update_interval=600,
            loss="half-squared",
        ),
        AgentSettings(step_size=2e-3, epsilon_end=0.1, epsilon_steps=5_000),
    )


def generic(observation: Sequence[int] = ()) -> Preset:
    """Untuned settings for environments with rewards of order one. `observation` is the shape of an observation.

    Images [C, H, W] have one hidden layer after the convolutions. The step sizes are as in `minatar` and in
    CleanRL's DQN on Atari games (dqn_atari.py). A replay of 10,000 images of 4 x 84 x 84 bytes takes 0.6 GB per agent.
    """
    if len(observation) != 3:
        return Preset(TrainingSettings(), AgentSettings())
    if is_small(observation):
        return Preset(TrainingSettings(hidden=(128,)), AgentSettings(step_size=2.5e-4))
    return Preset(TrainingSettings(hidden=(512,), batch_size=32, replay_capacity=10_000), AgentSettings(step_size=1e-4))


def _classic(settings: TrainingSettings, agent_settings: AgentSettings) -> Preset:
    """A preset with ten evaluations of a run."""
    tenth = settings.steps // 10
    return Preset(replace(settings, checkpoint_interval=tenth, eval_interval=tenth), agent_settings)


# The settings of `atari` by algorithm, with the layer or without: shared ones and those per agent that are not DQN's.
ATARI_OVERRIDES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rdq": ({"reduction": "mean"}, {}),
    "iqn": ({"reduction": "mean", "optimizer_epsilon": 3.125e-4}, {"step_size": 5e-5}),
}


def atari(algorithm: str = "dqn") -> Preset:
    """The paper's Atari settings of an algorithm.

    DQN, Double and Dueling DQN and IB-DQN sum the loss over the batch; RDQ and IQN average it.
    One environment plays an agent's 125,000 evaluation steps: several would each cut off
    one episode, so that long episodes would be missing.
    """
    base = Preset(
        TrainingSettings(
            steps=50_000_000,
            checkpoint_interval=250_000,
            hidden=(512,),
            initialization="paper",
            clip_rewards=True,
            atari_protocol=DEFAULT_PROTOCOL,
            batch_size=32,
            replay_capacity=1_000_000,
            learning_starts=50_000,
            update_interval=4,
            target_update_interval=10_000,
            loss="half-squared",
            reduction="sum",
            optimizer="adam",
            adam_betas=(0.9, 0.999),
            optimizer_epsilon=1.5e-4,
            quantiles=64,
            target_quantiles=64,
            acting_quantiles=32,
            eval_interval=250_000,
            eval_episodes=0,
            eval_timesteps=125_000,
            eval_envs=1,
            eval_epsilon=0.001,
        ),
        AgentSettings(
            step_size=6.25e-5, discount=0.99, epsilon_start=1.0, epsilon_end=0.01, epsilon_steps=1_000_000, beta=0.001
        ),
    )
    info_named(algorithm)  # refuses an unknown one
    settings, agent_settings = ATARI_OVERRIDES.get(without_layer(algorithm), ({}, {}))
    return Preset(replace(base.settings, **settings), replace(base.agent_settings, **agent_settings))


def atari_rmsprop() -> Preset:
    """The paper's variant of DQN and IB-DQN on Atari: centred RMSprop and the Huber loss.

    RMSprop's epsilon is inside the square root.
    """
    base = atari()
    settings = replace(base.settings, loss="huber", optimizer="rmsprop", rmsprop_decay=0.95, optimizer_epsilon=0.01)
    return Preset(settings, replace(base.agent_settings, step_size=2.5e-4))


def minatar() -> Preset:
    """The five MinAtar games: settings of Dopamine's MinAtar DQN, with the network and loss of Young and Tian (2019).

    https://github.com/google/dopamine, labs/environments/minatar/dqn_asterix.gin: Adam, batch size 32, an update every
    4 steps, a target copy every 1,000, replay of 100,000 from 1,000 on. https://github.com/kenjyoung/MinAtar,
    examples/dqn.py: the network, the Huber loss, and epsilon that falls over 100,000 steps, here to Dopamine's 0.01.
    """
    return Preset(
        TrainingSettings(
            steps=1_000_000,
            checkpoint_interval=100_000,
            hidden=(128,),
            initialization="pytorch",
            batch_size=32,
            replay_capacity=100_000,
            learning_starts=1_000,
            update_interval=4,
            target_update_interval=1_000,
            loss="huber",
            reduction="mean",
            optimizer="adam",
            optimizer_epsilon=3.125e-4,
            eval_interval=100_000,
            eval_episodes=10,
            eval_envs=10,
        ),
        AgentSettings(step_size=2.5e-4, discount=0.99, epsilon_start=1.0, epsilon_end=0.01, epsilon_steps=100_000),
    )


PRESETS = {"CartPole-v1": cartpole, "Acrobot-v1": acrobot, "MountainCar-v0": mountaincar, "LunarLander-v3": lunarlander}
PRESET_ALIASES = {"LunarLanderContinuous-v3": "LunarLander-v3"}  # the same task: its preset, not tuned on these actions


def preset_name(env: str) -> str | None:
    """The key of an environment's preset in PRESETS; None: the generic settings. Not for Atari and MinAtar games."""
    without_bins = split_bins(env).env_id
    name = PRESET_ALIASES.get(without_bins, without_bins)
    return name if name in PRESETS else None


def preset_text(env: str) -> str:
    """The preset of an environment in words: preset of CartPole-v1, or generic (CartPole-v0 has no preset; ...)."""
    if is_minatar(env) or is_atari(env):
        return f"preset of {'MinAtar' if is_minatar(env) else 'Atari'} games"
    name = preset_name(env)
    if name is not None:
        return f"preset of {name}"
    without_bins = split_bins(env).env_id
    other_version = [known for known in PRESETS if known.partition("-v")[0] == without_bins.partition("-v")[0]]
    return f"generic ({without_bins} has no preset{''.join(f'; {known} has one' for known in other_version)})"


def preset_for(env: str, algorithms: Sequence[str] = ("dqn",), observation: Sequence[int] = ()) -> Preset:
    """The preset of an environment, or the generic one for its `observation`, a shape.

    On Atari games the settings depend on the algorithm; those of one run must agree.
    """
    if is_minatar(env):
        return minatar()
    if not is_atari(env):
        named = preset_name(env)
        return generic(observation) if named is None else PRESETS[named]()
    if not algorithms:
        raise InvalidInput("no `algorithm` is given: write at least one name")
    first, *others = [atari(name) for name in algorithms]
    if any(preset != first for preset in others):
        raise InvalidInput(
            f"{', '.join(algorithms)} have different settings in the paper's Atari experiments: "
            "train them in separate runs, or use valueshare reproduce atari57"
        )
    return first
