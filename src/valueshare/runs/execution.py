"""How a plan is run, who runs it and who is told: what launching and all engines agree on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from valueshare.envs import environment_spec
from valueshare.envs.base import EnvironmentSpec
from valueshare.envs.gymnasium import check_environment
from valueshare.errors import InvalidInput
from valueshare.population.evaluate import check_evaluation
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import NetworkFactory
from valueshare.runs import memory
from valueshare.runs.engines import EngineOptions
from valueshare.runs.networks import check_network, check_network_shapes
from valueshare.runs.plan import Plan, parts
from valueshare.runs.storage.places import Place, Url
from valueshare.setting import whole


class Execution(NamedTuple):
    """How a plan is run; nothing of it changes a number."""

    network: NetworkFactory | None = None  # the one that the plan names
    threads: int | None = None  # of the environments; None: one a core
    tensorboard: bool = False
    progress: bool = True  # whether the run shows itself
    should_stop: Callable[[], bool] | None = None  # asked at every step
    groups: int | None = None  # of agents, which go at their own pace; None: as many as suit
    engine: EngineOptions = EngineOptions()
    url: Url | None = None  # where the run is, if its folder is a copy of what is there


class Listener(NamedTuple):
    """Who is told how a population gets on, and may end it."""

    on_step: Callable[[str, int], None] = lambda part, step: None
    on_phase: Callable[[str, int, pl.DataFrame], None] = lambda part, step, records: None
    on_note: Callable[[str], None] = lambda line: None
    due: Callable[[], bool] = lambda: False  # whether `on_step` wants to be called
    should_stop: Callable[[], bool] | None = None


class Ending(NamedTuple):
    """How a population ended."""

    finished: bool
    reason: str | None = None  # why not, unless it was asked to end


Report = Callable[[str, Ending], None]  # called once for every population that has ended


class Engine(Protocol):
    """Who runs populations; one that has nothing to tell leaves out what answers None here."""

    def check(self, plan: Plan, how: Execution) -> str:
        """Everything that can be found wrong before a run; one line of the memory it needs."""

    def fitted(self, plan: Plan) -> Plan:
        """The plan, its populations cut so that each fits where it will run."""

    def check_folder(self, folder: Place) -> str | None:
        """Refuse a place for the run that not all can write to; a line of what else to know."""
        return None

    def expect(self, plan: Plan, folder: Path | None, *, measure: bool) -> str | None:
        """A line of how long the rest will take, if that is known, or to be measured."""
        return None

    def run(
        self, plan: Plan, folder: Path, how: Execution, listener: Listener, report: Report
    ) -> None:
        """Run every population, and report each; none is reported that never began."""

    def took(self, plan: Plan, folder: Path, seconds: float) -> str | None:
        """A line of how long it took, by all who had a part in it."""
        return None


def checked_needs(plan: Plan, how: Execution) -> dict[str, memory.Need]:
    """What populations need, by name, once settings are found to be right.

    Those that differ in names and numbers of agents alone need the same per agent. Networks are
    known by their shapes alone: a user's is tried by `try_networks`, once it is known to fit.
    """
    for name, count in (("threads", how.threads), ("groups", how.groups)):
        if count is not None and whole(name, count) < 1:
            raise InvalidInput(f"{name} = {count}: write at least 1, or leave it out")
    kinds: dict[tuple[TrainingSettings, EnvironmentSpec, str], memory.Need] = {}
    needs = {}
    for part in parts(plan):
        spec = environment_spec(part.env, part.backend, part.settings.atari_protocol)
        if how.network is not None:
            check_network_shapes(part, spec, how.network)
        kind = part.settings, replace(spec, name=""), str(part.agents["algorithm"][0])
        if kind not in kinds:
            limit = part.settings.eval_episode_limit
            check_evaluation(part.settings, spec.episode_limit if limit is None else limit)
            kinds[kind] = memory.need(part, how.network)
        needs[part.name] = kinds[kind]._replace(agents=part.agents.height)
    for env, backend in plan.backends.items():
        if backend == "gymnasium":  # it may be anybody's
            check_environment(env)
    return needs


def try_networks(plan: Plan, network: NetworkFactory | None) -> None:
    """Try a user's network with weights, in every population; their memory has been checked."""
    if network is None:
        return
    for part in parts(plan):
        spec = environment_spec(part.env, part.backend, part.settings.atari_protocol)
        check_network(part, spec, network)
