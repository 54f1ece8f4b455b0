"""The cost of Atari agents: the emulators, learning and acting alone, and whole training loops.

All are measured in one run, with a full replay from the start. A loop alternates with the bare emulators, so that a
busy machine slows both alike: the loop's share of their speed is a ratio of neighbouring measurements. All loops use
one replay, because a million frames of each of 16 agents fill a GPU.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, cycle
from typing import NamedTuple

import numpy as np
import polars as pl

from valueshare.algorithm_info import ALGORITHM_INFO
from valueshare.benchmarks import plain_agent
from valueshare.benchmarks.atari_options import AtariBench, LoopName
from valueshare.benchmarks.limits import LIMIT, measured_speed, update_work
from valueshare.benchmarks.output import Output, Row
from valueshare.benchmarks.training_loop import (
    TrainingLoop,
    atari_population,
    calls_per_second,
    fill_with_copies,
    parts_of,
    reset,
    training_engine,
)
from valueshare.envs import atari_game, atari_protocol
from valueshare.envs.atari import AtariEnvironments
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import algorithm_named
from valueshare.population import memory
from valueshare.population.agents import agent_table, concat_agents
from valueshare.population.compilation import check_compiler
from valueshare.population.devices import checked_device, release_memory, training_on
from valueshare.population.engine import Engine
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.other_names import check_known
from valueshare.population.presets import atari
from valueshare.population.settings import TrainingSettings
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import initial_state
from valueshare.text import pluralize

ROUNDS = 6  # of a loop and the bare emulators in turn: the machine's own speed changes
FILLED = 128  # real steps; the rings are then filled with copies of them
RAW, PLAIN = "raw ALE", "one plain agent"


class LoopKind(NamedTuple):
    """A way to run the training loop; only a delayed actor changes what agents do."""

    groups: int | None  # None: as many as a long run has, found in a trial
    delayed_actor: bool

    def title(self, engine: Engine) -> str:
        """The row of the loop of this engine."""
        parts = ["loop", *["delayed actor"] * self.delayed_actor]
        if self.groups != 1:
            found = "" if engine.trial is None else f" (tried: {', '.join(map(str, engine.trial.rates))})"
            parts.append(pluralize(engine.groups or 1, "group") + found)
        return ", ".join(parts)


LOOPS: dict[LoopName, LoopKind] = {
    "delayed-auto": LoopKind(None, True),
    "serial": LoopKind(1, False),
    "groups-2": LoopKind(2, False),
    "delayed": LoopKind(1, True),
    "delayed-groups-2": LoopKind(2, True),
    "delayed-groups-4": LoopKind(4, True),
    "delayed-groups-8": LoopKind(8, True),
}


def run(bench: AtariBench, device: str, compiled: bool, tf32: bool, threads: int, as_json: bool = False) -> None:
    """`valueshare bench atari`: the table, line by line, then machine and versions; 0 threads: one per core."""
    output = Output("atari", "agent-steps", as_json=as_json)
    measure(bench, device, compiled=compiled, tf32=tf32, threads=threads or None, output=output)
    output.end(device)


def measure(
    bench: AtariBench,
    device: str = "cpu",
    *,
    compiled: bool = False,
    tf32: bool = False,
    threads: int | None = None,
    output: Output,
) -> None:
    """Measure everything; `output` gets each row as soon as it is known."""
    _check(bench, threads)
    training_device, settings = checked_device(device), replace(_settings(bench), tf32=tf32)
    one_agent = PopulationSpec("population-0", _table(bench, 1), settings, "ale")
    need = memory.estimate(one_agent)._replace(agents=bench.agents)
    fits = memory.check(need, training_device, "give fewer agents or a smaller replay_capacity")
    if compiled:
        check_compiler(training_device)
    described = [f"{pluralize(bench.agents, 'agent')} of {bench.algorithm} on {', '.join(bench.env)}", device]
    described += [*["compiled"] * compiled, *["TF32"] * tf32, f"replay {bench.replay_capacity:,}, full"]
    output.say(", ".join(described))
    output.say(f"memory: {fits}")
    agents = _table(bench, bench.agents)  # only now: it is known to fit
    plain = 0.0

    def add(row: Row) -> None:
        if plain and row.rate is not None and row.part != PLAIN:
            row = row._replace(note=", ".join(filter(None, (row.note, f"{row.rate / plain:.1f} x {PLAIN}"))))
        output.add(row)

    def measure_loop(name: LoopName) -> None:
        """One loop, and with the first one its parts; nothing refers to its graphs afterwards."""
        kind, first, began = LOOPS[name], name == bench.loops[0], time.perf_counter()
        loop_population = replace(population, settings=replace(settings, delayed_actor=kind.delayed_actor))
        engine = training_engine(loop_population, state, compiled=compiled, threads=threads, groups=kind.groups)
        title = kind.title(engine)
        try:
            if engine.trial is not None:
                output.say(f"  ({engine.trial.summary})")
            if first:
                TrainingLoop(engine, -FILLED).run(FILLED)  # before any step at which agents learn
                fill_with_copies(state.replay)
            training = TrainingLoop(engine, settings.learning_starts)
            training.run(4 * settings.update_interval)  # compiled, captured, warm
            output.say(f"  ({title}: ready after {time.perf_counter() - began:.0f} s)")
            if first and bench.part_seconds:
                with _paused(engine):
                    for row in _parts(engine, bench.part_seconds):
                        add(row)
            if bench.loop_seconds:
                add(_loop_row(training, bare, title, bench.loop_seconds))
        finally:
            engine.close()

    with training_on(training_device, tf32=tf32), bare_emulators(agents, settings, threads) as bare:
        if bench.raw_seconds:
            rate = bench.agents * calls_per_second(bare, bench.raw_seconds, training_device)
            add(Row(f"{RAW}, {bench.agents} emulators", 1e3 * bench.agents / rate, rate))
        if bench.plain_seconds:
            plain = plain_agent.steps_per_second(bench.plain_seconds, training_device, bench.env[0])
            add(Row(PLAIN, 1e3 / plain, plain))
            release_memory(training_device)
        if bench.measured_loops:
            population = atari_population(agents, settings, training_device)
            state = initial_state(population)
        for name in bench.measured_loops:
            measure_loop(name)
            release_memory(training_device, compiled=compiled)


def _check(bench: AtariBench, threads: int | None) -> None:
    if bench.agents < 1:
        raise InvalidInput(f"`agents = {bench.agents}`: write a number >= 1")
    if threads is not None and threads < 1:
        raise InvalidInput(f"`threads = {threads}`: write at least 1, or leave it out")
    if not bench.env:
        raise InvalidInput("no game is given: write at least one, like Pong")
    check_known("algorithm", bench.algorithm, ALGORITHM_INFO)
    for game in bench.env:
        atari_game(game)
    for name in ("raw_seconds", "part_seconds", "loop_seconds", "plain_seconds"):
        if not 0 <= getattr(bench, name) < float("inf"):
            raise InvalidInput(f"`{name} = {getattr(bench, name)}`: write a finite number >= 0")
    if not (bench.raw_seconds or bench.plain_seconds or bench.measured_loops):
        raise InvalidInput("nothing is left to measure: write more than 0 seconds somewhere")
    if not bench.loops:
        raise InvalidInput(f"no loop is given: write some of {', '.join(LOOPS)}")
    for loop in bench.loops:
        if loop not in LOOPS:
            raise InvalidInput(f"there is no loop {loop!r}: write some of {', '.join(LOOPS)}")
        least = LOOPS[loop].groups or 1
        if least > bench.agents:
            raise InvalidInput(f"{loop} needs {least} agents: write `agents = {least}` or more")


def _settings(bench: AtariBench) -> TrainingSettings:
    settings = atari(bench.algorithm).settings
    return replace(settings, replay_capacity=bench.replay_capacity, replay_device=bench.replay_device)


def _table(bench: AtariBench, size: int) -> pl.DataFrame:
    """Agents to which the games are assigned in turn; all their actions are random, as the emulators' are."""
    agent_settings = replace(atari(bench.algorithm).agent_settings, epsilon_start=1.0, epsilon_end=1.0)
    k = 18.0 if algorithm_named(bench.algorithm).uses_k else 0.0
    games = [atari_game(game).env_id for game in bench.env]
    shares = [len(range(i, size, len(games))) for i in range(len(games))]
    tables = [
        agent_table(game, bench.algorithm, seeds=range(share), k=k, agent_settings=agent_settings)
        for game, share in zip(games, shares, strict=True)
        if share
    ]
    return concat_agents(tables)


@contextmanager
def bare_emulators(
    agents: pl.DataFrame, settings: TrainingSettings, threads: int | None
) -> Iterator[Callable[[], None]]:
    """A function that steps every emulator with random actions, by ale-py itself without our code."""
    names = agents["env"].to_list()
    environments = AtariEnvironments(names, atari_protocol(settings.atari_protocol), threads=threads, lockstep=True)
    environments.reset(range(len(names)))
    rng = np.random.default_rng(0)
    chosen = rng.integers(environments.spec.actions, size=(1_024, len(names)), dtype=np.int32)
    actions = cycle(environments.emulator_actions(chosen))  # translated beforehand: it is not ale-py's work
    try:
        yield lambda: environments.raw_step(next(actions))
    finally:
        environments.close()


@contextmanager
def _paused(engine: Engine) -> Iterator[None]:
    """Pause asynchronous environments within; then new episodes start."""
    executor = engine.executor
    if not isinstance(executor, GroupExecutor) or not executor.is_asynchronous:
        yield
        return
    for group in executor.grouped.groups:
        assert isinstance(group.environments, EnvironmentProcess)
        group.environments.pause()
    yield
    reset(engine)


def _loop_row(training: TrainingLoop, bare: Callable[[], None], title: str, seconds: float) -> Row:
    """The loop, for so many seconds in all, and the bare emulators in turn with it, for half as many."""
    device, size = training.engine.population.device, training.engine.population.size
    raw, loop = [], []  # seconds per step, by round
    for _ in range(ROUNDS):
        raw.append(1 / calls_per_second(bare, seconds / ROUNDS / 2, device))
        loop.append(1 / training.steps_per_second(seconds / ROUNDS))
    shares = [emulators / whole for emulators, whole in zip(raw, loop, strict=True)]
    step, share = sum(loop) / ROUNDS, sum(raw) / sum(loop)
    spread = f"{min(shares):.2f} to {max(shares):.2f}"
    return Row(title, 1e3 * step, size / step, f"{RAW} beside it", share, spread)


def _parts(engine: Engine, seconds: float) -> Iterator[Row]:
    """Learning of all agents; acting and storing of the first group."""
    population, parts = engine.population, parts_of(engine)
    every = population.settings.update_interval
    steps = count(population.settings.learning_starts, every)

    def learn() -> None:
        parts.learn(next(steps))

    update = 1 / calls_per_second(learn, seconds, population.device)
    least = update_work(population, engine.state).seconds(measured_speed(population.device))
    yield Row("learning alone, per update", 1e3 * update, population.size * every / update, LIMIT, least / update)
    for name, call in (("acting", parts.act), ("storing", parts.store)):
        step = 1 / calls_per_second(call, seconds, population.device)
        of = "" if parts.agents == population.size else f", {parts.agents} agents"
        yield Row(f"{name} alone{of}", 1e3 * step, parts.agents / step)
