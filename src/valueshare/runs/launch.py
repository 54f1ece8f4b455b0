"""Running a plan into a run folder, population by population, by the engine that was chosen."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl
import torch
from rich.console import Console

from valueshare.envs import environment_spec
from valueshare.envs.base import EnvironmentSpec
from valueshare.envs.gymnasium import check_environment
from valueshare.errors import InvalidInput
from valueshare.population.evaluate import check_evaluation
from valueshare.population.settings import TrainingSettings, whole
from valueshare.population.state import NetworkFactory
from valueshare.population.train import checked_device
from valueshare.runs import memory, run_folder
from valueshare.runs.display import Display
from valueshare.runs.engines import EngineOptions
from valueshare.runs.events import Events
from valueshare.runs.networks import check_network
from valueshare.runs.plan import Part, Plan, parts
from valueshare.runs.run_folder import Run
from valueshare.runs.shards import cut
from valueshare.runs.storage.places import Place, Url
from valueshare.runs.workers.tasks import Listener, Task, run_part


class Execution(NamedTuple):
    """How a plan is run; nothing of it changes a number."""

    network: NetworkFactory | None = None  # the one that the plan names
    threads: int | None = None  # of the environments; None: one a core
    tensorboard: bool = False
    progress: bool = True  # whether the run shows itself
    should_stop: Callable[[], bool] | None = None  # asked at every step
    groups: int = 1  # of agents that take turns in acting
    engine: EngineOptions = EngineOptions()
    url: Url | None = None  # where the run is, if its folder is a copy of what is there


class Ending(NamedTuple):
    """How a population ended."""

    finished: bool
    reason: str | None = None  # why not, unless it was asked to end


Report = Callable[[str, Ending], None]  # called once for every population that has ended


class Engine(Protocol):
    """Who runs populations."""

    def check(self, plan: Plan, how: Execution) -> str:
        """Everything that can be found wrong before a run; one line of the memory it needs."""

    def fitted(self, plan: Plan) -> Plan:
        """The plan, its populations cut so that each fits where it will run."""

    def check_folder(self, folder: Place) -> str | None:
        """Refuse a place for the run that not all can write to; a line of what else to know."""

    def expect(self, plan: Plan, folder: Path | None, *, measure: bool) -> str | None:
        """A line of how long the rest will take, if that is known, or to be measured."""

    def run(
        self, plan: Plan, folder: Path, how: Execution, listener: Listener, report: Report
    ) -> None:
        """Run every population, and report each; none is reported that never began."""

    def took(self, plan: Plan, folder: Path, seconds: float) -> str | None:
        """A line of how long it took, by all who had a part in it."""


class Local:
    """In this process, one population after the other."""

    def __init__(self, options: EngineOptions = EngineOptions()) -> None:  # noqa: B008 (frozen)
        self._most = options.population_agents

    def check(self, plan: Plan, how: Execution) -> str:
        device = checked_device(plan.device)
        needs = checked_needs(plan, how)
        largest_first = sorted(needs.values(), key=lambda need: -need.total(device))
        line, *_ = [memory.check(need, device) for need in largest_first]
        return line

    def fitted(self, plan: Plan) -> Plan:
        return cut(plan, self._most) if self._most else plan

    def check_folder(self, folder: Place) -> str | None:
        return None

    def expect(self, plan: Plan, folder: Path | None, *, measure: bool) -> str | None:
        return None

    def run(
        self, plan: Plan, folder: Path, how: Execution, listener: Listener, report: Report
    ) -> None:
        for part in parts(plan):
            task = Task(str(folder), part.name, plan.device, how.threads, how.groups, how.url)
            try:
                finished = run_part(task, listener, how.network, plan)
            except torch.OutOfMemoryError as error:
                raise InvalidInput(
                    "the device ran out of memory; all finished phases are safe: free some of it, "
                    f"then valueshare resume {folder}"
                ) from error
            report(part.name, Ending(finished))
            if not finished:
                return

    def took(self, plan: Plan, folder: Path, seconds: float) -> str | None:
        return None


def checked_needs(plan: Plan, how: Execution) -> dict[str, memory.Need]:
    """What populations need, by name, once settings and networks are found to be right.

    Those that differ in names and numbers of agents alone need the same, an agent.
    """
    for name, count in (("threads", how.threads), ("groups", how.groups)):
        if count is not None and whole(name, count) < 1:
            raise InvalidInput(f"{name} = {count}: write at least 1, or leave it out")
    kinds: dict[tuple[TrainingSettings, EnvironmentSpec, str], memory.Need] = {}
    needs = {}
    for part in parts(plan):
        spec = environment_spec(part.env, part.backend, part.settings.atari_protocol)
        if how.network is not None:
            check_network(part, spec, how.network)
        kind = part.settings, replace(spec, name=""), str(part.agents["algorithm"][0])
        if kind not in kinds:
            kinds[kind] = _checked_need(part, spec, how.network)
        needs[part.name] = kinds[kind]._replace(agents=part.agents.height)
    for env, backend in plan.backends.items():
        if backend == "gymnasium":  # it may be anybody's
            check_environment(env)
    return needs


def _checked_need(part: Part, spec: EnvironmentSpec, network: NetworkFactory | None) -> memory.Need:
    limit = part.settings.eval_episode_limit
    check_evaluation(part.settings, spec.episode_limit if limit is None else limit)
    try:
        return memory.need(part, network)
    except RuntimeError as error:  # building one agent's network
        if "allocate memory" not in str(error):
            raise
        raise InvalidInput(
            f"hidden = {part.settings.hidden}: one such network does not fit into memory; write "
            "smaller layers"
        ) from error


def launch(plan: Plan, folder: Path, how: Execution, console: Console, runs: Engine) -> Run:
    """Run, or go on with, the plan of a run folder; not finished where `should_stop` ended it.

    The caller holds the folder.
    """
    began = time.monotonic()
    records = run_folder.read_records(folder, skip_damaged=True)  # those are made again
    display = Display(parts(plan), plan.agents, records, console)
    events = Events(folder, plan.agents, records) if how.tensorboard else None
    endings: dict[str, Ending] = {}

    def on_phase(part: str, step: int, new: pl.DataFrame) -> None:
        display.on_phase(part, step, new)
        if events is not None:
            events.on_phase(new)

    def report(part: str, ending: Ending) -> None:
        endings[part] = ending
        display.end(part, finished=ending.finished)
        if ending.reason is not None:
            say(console, f"{part} failed: {ending.reason}")

    listener = Listener(
        on_step=display.on_step,
        on_phase=on_phase,
        on_note=lambda line: say(console, line),
        due=display.is_due,
        should_stop=how.should_stop,
    )
    try:
        with display.watch():
            runs.run(plan, folder, how, listener, report)
    finally:
        if events is not None:
            events.close()
    if (line := runs.took(plan, folder, time.monotonic() - began)) is not None:
        say(console, line)
    finished = all(part.name in endings and endings[part.name].finished for part in parts(plan))
    failures = {name: end.reason for name, end in endings.items() if end.reason is not None}
    return Run(folder, plan.agents, run_folder.read_records(folder), finished, failures)


def say(console: Console, *lines: str) -> None:
    """Lines as they are, whatever the width of the terminal."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
