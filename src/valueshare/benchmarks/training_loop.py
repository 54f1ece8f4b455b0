"""Training loops to be timed, on a full replay, and their parts alone."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from valueshare.envs import environment_spec
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.learning.randomness import stream_key
from valueshare.population.engine import Engine, make_engine
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.groups import choose_actions
from valueshare.population.execution.learner import update_due
from valueshare.population.execution.on_device import DeviceExecutor
from valueshare.population.loop import SerialExecutor
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, make_population
from valueshare.replay.transitions import SAMPLING_LAG, Transitions


def atari_population(agents: pl.DataFrame, settings: TrainingSettings, device: torch.device) -> Population:
    games = agents["env"].unique(maintain_order=True)
    specs = [environment_spec(game, "ale", settings.atari_protocol) for game in games]
    return make_population(agents, settings, specs, device)


def training_engine(
    population: Population, state: State, *, compiled: bool, threads: int | None, groups: int | None
) -> Engine:
    """The parts of a training loop, without evaluation, which would be compiled too.

    `groups` None: as many as a long run has, found in a trial where environments are in processes.
    """
    engine = make_engine(
        population, state, compiled=compiled, threads=threads, groups=groups, evaluates=False, trial=True
    )
    try:
        reset(engine)
    except BaseException:
        engine.close()
        raise
    return engine


def reset(engine: Engine) -> None:
    seeds = engine.population.seeds
    engine.executor.reset([stream_key(seed, "benchmark") + i for i, seed in enumerate(seeds)])


class TrainingLoop:
    """Steps of every agent as in a phase; `t` is the step of the schedule."""

    def __init__(self, engine: Engine, t: int) -> None:
        self.engine, self.t = engine, t
        self._episodes = TrainingEpisodes(engine.population.size)

    def run(self, steps: int) -> None:
        self.engine.executor.run(range(self.t, self.t + steps), lambda step: None, self._episodes)
        self.t += steps

    def steps_per_second(self, seconds: float) -> float:
        """Steps per second, over about `seconds` of runs that are long enough for their start and end not to count."""
        device, every = self.engine.population.device, self.engine.population.settings.update_interval
        rate = every * calls_per_second(lambda: self.run(every), seconds / 10, device)
        steps = max(1, round(seconds / 2 * rate))
        return steps * calls_per_second(lambda: self.run(steps), seconds * 0.9, device)


class Parts(NamedTuple):
    """Parts of a training loop; on CUDA a call may return when its work is only launched."""

    agents: int  # that act and store; all of them learn
    step: Callable[[NDArray[np.int64]], object]  # their environments, by these actions [agents]
    learn: Callable[[int], None]  # the updates that are due at a step
    act: Callable[[], None]
    store: Callable[[], None]


def parts_of(engine: Engine) -> Parts:
    """The parts of an engine: learning of all agents; the others of all agents, or of the first group."""
    executor, settings = engine.executor, engine.population.settings
    if isinstance(executor, SerialExecutor | DeviceExecutor):
        step = executor.environments.step if isinstance(executor, SerialExecutor) else partial(_step_device, executor)
        learn = partial(_learn, engine.state, executor.update)
        return Parts(engine.population.size, step, learn, executor.act, executor.store)
    assert isinstance(executor, GroupExecutor)
    grouped = executor.grouped
    group = grouped.groups[0]
    learn = partial(_learn, engine.state, partial(update_due, grouped.learner, settings))

    def act() -> None:
        choose_actions(group, stores=False)
        group.buffers.action.wait_filled()

    def store() -> None:
        group.buffers.result.upload()
        group.store()
        if engine.population.device.type == "cuda":  # only then may the buffers be filled again
            torch.cuda.synchronize(engine.population.device)

    return Parts(group.population.size, group.environments.step, learn, act, store)


def _learn(state: State, update: Callable[[int], None], t: int) -> None:
    """The updates that are due at step t, which is also that of their random numbers."""
    state.step.fill_(t)
    update(t)


def _step_device(executor: DeviceExecutor, actions: NDArray[np.int64]) -> None:
    """Step environments on the device; the result stays there."""
    executor.sent_action.copy_(torch.from_numpy(actions))
    executor.send()
    executor.receive()


def calls_per_second(call: Callable[[], None], seconds: float, device: torch.device) -> float:
    """Calls per second, over about `seconds`; at least one call."""
    synchronize(device)
    began = time.perf_counter()
    count = 0
    while count == 0 or time.perf_counter() - began < seconds:
        call()
        count += 1
    synchronize(device)
    return count / (time.perf_counter() - began)


def synchronize(device: torch.device) -> None:
    """Wait for everything that was launched on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fill_with_copies(replay: Transitions) -> None:
    """Fill the rings in place with copies of what they hold; transition i starts from row i, as if no episode ended."""
    capacity, rows = replay.action.shape[1], replay.observation.shape[1]
    written = min(int(replay.written.min()), capacity)
    _repeat((replay.action, replay.reward, replay.discount), written)
    _repeat((replay.observation,), min(int(replay.rows.min()), rows))
    number = torch.arange(capacity, device=replay.row.device)
    replay.row.copy_(number.expand_as(replay.row))
    if len(replay.frame_offsets):
        replay.age.copy_(number.clamp(max=len(replay.frame_offsets) - 1).expand_as(replay.age))
    replay.written.fill_(capacity)
    replay.rows.fill_(capacity + 1)
    replay.oldest.fill_(SAMPLING_LAG)
    replay.frames_since_reset.fill_(max(len(replay.frame_offsets) - 1, 0))


def _repeat(rings: Sequence[torch.Tensor], written: int) -> None:
    """Repeat the first entries of each ring [P, length, ...], twice as many at a time."""
    for ring in rings:
        length, filled = ring.shape[1], written
        while filled < length:
            more = min(filled, length - filled)
            ring[:, filled : filled + more] = ring[:, :more]
            filled += more
