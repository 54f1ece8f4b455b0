"""What Atari agents cost: the emulators, learning and acting alone, and whole training loops.

All in one run, the replay full from the start. A loop takes turns with the bare emulators, so that
a busy machine slows both alike: its share of them is a ratio of neighbours. All loops use one
replay, because a million frames of each of 16 agents fill a GPU.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

import polars as pl

from valueshare.benchmarks import plain_agent
from valueshare.benchmarks.atari_loop import Loop, bare_emulators, paused, population_of, training_engine
from valueshare.benchmarks.population import versions_line
from valueshare.benchmarks.training_loop import TrainingLoop, fill_with_copies, parts_of, turns_per_second
from valueshare.envs import atari_game
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import algorithm_named
from valueshare.population import memory
from valueshare.population.agents import agent_table
from valueshare.population.compilation import check_compiler
from valueshare.population.engine import Engine
from valueshare.population.presets import atari
from valueshare.population.settings import TrainingSettings
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import Population, State, initial_state
from valueshare.population.train import checked_device, on_device, release_memory
from valueshare.text import how_many

ROUNDS = 6  # turns of a loop and the bare emulators: the machine's own speed changes
FILLED = 128  # real steps, of which the rings are then filled with copies

LoopName = Literal["serial", "halves", "lag", "lag-halves", "lag-quarters", "lag-eighths"]

LOOPS: dict[LoopName, Loop] = {
    "serial": Loop("loop", 1, False),
    "halves": Loop("loop, two halves", 2, False),
    "lag": Loop("loop, delayed actor", 1, True),
    "lag-halves": Loop("loop, delayed actor, two halves", 2, True),
    "lag-quarters": Loop("loop, delayed actor, four quarters", 4, True),
    "lag-eighths": Loop("loop, delayed actor, eight eighths", 8, True),
}


@dataclass(frozen=True)
class AtariBench:
    """What is measured; seconds of 0 leave a part out."""

    agents: int = 16
    algorithm: str = "dqn"
    games: tuple[str, ...] = ("Pong",)
    replay_capacity: int = 1_000_000
    replay_device: Literal["cpu", "cuda", "disk"] | None = None
    device: str = "cpu"
    compiled: bool = False
    tf32: bool = False
    threads: int | None = None
    loops: tuple[LoopName, ...] = ("serial", "halves", "lag", "lag-halves")
    raw_seconds: float = 5.0
    part_seconds: float = 2.0  # learning, acting and storing, each
    loop_seconds: float = 10.0  # each, and half as long the emulators beside it
    plain_seconds: float = 8.0

    def __post_init__(self) -> None:
        if self.agents < 1:
            raise InvalidInput(f"agents = {self.agents}: write a number >= 1")
        if self.threads is not None and self.threads < 1:
            raise InvalidInput(f"threads = {self.threads}: write at least 1, or leave it out")
        if not self.games:
            raise InvalidInput("no game is given: write at least one, like Pong")
        algorithm_named(self.algorithm)
        for game in self.games:
            atari_game(game)
        for name in ("raw_seconds", "part_seconds", "loop_seconds", "plain_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidInput(f"{name} = {getattr(self, name)}: write a finite number >= 0")
        if not (self.raw_seconds or self.plain_seconds or self.measured_loops):
            raise InvalidInput("nothing is left to measure: write more than 0 seconds somewhere")
        if not self.loops:
            raise InvalidInput(f"no loop is given: write some of {', '.join(LOOPS)}")
        for loop in self.loops:
            if loop not in LOOPS:
                raise InvalidInput(f"there is no loop {loop!r}: write some of {', '.join(LOOPS)}")
            least = LOOPS[loop].groups or 1
            if least > self.agents:
                raise InvalidInput(f"{loop} needs {least} agents: write --agents {least} or more")

    @property
    def measured_loops(self) -> tuple[LoopName, ...]:
        """Those to be made: the parts are those of the first one."""
        return self.loops if self.loop_seconds else self.loops[: bool(self.part_seconds)]


class Row(NamedTuple):
    """A line of the table."""

    part: str
    ms: float  # of a step of all agents, or of an update
    rate: float  # agent-steps a second
    share: float | None = None  # of the bare emulators beside it
    shares: tuple[float, float] | None = None  # the least and the greatest of all rounds
    ratio: float | None = None  # to one plain agent


def measure(bench: AtariBench, say: Callable[[str], None] = print) -> list[Row]:
    """Measure everything; `say` gets a line of text for each row as soon as it is known."""
    device = checked_device(bench.device)
    settings = _settings(bench)
    one = PopulationSpec("population-0", _table(bench, 1), settings, "ale")
    need = memory.need(one)._replace(agents=bench.agents)
    fits = memory.check(need, device, "give fewer agents or a smaller replay-capacity")
    if bench.compiled:
        check_compiler(device)
    say(_head(bench))
    say(f"memory: {fits}")
    agents = _table(bench, bench.agents)  # now that it is known to fit
    say(_line("part", "ms", "agent-steps/s", "of raw ALE", "x one plain agent"))
    rows: list[Row] = []
    plain = 0.0

    def known(row: Row) -> None:
        if plain and row.part != "one plain agent":
            row = row._replace(ratio=row.rate / plain)
        rows.append(row)
        say(_shown(row))

    with on_device(device, tf32=bench.tf32), bare_emulators(agents, settings, bench.threads) as bare:
        if bench.raw_seconds:
            rate = bench.agents * turns_per_second(bare, bench.raw_seconds, device)
            known(Row(f"raw ALE, {bench.agents} emulators", 1e3 * bench.agents / rate, rate, 1.0))
        if bench.plain_seconds:
            plain = plain_agent.steps_per_second(bench.plain_seconds, device, bench.games[0])
            known(Row("one plain agent", 1e3 / plain, plain, ratio=1.0))
            release_memory(device)
        loops = bench.measured_loops
        if loops:
            population = population_of(agents, settings, device)
            state = initial_state(population)
        for name in loops:
            _measure_loop(bench, name, population, state, bare, known, say)
            release_memory(device, compiled=bench.compiled)
    return rows


def _measure_loop(
    bench: AtariBench,
    name: LoopName,
    population: Population,
    state: State,
    bare: Callable[[], None],
    known: Callable[[Row], None],
    say: Callable[[str], None],
) -> None:
    """One loop, and with the first one its parts; nothing refers to its graphs afterwards."""
    settings, loop, first = population.settings, LOOPS[name], name == bench.loops[0]
    began = time.perf_counter()
    engine = training_engine(population, state, loop, bench.compiled, bench.threads)
    try:
        if first:
            TrainingLoop(engine, -FILLED).run(FILLED)  # before any step at which agents learn
            fill_with_copies(state.replay)
        training = TrainingLoop(engine, settings.learning_starts)
        training.run(4 * settings.update_interval)  # compiled, captured, warm
        say(f"  ({loop.words}: ready after {time.perf_counter() - began:.0f} s)")
        if first and bench.part_seconds:
            with paused(engine):
                for row in _parts(engine, bench.part_seconds):
                    known(row)
        if bench.loop_seconds:
            known(_raced(training, bare, loop.words, bench.loop_seconds))
    finally:
        engine.close()


def run(bench: AtariBench) -> None:
    """`valueshare bench atari`: the table, line by line, with machine and versions below it."""
    measure(bench, lambda line: print(line, flush=True))
    print(versions_line(bench.device), flush=True)


def _head(bench: AtariBench) -> str:
    words = [f"{how_many(bench.agents, 'agent')} of {bench.algorithm} on {', '.join(bench.games)}"]
    words += [bench.device, *["compiled"] * bench.compiled, *["TF32"] * bench.tf32]
    return ", ".join([*words, f"replay {bench.replay_capacity:,}, full"])


def _settings(bench: AtariBench) -> TrainingSettings:
    return replace(
        atari(bench.algorithm).settings,
        replay_capacity=bench.replay_capacity,
        replay_device=bench.replay_device,
        tf32=bench.tf32,
    )


def _table(bench: AtariBench, size: int) -> pl.DataFrame:
    """P agents that take the games in turn; all their actions are random, as the emulators' are."""
    own = replace(atari(bench.algorithm).agent_settings, epsilon_start=1.0, epsilon_end=1.0)
    k = 18.0 if algorithm_named(bench.algorithm).uses_k else 0.0
    games = [atari_game(game).env_id for game in bench.games]
    shares = [-(-(size - i) // len(games)) for i in range(len(games))]
    tables = [
        agent_table(game, bench.algorithm, seeds=range(share), k=k, agent_settings=own)
        for game, share in zip(games, shares, strict=True)
        if share
    ]
    return pl.concat(tables).with_columns(agent=pl.int_range(pl.len(), dtype=pl.Int64))


def _raced(training: TrainingLoop, bare: Callable[[], None], name: str, seconds: float) -> Row:
    """The loop and the bare emulators in turns, for so many seconds in all, and half as many."""
    device, size = training.engine.population.device, training.engine.population.size
    raw, loop = [], []  # seconds a step, by round
    for _ in range(ROUNDS):
        raw.append(1 / turns_per_second(bare, seconds / ROUNDS / 2, device))
        loop.append(1 / training.steps_per_second(seconds / ROUNDS))
    shares = [emulators / whole for emulators, whole in zip(raw, loop, strict=True)]
    step, share = sum(loop) / ROUNDS, sum(raw) / sum(loop)
    return Row(name, 1e3 * step, size / step, share, (min(shares), max(shares)))


def _parts(engine: Engine, seconds: float) -> Iterator[Row]:
    """Learning of all agents; acting and storing of the first group."""
    device, settings, size = (engine.population.device, engine.population.settings, engine.population.size)
    parts, counters = parts_of(engine), count(0, settings.update_interval)

    def learning() -> None:
        parts.learn(next(counters))

    step = 1 / turns_per_second(learning, seconds, device)
    yield Row("learning alone, an update", 1e3 * step, size * settings.update_interval / step)
    for name, turn in (("acting", parts.act), ("storing", parts.store)):
        step = 1 / turns_per_second(turn, seconds, device)
        of = "" if parts.agents == size else f", {parts.agents} agents"
        yield Row(f"{name} alone{of}", 1e3 * step, parts.agents / step)


def _shown(row: Row) -> str:
    share = "" if row.share is None else f"{row.share:.2f}"
    if row.shares is not None:
        share += f" ({row.shares[0]:.2f}-{row.shares[1]:.2f})"
    ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
    return _line(row.part, f"{row.ms:.3f}", f"{row.rate:,.0f}", share, ratio)


def _line(part: str, *columns: str) -> str:
    return f"{part:<34}" + "".join(f"{text:>{width}}" for text, width in zip(columns, (10, 15, 18, 19), strict=True))
