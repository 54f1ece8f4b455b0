"""The tabular studies as data, with the paper's settings."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from valueshare._version import __version__
from valueshare.errors import InvalidInput
from valueshare.experiments.scales import by_scale
from valueshare.option_groups import in_group
from valueshare.runs.launcher_options import parse_shard
from valueshare.schema import ENV_NAME
from valueshare.setting import MAX_COUNT
from valueshare.tabular.rules import check_learners, check_rows

Measure = Literal["episodes", "reward"]
GridworldScale = Literal["paper", "smoke"]
ActionsScale = Literal["full", "smoke"]

GRIDWORLD = "gridworld"
KIND = "tabular"  # of a results folder
MAX_COPIES = 1_000  # of each action
MAX_STUDIES = 1_000  # of a results folder


def step_size_grid(spacing: float, lowest: float = -6) -> tuple[float, ...]:
    """exp(x) for x = lowest, lowest + spacing, ..., 0: a logarithmic search over (0, 1]."""
    count = round(-lowest / spacing)
    return tuple(math.exp(lowest - lowest * i / count) for i in range(count + 1))


@dataclass(frozen=True)
class TabularStudy:
    """Every combination of k, step size and seed of one tabular learner on one finite MDP."""

    env: Annotated[str, in_group("main", parse=False)] = GRIDWORLD
    """The name of the environment; `--env` of the command takes several, each of which is a study."""
    algorithm: Annotated[str, in_group("main", parse=False)] = "q-learning"
    """The learner; `--algorithm` of the command takes several too."""
    k: Annotated[tuple[float, ...], in_group("main", parse=False)] = (0.0, 0.4, 1.6, 6.4)
    """How strongly actions share value, as numbers; `--k` of the command also takes n, the number of actions."""
    step_size: Annotated[tuple[float, ...], in_group("optimiser")] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    """Step size (learning rate) in (0, 1]; each k is scored at its best one."""
    seeds: Annotated[int, in_group("main")] = 32
    """Number of seeds, from 0 on, which is the number of runs per k and step size."""
    steps: Annotated[int, in_group("main")] = 5_000
    """Environment steps per agent, each of which is a run."""
    regimes: Annotated[tuple[int, ...], in_group("evaluation")] = ()
    """Steps at which the runs are compared; default: after 1/10, 1/5, 1/2 and all of the steps."""
    epsilon: Annotated[float, in_group("exploration")] = 0.1
    """Probability of a random action."""
    step_size_power: Annotated[float, in_group("optimiser")] = 0.0
    """p in step size / visits(s, a)^p; 0 keeps the step size constant."""
    discount: Annotated[float, in_group("algorithm")] = 0.95
    """Discount factor."""
    step_reward: Annotated[float, in_group("environment")] = 0.0
    """Reward of a step that does not reach the goal, in the gridworld."""
    action_copies: Annotated[int, in_group("environment")] = 1
    """Copies of each action, which all have the same effect; the learner does not know which are copies."""
    measure: Annotated[Literal["auto", "episodes", "reward"], in_group("evaluation")] = "auto"
    """Score of a run: completed episodes or total reward; auto: episodes in the gridworld, otherwise reward."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "algorithm", self.algorithm.lower())
        if not re.match(ENV_NAME, self.env):
            raise InvalidInput(f"there is no environment {self.env[:200]!r}: names have letters, digits and . : / _ -")
        check_learners(self.algorithm, self.k, self.step_size, self.steps, self.epsilon, self.step_size_power)
        if self.seeds < 2:
            raise InvalidInput(f"`seeds = {self.seeds}`: an interval needs at least 2 runs")
        if self.seeds > MAX_COUNT:
            raise InvalidInput(f"`seeds = {self.seeds}`: write at most {MAX_COUNT:,}")
        if any(not 0 < regime <= self.steps for regime in self.regimes):
            raise InvalidInput(f"`regimes` holds a number outside 1 to {self.steps}, the steps")
        if not 0.0 <= self.discount <= 1.0:
            raise InvalidInput(f"`discount = {self.discount:g}`: it lies in [0, 1]")
        if not math.isfinite(self.step_reward):
            raise InvalidInput(f"`step_reward = {self.step_reward}`: write a finite number")
        if not 1 <= self.action_copies <= MAX_COPIES:
            raise InvalidInput(f"`action_copies = {self.action_copies}`: write 1 to {MAX_COPIES:,}")
        if self.step_reward and self.env != GRIDWORLD:
            raise InvalidInput(f"`step_reward` is for the gridworld: {self.env} has its own rewards")

    @property
    def record_steps(self) -> tuple[int, ...]:
        default = (self.steps // 10, self.steps // 5, self.steps // 2, self.steps)
        return tuple(sorted({step for step in self.regimes or default if step > 0}))

    @property
    def measured(self) -> Measure:
        if self.measure != "auto":
            return self.measure
        return "episodes" if self.env == GRIDWORLD else "reward"

    @property
    def gridworld_reward(self) -> float | None:
        """The step reward, in which the studies of a figure differ; None outside the gridworld."""
        return self.step_reward if self.env == GRIDWORLD else None

    @property
    def timesteps(self) -> int:
        return len(self.k) * len(self.step_size) * self.seeds * self.steps

    @property
    def rows(self) -> int:
        """Rows of its records: one per run and regime."""
        return self.timesteps // self.steps * len(self.record_steps)

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, for `config.json`."""
        return asdict(self) | {"regimes": self.record_steps, "measure": self.measured}


def check_memory(studies: Sequence[TabularStudy]) -> None:
    """Refuse studies whose results do not fit into memory, before anything of them is made."""
    check_rows(sum(study.rows for study in studies))


def results_config(studies: Sequence[TabularStudy], shard: str = "") -> dict[str, Any]:
    """The `config.json` of a results folder: everything that determines the results."""
    values = {"valueshare": __version__, "kind": KIND, "studies": [study.settings() for study in studies]}
    return {**values, "shard": shard} if shard else values


class TabularConfig(Struct, frozen=True):
    """`config.json` of a results folder, as it is read: types and ranges are checked."""

    kind: Literal["tabular"]
    studies: Annotated[tuple[TabularStudy, ...], Meta(max_length=MAX_STUDIES)]
    shard: str | None = None

    def __post_init__(self) -> None:
        if self.shard is not None:
            parse_shard(self.shard)


def several_action_sets(studies: Sequence[TabularStudy]) -> bool:
    """Whether the studies differ in their number of actions."""
    return len({study.action_copies for study in studies}) > 1


def title(studies: Sequence[TabularStudy]) -> str:
    """The title of a page of these studies."""
    if several_action_sets(studies):
        return "Gridworld: value-sharing with more and more actions"
    if len(studies) > 1:
        return "Gridworld: value-sharing in tabular Q-learning"
    return f"{studies[0].env}: value-sharing in tabular {studies[0].algorithm}"


def gridworld_studies(scale: GridworldScale = "paper") -> tuple[TabularStudy, ...]:
    """The gridworld figure, twice: with -1 a step, and with 0 as the paper's text has it.

    The paper's scale is 9 k x 61 step sizes x 128 seeds x 5,000 timesteps for each.
    """
    grids: dict[GridworldScale, dict[str, Any]] = {
        "paper": {"k": (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8), "step_size": step_size_grid(0.1), "seeds": 128},
        "smoke": {"k": (0.0, 0.4, 1.6, 6.4), "step_size": step_size_grid(1.0), "seeds": 8},
    }
    study = TabularStudy(steps=5_000, regimes=(500, 1_000, 2_500, 5_000), discount=0.95, **by_scale(grids, scale))
    return tuple(replace(study, step_reward=step_reward) for step_reward in (-1.0, 0.0))


def gridworld_actions_studies(scale: ActionsScale = "full") -> tuple[TabularStudy, ...]:
    """The gridworld with its four actions copied until there are n = 4, 8, ..., 1,024; k = 0, 1 and n.

    The settings are those of `gridworld_studies`. An update with k moves the action-value by (1 + (k² + 2 k) / n) times
    the step size, n + 3 times it with k = n: so step sizes go down to exp(-12), which is 0.006 / 1,024.
    """
    grids: dict[ActionsScale, tuple[Sequence[int], dict[str, Any]]] = {
        "full": ([2**i for i in range(9)], {"step_size": step_size_grid(0.4, -12), "seeds": 64}),
        "smoke": ([1, 8], {"step_size": step_size_grid(2.0, -6), "seeds": 4}),
    }
    copies, grid = by_scale(grids, scale)
    return tuple(
        replace(study, k=(0.0, 1.0, 4.0 * count), action_copies=count, **grid)
        for study in gridworld_studies()
        for count in copies
    )
