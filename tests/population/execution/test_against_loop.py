"""Every executor against the plain loop, to the bit: state, replay and episodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import torch
from slow_environments import SlowEnvironments

from valueshare.envs import environment_spec
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.agents import agent_table
from valueshare.population.engine import Engine, make_engine
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.loop import Executor, SerialExecutor
from valueshare.population.settings import ReplayDevice, TrainingSettings
from valueshare.population.state import initial_state, make_population, state_dict

CHAIN, ATARI = "tests/Chain-v0", "ALE/Breakout-v5"
AGENTS = 4
STEPS = {CHAIN: 45, ATARI: 30}
SETTINGS = TrainingSettings(
    steps=10**6,
    checkpoint_interval=10**6,
    eval_interval=10**6,
    hidden=(16, 8),
    batch_size=2,
    learning_starts=6,
    update_interval=4,
    target_update_interval=6,
    replay_capacity=20,  # so that rings wrap
    quantiles=4,
    target_quantiles=4,
    acting_quantiles=4,
)


class Learning(NamedTuple):
    """The problem to learn: the same for the loop and for the executor that is compared with it."""

    env: str
    algorithm: str = "dqn"
    delayed_actor: bool = False
    gradient_steps: int = 1


class Execution(NamedTuple):
    """How it is executed."""

    groups: int
    processes: bool = False
    replay_device: ReplayDevice | None = None


Numbers = dict[str, torch.Tensor]
SERIAL = Execution(1)


@contextmanager
def engine_of(learning: Learning, execution: Execution) -> Iterator[Engine]:
    atari = learning.env == ATARI
    settings = replace(
        SETTINGS,
        hidden=SETTINGS.hidden[:1] if atari else SETTINGS.hidden,
        atari_protocol="machado-2018" if atari else None,
        delayed_actor=learning.delayed_actor,
        gradient_steps=learning.gradient_steps,
        replay_device=execution.replay_device,
    )
    table = agent_table(learning.env, learning.algorithm, seeds=range(AGENTS))
    spec = environment_spec(learning.env, protocol=settings.atari_protocol)
    population = make_population(table, settings, spec, torch.device("cpu"))
    engine = make_engine(
        population,
        initial_state(population),
        compiled=False,
        groups=execution.groups,
        evaluates=False,
        processes=execution.processes,
    )
    try:
        engine.executor.reset(range(AGENTS))
        yield engine
    finally:
        engine.close()


def trained(learning: Learning, engine: Engine, executor: Executor) -> tuple[Numbers, TrainingEpisodes]:
    """In three pieces: one ends where an update is due, one is a single step."""
    episodes = TrainingEpisodes(AGENTS)
    for start, end in ((0, 13), (13, 14), (14, STEPS[learning.env])):
        executor.run(range(start, end), lambda step: None, episodes)
    everything = {**state_dict(engine.state), **engine.state.replay._asdict()}
    return {name: torch.as_tensor(value).clone() for name, value in everything.items()}, episodes


@cache
def trained_by_the_loop(learning: Learning) -> tuple[Numbers, TrainingEpisodes]:
    with engine_of(learning, SERIAL) as engine:
        assert isinstance(engine.executor, SerialExecutor)
        return trained(learning, engine, engine.executor)


def with_late_groups(executor: Executor) -> Executor:
    """Groups in threads arrive in another order every time."""
    if not isinstance(executor, GroupExecutor) or executor.is_asynchronous:
        return executor
    groups = (
        group._replace(environments=SlowEnvironments(group, i)) for i, group in enumerate(executor.grouped.groups)
    )
    return GroupExecutor(executor.grouped._replace(groups=tuple(groups)))


DELAYED = Learning(CHAIN, delayed_actor=True)
CASES = {
    "two groups in threads": (Learning(CHAIN), Execution(2)),
    "three groups in threads": (Learning(CHAIN), Execution(3)),
    "a thread per agent": (Learning(CHAIN), Execution(4)),
    "threads, iqn": (Learning(CHAIN, "iqn"), Execution(2)),
    "threads, delayed actor": (DELAYED, Execution(2)),
    "threads, several gradient steps": (Learning(CHAIN, gradient_steps=3), Execution(2)),
    "threads, delayed actor, several gradient steps": (DELAYED._replace(gradient_steps=3), Execution(2)),
    "threads, frames": (Learning(ATARI), Execution(2)),
    "replay on the host": (Learning(CHAIN), Execution(2, replay_device="cpu")),
    "replay on the disk": (Learning(CHAIN), Execution(2, replay_device="disk")),
    "replay on the host, the loop": (Learning(CHAIN), Execution(1, replay_device="cpu")),
    "replay on the host, iqn": (Learning(CHAIN, "iqn"), Execution(2, replay_device="cpu")),
    "replay on the host, delayed actor, several gradient steps": (
        DELAYED._replace(gradient_steps=3),
        Execution(2, replay_device="cpu"),
    ),
    "one process": (Learning(ATARI, delayed_actor=True), Execution(1, processes=True)),
    "two processes": (Learning(ATARI), Execution(2, processes=True)),
    "two processes, delayed actor": (Learning(ATARI, delayed_actor=True), Execution(2, processes=True)),
    "three processes, delayed actor": (Learning(ATARI, delayed_actor=True), Execution(3, processes=True)),
    "processes, iqn, delayed actor": (Learning(ATARI, "iqn", delayed_actor=True), Execution(2, processes=True)),
    "processes, delayed actor, several gradient steps": (
        Learning(ATARI, delayed_actor=True, gradient_steps=2),
        Execution(2, processes=True),
    ),
    "processes, dueling-dqn, delayed actor": (
        Learning(ATARI, "dueling-dqn", delayed_actor=True),
        Execution(2, processes=True),
    ),
}
# Variants of others: more groups, or another algorithm.
SLOW = (
    "three groups in threads",
    "a thread per agent",
    "one process",
    "three processes, delayed actor",
    "processes, iqn, delayed actor",
    "processes, dueling-dqn, delayed actor",
    "processes, delayed actor, several gradient steps",
)


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in SLOW else []) for c in CASES])
def test_every_executor_equals_the_plain_loop_to_the_bit(case: str) -> None:
    learning, execution = CASES[case]
    expected, serial = trained_by_the_loop(learning)
    with engine_of(learning, execution) as engine:
        if execution.processes:
            assert isinstance(engine.executor, GroupExecutor)
            assert engine.executor.is_asynchronous
        found, episodes = trained(learning, engine, with_late_groups(engine.executor))
    assert expected["updates"] > 0
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert episodes.episode_count.tolist() == serial.episode_count.tolist()
    assert episodes.return_sum.tolist() == serial.return_sum.tolist()
