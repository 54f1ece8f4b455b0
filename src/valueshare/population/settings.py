"""Every setting of a training run, declared once.

`TrainingSettings` are those that all agents of a population share, `AgentSettings` those of
each agent. Nothing heavy is imported here: the command line reads it at its start.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar, cast, get_args

from valueshare.errors import InvalidInput
from valueshare.integers import ceil_div, round_up
from valueshare.setting import Setting, check_settings, setting, settings_of

MAX_LAYER_WIDTH = 1_000_000  # units of a layer
MAX_GRADIENT_STEPS = 10_000  # times the step it is the counter of a random stream
MIN_KAPPA = 1e-30  # an error divided by it is still finite in float32
SETTINGS_WITHOUT_EFFECT_ON_RESULTS = ("replay_device",)  # where data is stored

ReplayDevice = Literal["cpu", "cuda", "disk"]
Function = TypeVar("Function", bound=Callable[..., Any])

# Where the help lists a setting.
_main = partial(setting, group="main")
_environment = partial(setting, group="environment")
_algorithm = partial(setting, group="algorithm")
_exploration = partial(setting, group="exploration")
_replay = partial(setting, group="replay")
_optimiser = partial(setting, group="optimiser")
_evaluation = partial(setting, group="evaluation")
_execution = partial(setting, group="execution")


@dataclass(frozen=True)
class AgentSettings:
    """Settings of one agent, besides its environment, algorithm, k and seed."""

    step_size: float = _optimiser(5e-4, "Step size (learning rate).", above=0)
    discount: float = _algorithm(0.99, "Discount factor.", minimum=0, maximum=1)
    epsilon_start: float = _exploration(
        1.0, "Epsilon, the probability of a random action, at the first step.", minimum=0, maximum=1
    )
    epsilon_end: float = _exploration(0.05, "Epsilon after --epsilon-steps steps, to the end.", minimum=0, maximum=1)
    epsilon_steps: int = _exploration(10_000, "Environment steps over which epsilon is annealed linearly.", minimum=0)
    beta: float = _algorithm(1e-3, "RDQ: weight of the penalty.", minimum=0)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class TrainingSettings:
    """Settings that all agents of a population share.

    A *step* is one step of one agent's environment. Agents go in lockstep, so `steps` is the number of steps of each of
    them. The defaults are the generic preset, of environments without one of their own (`presets.py`).
    """

    steps: int = _main(100_000, "Environment steps per agent.", minimum=1)
    checkpoint_interval: int = _execution(
        10_000,
        "Environment steps between checkpoints; must divide --eval-interval (default: the same as --eval-interval).",
        minimum=1,
    )

    hidden: tuple[int, ...] = _algorithm((128, 128), "Widths of the hidden layers.", minimum=1, maximum=MAX_LAYER_WIDTH)
    initialization: Literal["paper", "pytorch"] = _algorithm(
        "pytorch", "Initial weights: the paper's (LeCun-normal; IQN: PyTorch's), or PyTorch's defaults."
    )
    observation_scale: float = _environment(1.0, "Factor by which observations are multiplied.", above=0)
    reward_scale: float = _environment(
        1.0, "Factor by which training rewards are multiplied; scores are never scaled.", above=0
    )
    clip_rewards: bool = _environment(False, "Replace the scaled training rewards by their sign.")
    atari_protocol: str | None = _environment(
        None, "Protocol of Atari games: machado-2018, machado-2018-minimal or nature-2015."
    )

    batch_size: int = _replay(64, "Transitions per gradient update of one agent.", minimum=1)
    replay_capacity: int = _replay(100_000, "Replay capacity per agent, in transitions.", minimum=1)
    learning_starts: int = _replay(1_000, "Environment steps before the first update.", minimum=1)
    replay_device: ReplayDevice | None = _replay(  # noqa: RUF009 (a field, like the others)
        None, "Where the replay is stored (default: the training device)."
    )

    update_interval: int = _optimiser(4, "Environment steps between updates.", minimum=1)
    gradient_steps: int = _optimiser(
        1, "Gradient updates every --update-interval steps.", minimum=1, maximum=MAX_GRADIENT_STEPS
    )
    target_update_interval: int = _algorithm(
        500, "Environment steps between copies of the online weights into the target network.", minimum=1
    )
    delayed_actor: bool = _execution(
        False, "Act with the weights from before the last update, so that acting never waits for learning."
    )
    loss: Literal["half-squared", "huber"] = _optimiser(
        "huber", "Loss of the temporal-difference error: half squared error, or the Huber loss (linear above 1)."
    )
    reduction: Literal["mean", "sum"] = _optimiser("mean", "Mean or sum of the losses of a batch.")
    optimizer: Literal["adam", "rmsprop"] = _optimiser(
        "adam", "Optimiser; RMSprop is centred, with its epsilon inside the square root."
    )
    step_size_schedule: Literal["constant", "linear"] = _optimiser(
        "constant", "Step size over training: constant, or annealed linearly to 0 at the last step."
    )
    step_size_steps: int | None = _optimiser(
        None, "Environment steps over which a linear step size is annealed to 0 (default: all).", minimum=1
    )
    adam_betas: tuple[float, float] = _optimiser((0.9, 0.999), "Decay rates of Adam's two moments.", minimum=0, below=1)
    rmsprop_decay: float = _optimiser(0.95, "Decay rate of RMSprop's moments.", minimum=0, below=1)
    optimizer_epsilon: float = _optimiser(
        1e-8, "Epsilon in the denominator of Adam, or inside the square root of RMSprop.", above=0
    )
    quantiles: int = _algorithm(64, "IQN: quantile samples per state, online network.", minimum=1)
    target_quantiles: int = _algorithm(64, "IQN: quantile samples per state, target network.", minimum=1)
    acting_quantiles: int = _algorithm(32, "IQN: quantile samples per state when acting.", minimum=1)
    kappa: float = _algorithm(1.0, "IQN: Huber threshold (the loss is quadratic up to it).", minimum=MIN_KAPPA)

    eval_interval: int = _evaluation(10_000, "Environment steps between evaluations.", minimum=1)
    eval_episodes: int = _evaluation(10, "Episodes per evaluation of one agent.", minimum=0)
    eval_timesteps: int = _evaluation(
        0, "Environment steps per evaluation of one agent, instead of --eval-episodes.", minimum=0
    )
    eval_envs: int = _evaluation(10, "Parallel evaluation environments per agent.", minimum=1)
    eval_episode_limit: int | None = _evaluation(
        None, "Maximum steps per evaluation episode; default: the environment's own limit.", minimum=1
    )
    eval_epsilon: float = _evaluation(
        0.0, "Epsilon, the probability of a random action, in evaluation.", minimum=0, maximum=1
    )

    tf32: bool = _execution(False, "CUDA: TensorFloat-32 matrix products: faster, but less precise (10-bit mantissas).")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.replay_capacity < self.batch_size:
            raise InvalidInput(
                f"`replay_capacity = {self.replay_capacity}` is smaller than `batch_size = "
                f"{self.batch_size}`: make the replay at least one batch large"
            )
        if self.step_size_steps is not None and self.step_size_schedule == "constant":
            raise InvalidInput(
                f"`step_size_steps = {self.step_size_steps}` is the length of a linear step size: add "
                "`step_size_schedule = 'linear'`, or leave it out"
            )
        if (self.eval_episodes > 0) == (self.eval_timesteps > 0):
            raise InvalidInput(
                "evaluate by episodes or by timesteps: set one of `eval_episodes` and `eval_timesteps` "
                "above 0, the other to 0"
            )
        if self.eval_interval % self.checkpoint_interval:
            raise InvalidInput(
                f"`eval_interval = {self.eval_interval}` is not a multiple of `checkpoint_interval = "
                f"{self.checkpoint_interval}`, and evaluations happen at checkpoints: write `checkpoint_interval = "
                f"{self.eval_interval}`, or a divisor of it"
            )

    @property
    def phases(self) -> int:
        """The number of phases; the last one may be shorter."""
        return ceil_div(self.steps, self.checkpoint_interval)

    @property
    def never_learns(self) -> bool:
        """Whether a run ends before its first update is due."""
        return self.first_update >= self.steps

    @property
    def first_update(self) -> int:
        """The step at which the first update is due."""
        return round_up(self.learning_starts, self.update_interval)

    def learns_at(self, t: int) -> bool:
        """Whether step t has updates, `gradient_steps` of them."""
        return t >= self.learning_starts and t % self.update_interval == 0

    def updates_target_at(self, t: int) -> bool:
        """Whether the target network is copied at step t; before the updates of that step."""
        return t >= self.learning_starts and t % self.target_update_interval == 0

    @property
    def evaluations(self) -> int:
        """The number of evaluations of a run: before its first step, and after some of its phases."""
        return 1 + ceil_div(self.steps, self.eval_interval)

    def phase_end(self, phase: int) -> int:
        """The step at which a phase ends."""
        return min((phase + 1) * self.checkpoint_interval, self.steps)

    def evaluates_after(self, phase: int) -> bool:
        """Whether the end of this phase is an evaluation point; the end of training always is."""
        end = self.phase_end(phase)
        return end % self.eval_interval == 0 or end == self.steps

    @property
    def replay_transitions(self) -> int:
        """Transitions that the replay of an agent has room for: no more than a run can write."""
        return min(self.replay_capacity, self.steps)

    def to_json(self) -> dict[str, Any]:
        """The settings as plain JSON values; the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrainingSettings":
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise InvalidInput(f"unknown settings {', '.join(unknown)}: written by a newer version?")
        return cls(**values)


GENERIC: dict[str, Any] = asdict(TrainingSettings()) | asdict(AgentSettings())  # the generic preset
OPTIMIZER_SETTINGS = {"adam_betas": "adam", "rmsprop_decay": "rmsprop"}  # and the one optimiser that reads each
PER_AGENT = tuple(settings_of(AgentSettings))  # one value or several: a run has every combination
SETTINGS: dict[str, Setting] = {**settings_of(TrainingSettings), **settings_of(AgentSettings)}


class _Absent:
    """In place of a value that is not stored, or not wanted."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


def comparable(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings that change numbers; one that an older version did not store has its default."""
    complete = {**json.loads(json.dumps(TrainingSettings().to_json())), **stored}
    return {name: value for name, value in complete.items() if name not in SETTINGS_WITHOUT_EFFECT_ON_RESULTS}


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The stored and the wanted value of each setting in which they differ, by name."""
    pairs = {name: (stored.get(name, ABSENT), wanted.get(name, ABSENT)) for name in {**wanted, **stored}}
    return {name: (before, now) for name, (before, now) in pairs.items() if before != now}


class _Preset:
    """Shown as the default in signatures: the value comes from the preset."""

    def __repr__(self) -> str:
        return "preset"


PRESET = _Preset()


def _argument_type(declared: Setting) -> Any:
    kind, listed = declared.kind, cast(Any, Sequence)[declared.item]
    if Ellipsis in get_args(kind):
        kind = listed
    if declared.name in PER_AGENT:
        kind = kind | listed
    return kind | None if declared.optional else kind


def settings_in_signature(
    annotation: Callable[[Setting], Any] = _argument_type, default: Any = PRESET
) -> Callable[[Function], Function]:
    """A decorator: the function's signature names every setting in place of `**settings`."""
    by_name = partial(Parameter, kind=Parameter.KEYWORD_ONLY, default=default)

    def decorate(function: Function) -> Function:
        written = signature(function)
        others = [parameter for parameter in written.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
        names = sorted(SETTINGS, key=lambda name: name not in PER_AGENT)  # those that are swept come first
        named = [by_name(name, annotation=annotation(SETTINGS[name])) for name in names]
        function.__signature__ = written.replace(parameters=[*others, *named])  # type: ignore[attr-defined]
        return function

    return decorate
