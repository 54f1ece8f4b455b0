"""The contract between launching a plan and the launchers that run its populations."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import polars as pl
from rich.console import Console

from valueshare.envs.backends import BACKENDS
from valueshare.envs.base import EnvironmentSpec
from valueshare.envs.gymnasium import check_environment
from valueshare.errors import InvalidInput
from valueshare.population import memory
from valueshare.population.evaluate import check_evaluation
from valueshare.population.network_check import check_network_shapes
from valueshare.population.networks import NetworkFactory
from valueshare.population.settings import TrainingSettings
from valueshare.runs.callbacks import Callback, CallbackFunction
from valueshare.runs.launcher_options import LOCAL, LauncherOptions
from valueshare.runs.plan import Plan
from valueshare.runs.storage.locations import Location, Url
from valueshare.setting import as_int
from valueshare.text import either

LogTarget = Literal["tensorboard", "wandb"]


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Options of running a plan; none of them changes results."""

    network: NetworkFactory | None = None  # the one that the plan names
    threads: int | None = None  # for the environments; None: one per core
    log: str | Sequence[str] = ()  # where curves are also written: names of `LogTarget`
    progress: bool = True  # whether to show a display
    should_stop: Callable[[], bool] | None = None  # called at every step
    groups: int | None = None  # how many groups of agents step independently; None: chosen automatically
    launcher: LauncherOptions = LOCAL
    # Called after each evaluation, or their names; None: those that a resumed run has stored.
    callbacks: Sequence[str | CallbackFunction | Callback] | None = None
    url: Url | None = None  # the URL of the run, if its folder is a copy

    def __post_init__(self) -> None:
        if not isinstance(self.launcher, LauncherOptions):
            raise InvalidInput(
                f"launcher is given as {type(self.launcher).__name__}: write valueshare.LauncherOptions(...), like "
                "valueshare.LauncherOptions(workers=2)"
            )
        for option, count in (("threads", self.threads), ("groups", self.groups)):
            if count is not None and as_int(option, count) < 1:
                raise InvalidInput(f"`{option} = {count}`: write at least 1, or leave it out")
        if self.should_stop is not None and not callable(self.should_stop):
            raise InvalidInput(f"`should_stop = {self.should_stop!r}`: give a function without arguments")
        names, targets = [self.log] if isinstance(self.log, str) else list(self.log), get_args(LogTarget)
        for name in names:
            if name not in targets:
                raise InvalidInput(f"`log = {name!r}`: write {either(targets)}")
        object.__setattr__(self, "log", tuple(target for target in targets if target in names))

    def poll_stop(self) -> bool:
        """Whether the caller wants to stop; polled before anything is written, as from then on signals are requests."""
        return self.should_stop is not None and bool(self.should_stop())

    @cached_property
    def console(self) -> Console:
        """The console on which progress is printed."""
        return Console(quiet=not self.progress)

    @property
    def resolved_callbacks(self) -> tuple[Callback, ...]:
        """The callbacks, once they are imported."""
        return tuple(callback for callback in self.callbacks or () if isinstance(callback, Callback))


class Outcome(NamedTuple):
    """The end of a population's training."""

    finished: bool
    reason: str | None = None  # why it failed; None where it finished or was stopped


class ProgressHooks(NamedTuple):
    """Called with the progress of populations, by name."""

    on_step: Callable[[str, int], None] = lambda name, step: None
    on_phase: Callable[[str, int, pl.DataFrame], None] = lambda name, step, records: None
    on_end: Callable[[str, Outcome], None] = lambda name, outcome: None
    on_note: Callable[[str], None] = lambda line: None
    is_due: Callable[[], bool] = lambda: False  # whether `on_step` should be called
    should_stop: Callable[[], bool] = lambda: False


class Checked(NamedTuple):
    """What the check of a plan found, if it can run."""

    memory: str  # one line on the memory needed
    notes: Sequence[str] = ()  # on its environments


class Launcher(ABC):
    """Runs populations; methods that return None here may be left out."""

    @abstractmethod
    def check(self, plan: Plan, execution: ExecutionOptions) -> Checked:
        """Refuse what cannot run."""

    @abstractmethod
    def split(self, plan: Plan) -> Plan:
        """The plan, its populations split so that each fits where it will run."""

    def check_location(self, location: Location) -> str | None:
        """Refuse a location that some worker cannot write to; return a warning, if any."""
        return None

    def estimate(self, plan: Plan, folder: Path | None, *, measure: bool) -> str | None:
        """The remaining time as one line, if it is known or `measure` is set."""
        return None

    @abstractmethod
    def run(self, plan: Plan, folder: Path, execution: ExecutionOptions, hooks: ProgressHooks) -> None:
        """Run every population; `on_end` is called once for each that began."""

    def time_taken(self, plan: Plan, folder: Path, seconds: float) -> str | None:
        """The time taken, over all workers, as one line."""
        return None


def check_needs(plan: Plan, execution: ExecutionOptions) -> dict[str, memory.MemoryEstimate]:
    """The memory each population needs, by name, once its settings are checked.

    Memory per agent is equal for populations that differ only in name and size. Only the shapes of a custom network
    are checked here; `check_network` runs it once memory is checked.
    """
    kinds: dict[tuple[TrainingSettings, EnvironmentSpec, str], memory.MemoryEstimate] = {}
    needs = {}
    for name, spec in plan.populations.items():
        if execution.network is not None:
            check_network_shapes(spec, execution.network)
        kind = spec.settings, replace(spec.env_spec, name=""), spec.algorithm
        if kind not in kinds:
            check_evaluation(spec.settings, spec.env_spec)
            kinds[kind] = memory.estimate(spec, execution.network)
        needs[name] = kinds[kind]._replace(agents=spec.agents.height)
    return needs


def try_environments(plan: Plan) -> list[str]:
    """Refuse third-party environments that fail at once; return notes on those whose results cannot be repeated."""
    third_party = [env for env, backend in plan.backends.items() if BACKENDS[backend].is_third_party]
    return [note for note in map(check_environment, third_party) if note is not None]
