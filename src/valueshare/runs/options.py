"""Every setting of a training run as an option; what is left out is the preset's.

The names are those of `TrainingSettings` and `AgentSettings`, with `steps` for `total_steps`. What
an agent has of its own takes one value or several: the run is every combination of them.
Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypedDict

from tyro.conf import arg


def _option(metavar: str) -> Any:
    return arg(metavar=metavar, help_behavior_hint="")


Count = Annotated[int | None, _option("N")]
Counts = Annotated[tuple[int, ...] | None, _option("N ...")]
Number = Annotated[float | None, _option("X")]
Numbers = Annotated[tuple[float, ...] | None, _option("X ...")]
Name = Annotated[str | None, _option("NAME")]
# Lists of which none is as good as left out: what it then is, the option says in words.
CountList = Annotated[tuple[int, ...], _option("N ...")]
NumberList = Annotated[tuple[float, ...], _option("X ...")]
NameList = Annotated[tuple[str, ...], _option("NAME ...")]
Switch = Annotated[bool | None, _option("{True,False}")]


@dataclass(frozen=True)
class Options:
    """Settings; what is left out has the value of the environment's preset (--plan shows them)."""

    steps: Count = None
    """Environment steps of each agent."""
    checkpoint_interval: Count = None
    """Steps between checkpoints; left out: eval-interval."""

    step_size: Numbers = None
    """Step size (learning rate) of the optimiser."""
    discount: Numbers = None
    """Discount factor."""
    epsilon_start: Numbers = None
    """Probability of a random action at the first step."""
    epsilon_end: Numbers = None
    """Probability of a random action after epsilon-steps."""
    epsilon_steps: Counts = None
    """Steps over which epsilon falls linearly from epsilon-start to epsilon-end."""
    beta: Numbers = None
    """Weight of RDQ's penalty."""

    hidden: Counts = None
    """Widths of the hidden layers."""
    initialization: Annotated[Literal["paper", "pytorch"] | None, _option("{paper,pytorch}")] = None
    """Initial weights: as in the paper (LeCun-normal; IQN: PyTorch's), or PyTorch's defaults."""
    observation_scale: Number = None
    """Factor that observations are multiplied by."""
    reward_scale: Number = None
    """Factor that training rewards are multiplied by; scores never are."""
    clip_rewards: Switch = None
    """Replace training rewards by their sign."""

    atari_protocol: Name = None
    """Name of the protocol by which Atari games are played."""

    batch_size: Count = None
    """Transitions per update of one agent."""
    replay_capacity: Count = None
    """Transitions that the replay of one agent holds."""
    learning_starts: Count = None
    """Steps before the first update."""
    replay_device: Annotated[Literal["cpu", "cuda", "disk"] | None, _option("{cpu,cuda,disk}")] = (
        None
    )
    """Memory that holds the replay; left out: that of the training device."""

    update_interval: Count = None
    """Steps between updates."""
    gradient_steps: Count = None
    """Updates made at every update interval."""
    target_update_interval: Count = None
    """Steps between copies of the online weights into the target network."""
    delayed_actor: Switch = None
    """Act with the weights from before the last update, so that acting never waits for one."""
    loss: Annotated[Literal["half-squared", "huber"] | None, _option("{half-squared,huber}")] = None
    """Loss of a temporal-difference error."""
    reduction: Annotated[Literal["mean", "sum"] | None, _option("{mean,sum}")] = None
    """Reduction of the loss over the batch."""
    optimizer: Annotated[Literal["adam", "rmsprop"] | None, _option("{adam,rmsprop}")] = None
    """Optimiser; RMSprop is centred, with its epsilon inside the root."""
    step_size_schedule: Annotated[
        Literal["constant", "linear"] | None, _option("{constant,linear}")
    ] = None
    """Step size over training: constant, or falling linearly to 0 at the last step."""
    adam_betas: Annotated[tuple[float, float] | None, _option("X X")] = None
    """Decay rates of Adam's two moments."""
    rmsprop_decay: Number = None
    """Decay rate of RMSprop's moments."""
    optimizer_epsilon: Number = None
    """Epsilon in the denominator of Adam, or inside the root of RMSprop."""
    quantiles: Count = None
    """IQN: quantile samples per state for the online network."""
    target_quantiles: Count = None
    """IQN: quantile samples per state for the target network."""
    acting_quantiles: Count = None
    """IQN: quantile samples per state for acting."""
    kappa: Number = None
    """IQN: threshold of the Huber loss: smaller errors are squared, larger ones count linearly."""

    eval_interval: Count = None
    """Steps between evaluations."""
    eval_episodes: Count = None
    """Episodes per evaluation of one agent."""
    eval_timesteps: Count = None
    """Timesteps per evaluation of one agent, instead of episodes."""
    eval_envs: Count = None
    """Environments in which one agent is evaluated at the same time."""
    eval_episode_limit: Count = None
    """Most steps of an evaluation episode; left out: the environment's own limit."""
    eval_epsilon: Number = None
    """Probability of a random action in evaluation."""

    tf32: Switch = None
    """CUDA: TensorFloat-32 matrix products; faster, with 10-bit mantissas."""

    def given(self) -> dict[str, Any]:
        """The options that were not left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


class Settings(TypedDict, total=False):
    """The same options as arguments from Python, for editors and type checkers.

    What an agent has of its own is one value or several.
    """

    steps: int
    checkpoint_interval: int

    step_size: float | Sequence[float]
    discount: float | Sequence[float]
    epsilon_start: float | Sequence[float]
    epsilon_end: float | Sequence[float]
    epsilon_steps: int | Sequence[int]
    beta: float | Sequence[float]

    hidden: Sequence[int]
    initialization: Literal["paper", "pytorch"]
    observation_scale: float
    reward_scale: float
    clip_rewards: bool

    atari_protocol: str

    batch_size: int
    replay_capacity: int
    learning_starts: int
    replay_device: Literal["cpu", "cuda", "disk"]

    update_interval: int
    gradient_steps: int
    target_update_interval: int
    delayed_actor: bool
    loss: Literal["half-squared", "huber"]
    reduction: Literal["mean", "sum"]
    optimizer: Literal["adam", "rmsprop"]
    step_size_schedule: Literal["constant", "linear"]
    adam_betas: tuple[float, float]
    rmsprop_decay: float
    optimizer_epsilon: float
    quantiles: int
    target_quantiles: int
    acting_quantiles: int
    kappa: float

    eval_interval: int
    eval_episodes: int
    eval_timesteps: int
    eval_envs: int
    eval_episode_limit: int
    eval_epsilon: float

    tf32: bool
