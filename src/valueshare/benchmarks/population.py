"""The cost of each part of a population's step alone, and of the whole loop.

The parts alternate within one run, so that a busy machine slows all of them alike. Replay is full from the start,
because sampling from a ring that fits into a cache would be too fast.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle

import numpy as np
import torch

from valueshare.benchmarks.limits import LIMIT, measured_speed, update_work
from valueshare.benchmarks.output import Output, Row
from valueshare.benchmarks.training_loop import (
    TrainingLoop,
    calls_per_second,
    fill_with_copies,
    parts_of,
    training_engine,
)
from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.population import memory
from valueshare.population.agents import agent_table
from valueshare.population.compilation import check_compiler
from valueshare.population.devices import checked_device, release_memory, training_on
from valueshare.population.engine import Engine
from valueshare.population.presets import PRESETS, Preset, generic, lunarlander_paper
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import initial_state, make_population

PARTS = ("environments", "learning", "acting", "storing", "whole loop")
ROUNDS = 5
WARM_UP = 8  # calls of each part before it is measured: compilation, memory, threads
FILLED = 256  # real steps; the rings are then filled with copies of them


@dataclass(frozen=True)
class Timing:
    """Milliseconds per step of all agents, of each part alone and of the whole loop."""

    agents: int
    ms: dict[str, float]  # by PARTS
    learning_limit: float = 0.0  # milliseconds that learning takes at least

    @property
    def limit(self) -> str:
        """The slower of what overlaps: stepping environments, and learning."""
        return max(("environments", "learning"), key=self.ms.__getitem__)

    @property
    def share(self) -> float:
        """The speed of the whole loop as a share of the slower part's alone."""
        return self.ms[self.limit] / self.ms["whole loop"]

    def rate(self, part: str) -> float:
        """Agent-steps per second."""
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
    only: Sequence[str] = PARTS,
    trace: Callable[[Engine], None] | None = None,
) -> Timing:
    """Time the parts of a step of `agents` ib-dqn agents for about `seconds` in all.

    `only` names the parts to time. `trace` is called with the engine afterwards, while it is warm.
    """
    if agents < 1:
        raise InvalidInput(f"`agents = {agents}`: write a number >= 1")
    if not seconds > 0:
        raise InvalidInput(f"`seconds = {seconds:g}`: write a number > 0")
    torch_device = checked_device(device)
    _check_memory(agents, preset, env, torch_device)
    if compiled:
        check_compiler(torch_device)
    with training_on(torch_device, tf32=preset.settings.tf32):
        engine = _engine(agents, preset, env, torch_device, compiled, threads)
        try:
            steps = min(FILLED, preset.settings.replay_transitions)
            TrainingLoop(engine, -steps).run(steps)  # real steps, before any step at which agents learn
            fill_with_copies(engine.state.replay)
            rates = {name: rate for name, rate in _rates(engine).items() if name in only}
            for _ in range(WARM_UP):
                for rate in rates.values():
                    rate(0.0)  # one call
            ms = dict.fromkeys(rates, 0.0)
            for _ in range(ROUNDS):
                for name, rate in rates.items():
                    ms[name] += 1e3 / rate(seconds / ROUNDS / len(rates)) / ROUNDS
            if trace is not None:
                trace(engine)
            limit = _learning_limit(engine) if "learning" in ms else 0.0
        finally:
            engine.close()
    return Timing(agents, ms, limit)


def release(device: str) -> None:
    """Free the memory of a measurement before the next one."""
    release_memory(torch.device(device), compiled=True)


def preset_named(name: str) -> Preset:
    """A preset by the name of its environment, or `generic`, or `lunarlander-paper`."""
    presets = {"generic": generic, "lunarlander-paper": lunarlander_paper, **PRESETS}
    if name not in presets:
        raise InvalidInput(f"there is no preset {name!r}: write one of {', '.join(presets)}")
    return presets[name]()


def run(
    agents: int,
    preset: str,
    env: str,
    device: str,
    compiled: bool = False,
    seconds: float = 10.0,
    threads: int = 0,
    as_json: bool = False,
) -> None:
    """`valueshare bench population`: measure, and print one table; 0 threads: one per core."""
    chosen = preset_named(preset)
    timing = measure(
        agents, chosen, env=env, device=device, compiled=compiled, seconds=seconds, threads=threads or None
    )
    settings = chosen.settings
    output = Output("population", "agent-steps", as_json=as_json)
    output.say(f"{agents:,} agents on {env}, {device}{', compiled' if compiled else ''}")
    output.say(
        f"MLP {'-'.join(map(str, settings.hidden))}, batch {settings.batch_size}, an update "
        f"every {settings.update_interval} steps, replay {settings.replay_transitions:,}"
    )
    for row in rows_of(timing):
        output.add(row)
    output.end(device)


def rows_of(timing: Timing) -> Iterator[Row]:
    """Each part; learning against its arithmetic, the whole loop against the slower of what overlaps."""
    limits = {
        "learning": (LIMIT, timing.learning_limit / timing.ms["learning"]),
        "whole loop": (f"{timing.limit} alone", timing.share),
    }
    for part in PARTS:
        limit, share = limits.get(part, ("", None))
        name = part if part == "whole loop" else f"{part} alone"
        yield Row(name, timing.ms[part], timing.rate(part), limit, share)


def _learning_limit(engine: Engine) -> float:
    """Milliseconds per step that learning takes at least, updates averaged over the steps between them."""
    population, settings = engine.population, engine.population.settings
    update = update_work(population, engine.state).seconds(measured_speed(population.device))
    return 1e3 * update * settings.gradient_steps / settings.update_interval


def _check_memory(agents: int, preset: Preset, env: str, device: torch.device) -> None:
    """Refuse agents that do not fit, by the memory of one: even the table of too many would not fit."""
    one_agent = agent_table(env, "ib-dqn", seeds=[0], agent_settings=preset.agent_settings)
    spec = PopulationSpec("benchmark", one_agent, preset.settings, environment_spec(env).backend)
    memory.check(memory.estimate(spec)._replace(agents=agents), device, "write fewer agents")


def _engine(agents: int, preset: Preset, env: str, device: torch.device, compiled: bool, threads: int | None) -> Engine:
    k = [0.0, *(2.0**i for i in range(16))]  # as in the study; k costs nothing
    # All actions are random, as when the environments are measured alone: episodes are then equally long in both.
    agent_settings = replace(preset.agent_settings, epsilon_start=1.0, epsilon_end=1.0)
    table = agent_table(env, "ib-dqn", seeds=range(-(-agents // len(k))), k=k, agent_settings=agent_settings)
    population = make_population(table.head(agents), preset.settings, environment_spec(env), device)
    state = initial_state(population)
    return training_engine(population, state, compiled=compiled, threads=threads, groups=1)


def _rates(engine: Engine) -> dict[str, Callable[[float], float]]:
    """Functions (seconds to measure) -> steps per second, of each part in the order of PARTS."""
    population, parts = engine.population, parts_of(engine)
    rng = np.random.default_rng(0)
    actions = cycle(rng.integers(population.env.actions, size=(1_024, parts.agents)))
    steps = count(population.settings.learning_starts)

    def step() -> None:
        parts.step(next(actions))

    def learn() -> None:
        parts.learn(next(steps))

    alone = [
        partial(calls_per_second, part, device=population.device) for part in (step, learn, parts.act, parts.store)
    ]
    loop = TrainingLoop(engine, population.settings.learning_starts)
    return dict(zip(PARTS, (*alone, loop.steps_per_second), strict=True))
