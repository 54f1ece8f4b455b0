"""Every setting of a training run as an option; what is left out is the preset's.

The names are those of `TrainingSettings` and `AgentSettings`, with `steps` for `total_steps`. What
an agent has of its own takes one value or several: the run is every combination of them.
Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tyro.conf import arg


def _option(metavar: str) -> Any:
    return arg(metavar=metavar, help_behavior_hint="")


Count = Annotated[int | None, _option("N")]
Counts = Annotated[tuple[int, ...] | None, _option("N ...")]
Number = Annotated[float | None, _option("X")]
Numbers = Annotated[tuple[float, ...] | None, _option("X ...")]
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
    observation_scale: Number = None
    """Observations are multiplied by it."""
    reward_scale: Number = None
    """Training rewards are multiplied by it; scores never are."""
    clip_rewards: Switch = None
    """Training rewards become their sign."""

    minibatch: Count = None
    """Transitions of an update."""
    replay_capacity: Count = None
    """Transitions an agent remembers."""
    replay_start: Count = None
    """Steps before the first update."""

    update_every: Count = None
    """Steps between updates."""
    target_every: Count = None
    """Steps between copies into the target network."""
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
