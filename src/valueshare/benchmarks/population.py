"""What each part of a population's tick costs alone, and what the whole loop makes of them.

The parts take turns within one run, so that a busy machine slows all of them alike. Replay is full
from the start, because sampling a ring that fits into a cache would flatter learning.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from valueshare.benchmarks.training_loop import TrainingLoop, environments_of, fill_with_copies, parts_of
from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.learning.randomness import stream_key
from valueshare.population import memory
from valueshare.population.agents import agent_table
from valueshare.population.compilation import check_compiler
from valueshare.population.engine import Engine, make_engine
from valueshare.population.presets import PRESETS, Preset, generic, lunarlander_paper
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import initial_state, make_population
from valueshare.population.train import checked_device, on_device, release_memory
from valueshare.runs.provenance import library_versions, machine_line

PARTS = ("environments", "learning", "acting", "storing", "whole loop")
ROUNDS = 5
FILLED = 256  # real steps, of which the rings are then filled with copies

Turn = Callable[[int], None]


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one tick of all agents, of each part alone and of the whole loop."""

    agents: int
    ms: dict[str, float]  # by PARTS

    @property
    def limit(self) -> str:
        """The slower of what overlaps: stepping environments, and learning."""
        return max(("environments", "learning"), key=self.ms.__getitem__)

    @property
    def share(self) -> float:
        """The speed of the whole loop as a share of the slower part's alone."""
        return self.ms[self.limit] / self.ms["whole loop"]

    def rate(self, part: str) -> float:
        """Agent-steps a second."""
        return 1e3 * self.agents / self.ms[part]


def measure(
    agents: int,
    preset: Preset,
    *,
    env: str = "LunarLander-v3",
    device: str = "cpu",
    compiled: bool = False,
    seconds: float = 10.0,
    threads: int | None = None,
    groups: int = 1,
    only: Sequence[str] = PARTS,
    trace: Callable[[Engine], None] | None = None,
) -> Timing:
    """Time the parts of a tick of `agents` ib-dqn agents for about `seconds` in all.

    `only` names the parts to time; with several groups it must be the whole loop, since the parts
    alone are those of all agents. `trace` is called with the engine afterwards, while it is warm.
    """
    if agents < 1:
        raise InvalidInput(f"agents = {agents}: write a number >= 1")
    if not seconds > 0:
        raise InvalidInput(f"seconds = {seconds:g}: write a number > 0")
    if groups > 1 and tuple(only) != ("whole loop",):
        raise InvalidInput(f"groups = {groups}: only the whole loop is measured in groups")
    place = checked_device(device)
    _check_memory(agents, preset, env, place)
    if compiled:
        check_compiler(place)
    with on_device(place, tf32=preset.settings.tf32):
        engine = _engine(agents, preset, env, place, compiled, threads, groups)
        try:
            _fill(engine)
            made = _turns(engine) if groups == 1 else {"whole loop": _whole_loop(engine)}
            turns = {name: turn for name, turn in made.items() if name in only}
            for turn in turns.values():
                turn(3)  # compilation, memory, threads
            ticks = {
                name: max(1, round(seconds / ROUNDS / len(turns) / _seconds(turn, 5, engine) * 5))
                for name, turn in turns.items()
            }
            spent = dict.fromkeys(turns, 0.0)
            for _ in range(ROUNDS):
                for name, turn in turns.items():
                    spent[name] += _seconds(turn, ticks[name], engine)
            if trace is not None:
                trace(engine)
        finally:
            engine.close()
    return Timing(agents, {n: 1e3 * spent[n] / (ROUNDS * ticks[n]) for n in turns})


def release(device: str) -> None:
    """Give back what a measurement held, before the next one takes more."""
    release_memory(torch.device(device), compiled=True)


def preset_named(name: str) -> Preset:
    """A preset by the name of its environment, or `generic`, or `lunarlander-paper`."""
    presets = {"generic": generic, "lunarlander-paper": lunarlander_paper, **PRESETS}
    if name not in presets:
        raise InvalidInput(f"there is no preset {name!r}: write one of {', '.join(presets)}")
    return presets[name]()


def versions_line(device: str) -> str:
    """Machine and versions, as a benchmark prints them below its table."""
    parts = [machine_line()]
    if torch.device(device).type == "cuda":
        parts.append(torch.cuda.get_device_name(device))
    parts.append(f"Python {sys.version.split()[0]}")
    parts += [f"{name} {version}" for name, version in library_versions().items()]
    return ", ".join(parts)


def run(
    agents: int = 64,
    preset: str = "generic",
    env: str = "LunarLander-v3",
    device: str | None = None,
    compiled: bool = False,
    seconds: float = 10.0,
    threads: int | None = None,
) -> None:
    """`valueshare bench population`: measure, and print one table."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    chosen = preset_named(preset)
    timing = measure(agents, chosen, env=env, device=device, compiled=compiled, seconds=seconds, threads=threads)
    settings = chosen.settings
    table = Table(
        title=f"{agents:,} agents on {env}, {device}{', compiled' if compiled else ''}",
        caption=(
            f"MLP {'-'.join(map(str, settings.hidden))}, batch {settings.batch_size}, an update "
            f"every {settings.update_interval} steps, replay {settings.replay_transitions:,}"
        ),
    )
    for heading in ("part", "ms a tick", "agents x steps/s", f"share of {timing.limit}"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part in PARTS:
        share = timing.ms[timing.limit] / timing.ms[part]
        shown = f"{share:.2f}" if part in (timing.limit, "whole loop") else ""
        name = part if part == "whole loop" else f"{part} alone"
        table.add_row(name, f"{timing.ms[part]:.3f}", f"{timing.rate(part):,.0f}", shown)
    console = Console()
    console.print(table)
    console.print(versions_line(device), highlight=False)


def _check_memory(agents: int, preset: Preset, env: str, device: torch.device) -> None:
    """Refuse what does not fit, by what one agent needs: the table of too many would not fit."""
    one = agent_table(env, "ib-dqn", seeds=[0], agent_settings=preset.agent_settings)
    part = PopulationSpec("benchmark", one, preset.settings, environment_spec(env).backend)
    memory.check(memory.need(part)._replace(agents=agents), device, "write fewer agents")


def _engine(
    agents: int, preset: Preset, env: str, device: torch.device, compiled: bool, threads: int | None, groups: int
) -> Engine:
    k = [0.0, *(2.0**i for i in range(16))]  # as in the study; k costs nothing
    # All actions random, as in the environments' part: episodes are then equally long in both.
    own = replace(preset.agent_settings, epsilon_start=1.0, epsilon_end=1.0)
    table = agent_table(env, "ib-dqn", seeds=range(-(-agents // len(k))), k=k, agent_settings=own)
    population = make_population(table.head(agents), preset.settings, environment_spec(env), device)
    engine = make_engine(
        population, initial_state(population), compiled=compiled, threads=threads, groups=groups, evaluates=False
    )
    seeds = [stream_key(seed, "benchmark") + i for i, seed in enumerate(population.seeds)]
    engine.executor.reset(seeds)
    return engine


def _fill(engine: Engine) -> None:
    """Real steps first, then copies of them up to the rings' ends."""
    # Before any step at which agents learn.
    steps = min(FILLED, engine.population.settings.replay_transitions)
    TrainingLoop(engine, -steps).run(steps)
    fill_with_copies(engine.state.replay)


def _turns(engine: Engine) -> dict[str, Turn]:
    """Each part, as often as is asked, in the order of PARTS."""
    parts, environments = parts_of(engine), environments_of(engine)
    rng = np.random.default_rng(0)
    actions = rng.integers(engine.population.env.actions, size=(1_024, engine.population.size))
    clock = {"environments": 0, "learning": 0}

    def step() -> None:
        clock["environments"] += 1
        environments.step(actions[clock["environments"] % len(actions)])

    def learn() -> None:
        clock["learning"] += 1
        parts.learn(clock["learning"])

    alone = map(_repeated, (step, learn, parts.act, parts.store))
    return dict(zip(PARTS, (*alone, _whole_loop(engine)), strict=True))


def _repeated(part: Callable[[], None]) -> Turn:
    def turn(times: int) -> None:
        for _ in range(times):
            part()

    return turn


def _whole_loop(engine: Engine) -> Turn:
    return TrainingLoop(engine, engine.population.settings.learning_starts).run


def _seconds(turn: Turn, times: int, engine: Engine) -> float:
    cuda = engine.population.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    turn(times)
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began
