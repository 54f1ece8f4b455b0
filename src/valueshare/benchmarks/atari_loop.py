"""The pieces of the Atari benchmark: engines that do not evaluate, and bare emulators."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
import torch

from valueshare.benchmarks.training_loop import TrainingLoop
from valueshare.envs import atari_protocol, environment_spec
from valueshare.envs.atari import AtariEnvironments
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.learning.randomness import stream_key
from valueshare.population.engine import Engine, make_engine
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.settings import TrainingSettings
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import Population, State, initial_state, make_population
from valueshare.population.train import checked_device, on_device, release_memory


class Loop(NamedTuple):
    """A way to run the training loop; but for the lag, no agent's random numbers differ."""

    words: str
    groups: int | None  # None: as many as suit
    lag: bool


def loop_rate(
    spec: PopulationSpec,
    device: str,
    compiled: bool,
    seconds: float = 4.0,
    *,
    threads: int | None = None,
    groups: int | None = None,
) -> float:
    """Agent-steps per second of training the agents of `spec`, measured with a small replay.

    The emulators and learning cost what they cost in the run; only sampling is flattered. What was
    held for it is free afterwards.
    """
    place = checked_device(device)
    small = max(2_048, spec.settings.batch_size)
    settings = replace(spec.settings, replay_capacity=small)
    groups = None if groups is None else min(groups, spec.agents.height)
    how = Loop("loop", groups, settings.delayed_actor)

    def measured() -> float:  # what it holds has no name outside
        population = population_of(spec.agents, settings, place)
        engine = training_engine(population, initial_state(population), how, compiled, threads)
        try:
            loop = TrainingLoop(engine, settings.learning_starts - 2 * settings.update_interval)
            loop.run(4 * settings.update_interval)
            return population.size * loop.steps_per_second(seconds)
        finally:
            engine.close()

    with on_device(place, tf32=settings.tf32):
        rate = measured()
        release_memory(place, compiled=compiled)
    return rate


def population_of(agents: pl.DataFrame, settings: TrainingSettings, device: torch.device) -> Population:
    specs = [
        environment_spec(game, "ale", settings.atari_protocol) for game in agents["env"].unique(maintain_order=True)
    ]
    return make_population(agents, settings, specs, device)


def training_engine(population: Population, state: State, loop: Loop, compiled: bool, threads: int | None) -> Engine:
    """All that a training loop needs: nothing for evaluation, which would be compiled too."""
    settings = replace(population.settings, delayed_actor=loop.lag)
    engine = make_engine(
        replace(population, settings=settings),
        state,
        compiled=compiled,
        threads=threads,
        groups=loop.groups,
        evaluates=False,
    )
    try:
        _reset(engine)
    except BaseException:
        engine.close()
        raise
    return engine


def _reset(engine: Engine) -> None:
    seeds = engine.population.seeds
    engine.executor.reset([stream_key(seed, "benchmark") + i for i, seed in enumerate(seeds)])


@contextmanager
def paused(engine: Engine) -> Iterator[None]:
    """Pause asynchronous environments within; then new episodes start."""
    executor = engine.executor
    if not isinstance(executor, GroupExecutor) or not executor.is_asynchronous:
        yield
        return
    for group in executor.grouped.groups:
        assert isinstance(group.environments, EnvironmentProcess)
        group.environments.pause()
    yield
    _reset(engine)


@contextmanager
def bare_emulators(
    agents: pl.DataFrame, settings: TrainingSettings, threads: int | None
) -> Iterator[Callable[[], None]]:
    """A step of every emulator with random actions, by ale-py itself: nothing of ours is in it."""
    names: Sequence[str] = agents["env"].to_list()
    protocol = atari_protocol(settings.atari_protocol)
    environments = AtariEnvironments(names, protocol, threads=threads, lockstep=True)
    environments.reset(range(len(names)))
    rng = np.random.default_rng(0)
    chosen = rng.integers(environments.spec.actions, size=(1_024, len(names)), dtype=np.int32)
    actions = environments.emulator_actions(chosen)  # beforehand: it is no work of ale-py's
    steps = 0

    def step() -> None:
        nonlocal steps
        environments.raw_step(actions[steps % len(actions)])
        steps += 1

    try:
        yield step
    finally:
        environments.close()
