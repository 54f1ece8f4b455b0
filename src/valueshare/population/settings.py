"""What all agents of a population share. What may differ between them is in `agents.py`."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import islice
from numbers import Real
from typing import Any, Literal

from valueshare.errors import InvalidInput

REPLAY_DEVICES = ("cpu", "cuda", "disk")
MOST = 10**12  # of anything that is counted: far beyond any run, far below what overflows
WIDEST = 1_000_000  # units of a layer
MOST_LAYERS = 1_000
MOST_GRADIENT_STEPS = 10_000  # times the step it is the counter of a random stream
SMALLEST_KAPPA = 1e-30  # an error divided by it is still finite in float32
NOT_OF_RESULTS = ("replay_device",)  # settings that change where things are, and no number


@dataclass(frozen=True)
class TrainingSettings:
    """Everything about training that is one number for a whole population.

    A *step* is one step of one agent's environment. Agents go in lockstep, so `total_steps` is what
    each of them takes.
    """

    # Length
    total_steps: int = 100_000
    checkpoint_interval: int = 10_000  # between checkpoints; divides eval_interval

    # Network and its input
    hidden: tuple[int, ...] = (128, 128)
    initialization: Literal["paper", "pytorch"] = "paper"  # of the weights (`nn.init`)
    observation_scale: float = 1.0  # observations are multiplied by it
    reward_scale: float = 1.0  # training rewards are multiplied by it; scores never are
    clip_rewards: bool = False  # training rewards become their sign, after the scale

    # Environments
    atari_protocol: str | None = None  # the name of one, for Atari games; None: no Atari

    # Replay
    batch_size: int = 64
    replay_capacity: int = 100_000  # transitions per agent
    learning_starts: int = 1_000  # steps before the first update
    replay_device: str | None = None  # cuda, cpu or disk; None: where training is

    # Updates
    update_interval: int = 4  # steps
    gradient_steps: int = 1  # updates made whenever one is due
    target_update_interval: int = 500  # steps between hard copies into the target network
    # Agents act by the weights as they were before the last update began, until the next one begins
    delayed_actor: bool = False
    loss: Literal["half-squared", "huber"] = "half-squared"
    reduction: Literal["mean", "sum"] = "mean"  # over the minibatch
    optimizer: Literal["adam", "rmsprop"] = "adam"
    # Linear: from each agent's step size to 0 at the last step
    step_size_schedule: Literal["constant", "linear"] = "constant"
    adam_betas: tuple[float, float] = (0.9, 0.999)
    rmsprop_decay: float = 0.95
    optimizer_epsilon: float = 1e-8  # RMSprop: inside the square root
    quantiles: int = 64  # IQN: samples for the network in the loss ...
    target_quantiles: int = 64  # ... for the target ...
    acting_quantiles: int = 32  # ... and for acting
    kappa: float = 1.0  # IQN: errors below it are squared in the loss, larger ones count linearly

    # Evaluation
    eval_interval: int = 10_000  # steps
    eval_episodes: int = 10  # per agent; 0: by timesteps
    eval_timesteps: int = 0  # per agent; 0: by episodes
    eval_envs: int = 10  # environments per agent that evaluate side by side
    eval_episode_limit: int | None = None  # steps; None: the environment's own limit
    eval_epsilon: float = 0.0

    # Arithmetic
    tf32: bool = False  # CUDA: matrix products with 10-bit mantissas; faster, not the same numbers

    def __post_init__(self) -> None:
        for name in ("hidden", "adam_betas"):  # lists come from JSON and the command line
            object.__setattr__(self, name, _several(name, getattr(self, name)))
        for name in (*_AT_LEAST_ONE, *_AT_LEAST_ZERO):
            least = 1 if name in _AT_LEAST_ONE else 0
            object.__setattr__(self, name, counted(name, getattr(self, name), least))
        for name in (*_POSITIVE, "rmsprop_decay", "eval_epsilon"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        for name in _SWITCHES:
            object.__setattr__(self, name, _switch(name, getattr(self, name)))
        object.__setattr__(self, "hidden", tuple(whole("hidden", size) for size in self.hidden))
        betas = tuple(number("adam_betas", beta) for beta in self.adam_betas)
        object.__setattr__(self, "adam_betas", betas)
        if self.eval_episode_limit is not None:
            limit = whole("eval_episode_limit", self.eval_episode_limit)
            object.__setattr__(self, "eval_episode_limit", limit)
            if limit < 1:
                raise InvalidInput(f"eval_episode_limit = {limit}: write a number >= 1")
        for name in _POSITIVE:
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidInput(f"{name} = {getattr(self, name)}: write a finite number > 0")
        if self.gradient_steps > MOST_GRADIENT_STEPS:
            raise InvalidInput(
                f"gradient_steps = {self.gradient_steps}: write a number <= {MOST_GRADIENT_STEPS:,}"
            )
        if self.kappa < SMALLEST_KAPPA:
            raise InvalidInput(f"kappa = {self.kappa}: write a number >= {SMALLEST_KAPPA:g}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InvalidInput(
                    f"{name} = {getattr(self, name)!r}: write one of {', '.join(allowed)}"
                )
        if self.replay_device not in (None, *REPLAY_DEVICES):
            raise InvalidInput(
                f"replay_device = {self.replay_device!r}: write one of {', '.join(REPLAY_DEVICES)}"
            )
        if not all(1 <= size <= WIDEST for size in self.hidden):
            raise InvalidInput(f"hidden = {self.hidden}: layer sizes are from 1 to {WIDEST:,}")
        if not 0 <= self.eval_epsilon <= 1:
            raise InvalidInput(f"eval_epsilon = {self.eval_epsilon}: a probability lies in [0, 1]")
        if len(self.adam_betas) != 2:
            raise InvalidInput(f"adam_betas = {self.adam_betas}: write two numbers")
        if not all(0 <= beta < 1 for beta in (*self.adam_betas, self.rmsprop_decay)):
            raise InvalidInput("adam_betas and rmsprop_decay lie in [0, 1)")
        if self.replay_capacity < self.batch_size:
            raise InvalidInput(
                f"replay_capacity = {self.replay_capacity} is smaller than batch_size = "
                f"{self.batch_size}: make the replay at least one batch large"
            )
        if (self.eval_episodes > 0) == (self.eval_timesteps > 0):
            raise InvalidInput(
                "evaluate by episodes or by timesteps: set one of eval_episodes and eval_timesteps "
                "above 0, the other to 0"
            )
        if self.eval_interval % self.checkpoint_interval:
            raise InvalidInput(
                f"eval_interval = {self.eval_interval} is no multiple of checkpoint_interval = "
                f"{self.checkpoint_interval}: evaluations happen at the end of phases"
            )

    @property
    def phases(self) -> int:
        """How many phases; the last one may be shorter."""
        return -(-self.total_steps // self.checkpoint_interval)

    @property
    def never_learns(self) -> bool:
        """Whether a run ends before its first update is due."""
        return self.first_update >= self.total_steps

    @property
    def first_update(self) -> int:
        """The step at which the first update is due."""
        return -(-self.learning_starts // self.update_interval) * self.update_interval

    @property
    def evaluations(self) -> int:
        """How many evaluations of a run: before its first step, and after some of its phases."""
        return 1 - (-self.total_steps // self.eval_interval)

    def phase_end(self, phase: int) -> int:
        """The step at which a phase ends."""
        return min((phase + 1) * self.checkpoint_interval, self.total_steps)

    def evaluates_after(self, phase: int) -> bool:
        """Whether the end of this phase is an evaluation point; the end of training always is."""
        end = self.phase_end(phase)
        return end % self.eval_interval == 0 or end == self.total_steps

    @property
    def replay_transitions(self) -> int:
        """Transitions a ring has room for: never more than a run can write."""
        return min(self.replay_capacity, self.total_steps)

    def to_json(self) -> dict[str, Any]:
        """The settings as plain JSON values; `from_json` is the way back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrainingSettings":
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InvalidInput(
                f"unknown settings {', '.join(unknown)}: written by a newer version?"
            )
        protocol = values.get("atari_protocol")
        if not isinstance(protocol, str | None):
            raise InvalidInput(f"atari_protocol = {protocol!r}: write a name")
        return cls(**values)


def whole(name: str, value: Any) -> int:
    """A count as an integer: 1e3 from JSON is 1000, and 2.5 is none."""
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        count = None
    if count is None or count != value:
        raise InvalidInput(f"{name} = {value!r}: write a whole number")
    return count


def number(name: str, value: Any) -> float:
    """A number as a float, NumPy's too; a text is none."""
    if not isinstance(value, Real):
        raise InvalidInput(f"{name} = {value!r}: write a number")
    return float(value)


def counted(name: str, value: Any, least: int = 1) -> int:
    """A whole number from `least` to the most that is counted."""
    count = whole(name, value)
    if count < least:
        raise InvalidInput(f"{name} = {count}: write a number >= {least}")
    if count > MOST:
        raise InvalidInput(f"{name} = {count}: write a number <= {MOST:,}")
    return count


def _several(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} = {values!r}: write a list of numbers, like [{values}]")
    several = tuple(islice(values, MOST_LAYERS + 1))  # from Python, it may have no end
    if len(several) > MOST_LAYERS:
        raise InvalidInput(f"{name} has more than {MOST_LAYERS:,} numbers: write fewer")
    return several


def _switch(name: str, value: Any) -> bool:
    if value not in (True, False):
        raise InvalidInput(f"{name} = {value!r}: write True or False")
    return bool(value)


_AT_LEAST_ONE = (
    *(
        "total_steps",
        "checkpoint_interval",
        "batch_size",
        "update_interval",
        "target_update_interval",
        "eval_interval",
    ),
    *("replay_capacity", "learning_starts"),  # the first update needs a transition
    *("gradient_steps", "eval_envs", "quantiles", "target_quantiles", "acting_quantiles"),
)
_AT_LEAST_ZERO = ("eval_episodes", "eval_timesteps")
_SWITCHES = ("clip_rewards", "delayed_actor", "tf32")
_POSITIVE = ("observation_scale", "reward_scale", "optimizer_epsilon", "kappa")
_CHOICES = {
    "initialization": ("paper", "pytorch"),
    "loss": ("half-squared", "huber"),
    "reduction": ("mean", "sum"),
    "optimizer": ("adam", "rmsprop"),
    "step_size_schedule": ("constant", "linear"),
}
