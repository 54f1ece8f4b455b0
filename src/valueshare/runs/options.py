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
    """Steps of each agent."""
    phase_steps: Count = None
    """Steps between checkpoints; left out: eval-every."""

    step_size: Numbers = None
    """Step sizes of the optimiser."""
    discount: Numbers = None
    """Discounts."""
    epsilon_start: Numbers = None
    """Probability of a random action at first ..."""
    epsilon_end: Numbers = None
    """... and in the end ..."""
    epsilon_steps: Counts = None
    """... and how many steps it takes from one to the other, linearly."""
    beta: Numbers = None
    """Weight of RDQ's penalty."""

    hidden: Counts = None
    """Widths of the hidden layers."""
    initialization: Annotated[Literal["paper", "pytorch"] | None, _option("{paper,pytorch}")] = None
    """Initial weights: as in the paper (LeCun-normal; IQN: PyTorch's), or PyTorch's defaults."""
    observation_scale: Number = None
    """Observations are multiplied by it."""
    reward_scale: Number = None
    """Training rewards are multiplied by it; scores never are."""
    clip_rewards: Switch = None
    """Training rewards become their sign."""

    atari_protocol: Name = None
    """How Atari games are played, by name."""

    minibatch: Count = None
    """Transitions of an update."""
    replay_capacity: Count = None
    """Transitions an agent remembers."""
    replay_start: Count = None
    """Steps before the first update."""
    replay_device: Annotated[Literal["cpu", "cuda", "disk"] | None, _option("{cpu,cuda,disk}")] = (
        None
    )
    """Where transitions are kept; left out: where training is."""

    update_every: Count = None
    """Steps between updates."""
    gradient_steps: Count = None
    """Updates made whenever one is due."""
    target_every: Count = None
    """Steps between copies into the target network."""
    acting_lag: Switch = None
    """Act by the weights as they were before the last update began: acting waits for none."""
    loss: Annotated[Literal["half-squared", "huber"] | None, _option("{half-squared,huber}")] = None
    """Of a temporal-difference error."""
    reduction: Annotated[Literal["mean", "sum"] | None, _option("{mean,sum}")] = None
    """Over the minibatch."""
    optimizer: Annotated[Literal["adam", "rmsprop"] | None, _option("{adam,rmsprop}")] = None
    """RMSprop has its epsilon inside the root."""
    adam_betas: Annotated[tuple[float, float] | None, _option("X X")] = None
    """Adam's decay rates."""
    rmsprop_decay: Number = None
    """RMSprop's decay rate."""
    optimizer_epsilon: Number = None
    """Of either optimiser."""
    quantiles: Count = None
    """IQN: samples for the network in the loss ..."""
    target_quantiles: Count = None
    """... for the target ..."""
    acting_quantiles: Count = None
    """... and for acting."""
    kappa: Number = None
    """IQN: errors below it are squared, larger ones count linearly; the loss is divided by it."""

    eval_every: Count = None
    """Steps between evaluations."""
    eval_episodes: Count = None
    """Episodes of an evaluation, an agent."""
    eval_timesteps: Count = None
    """Evaluate by so many timesteps an agent instead of by episodes."""
    eval_copies: Count = None
    """Environments an agent that evaluate side by side."""
    eval_episode_limit: Count = None
    """Steps of an evaluation episode; left out: the environment's own limit."""
    eval_epsilon: Number = None
    """Probability of a random action in evaluation."""

    tf32: Switch = None
    """CUDA: faster matrix products with 10-bit mantissas; other numbers than without."""

    def given(self) -> dict[str, Any]:
        """The options that were not left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


class Settings(TypedDict, total=False):
    """The same options as arguments from Python, for editors and type checkers.

    What an agent has of its own is one value or several.
    """

    steps: int
    phase_steps: int

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

    minibatch: int
    replay_capacity: int
    replay_start: int
    replay_device: Literal["cpu", "cuda", "disk"]

    update_every: int
    gradient_steps: int
    target_every: int
    acting_lag: bool
    loss: Literal["half-squared", "huber"]
    reduction: Literal["mean", "sum"]
    optimizer: Literal["adam", "rmsprop"]
    adam_betas: tuple[float, float]
    rmsprop_decay: float
    optimizer_epsilon: float
    quantiles: int
    target_quantiles: int
    acting_quantiles: int
    kappa: float

    eval_every: int
    eval_episodes: int
    eval_timesteps: int
    eval_copies: int
    eval_episode_limit: int
    eval_epsilon: float

    tf32: bool
