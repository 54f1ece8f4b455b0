"""Groups whose emulators have processes of their own: what they count, and how they end."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from valueshare.envs import environment_spec
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.errors import EnvironmentFailed, InvalidInput
from valueshare.nn.torsos import NetworkShape
from valueshare.population.agents import agent_table
from valueshare.population.engine import Engine, make_engine, prefers_processes
from valueshare.population.execution import cuda_driver
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.groups import Group
from valueshare.population.loop import OnStep, SerialExecutor
from valueshare.population.networks import NetworkFactory
from valueshare.population.settings import ReplayDevice, TrainingSettings
from valueshare.population.state import initial_state, make_population, state_dict
from valueshare.schema import Backend

AGENTS = 3
SETTINGS = TrainingSettings(
    steps=10**6,
    checkpoint_interval=10**6,
    eval_interval=10**6,
    hidden=(16,),
    batch_size=2,
    learning_starts=6,
    update_interval=4,
    target_update_interval=6,
    replay_capacity=20,  # so that rings wrap
    atari_protocol="machado-2018",
    delayed_actor=True,
    quantiles=4,
    target_quantiles=4,
    acting_quantiles=4,
)


class Sparse(nn.Module):
    """A network that sees a pixel of every 12 x 12: games are what takes time."""

    def __init__(self, shape: NetworkShape, k: float) -> None:
        super().__init__()
        self.output = nn.Linear(4 * 7 * 7, shape.actions)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        seen = observation[..., ::12, ::12].flatten(-3).float() / 255
        values: torch.Tensor = self.output(seen)
        return values


@contextmanager
def made(
    groups: int | None,
    *,
    processes: bool | None,
    device: str = "cpu",
    delayed: bool = True,
    algorithm: str = "dqn",
    base: TrainingSettings = SETTINGS,
    network: NetworkFactory | None = None,
    reset: bool = True,
) -> Iterator[Engine]:
    table = agent_table("ALE/Breakout-v5", algorithm, seeds=range(AGENTS))
    spec = environment_spec("ALE/Breakout-v5", protocol="machado-2018")
    settings = replace(base, delayed_actor=delayed)
    population = make_population(table, settings, spec, torch.device(device), network)
    engine = make_engine(
        population,
        initial_state(population),
        compiled=False,
        groups=groups,
        evaluates=False,
        processes=processes,
    )
    try:
        if reset:
            engine.executor.reset(range(AGENTS))
        yield engine
    finally:
        engine.close()


def run(
    engine: Engine,
    start: int,
    end: int,
    on_step: OnStep = lambda step: None,
    episodes: TrainingEpisodes | None = None,
) -> None:
    engine.executor.run(range(start, end), on_step, episodes)


def groups_of(engine: Engine) -> tuple[Group, ...]:
    assert isinstance(engine.executor, GroupExecutor)
    return engine.executor.grouped.groups


def is_asynchronous(engine: Engine) -> bool:
    return isinstance(engine.executor, GroupExecutor) and engine.executor.is_asynchronous


def numbers(engine: Engine) -> dict[str, torch.Tensor]:
    everything = {**state_dict(engine.state), **engine.state.replay._asdict()}
    return {name: torch.as_tensor(value).cpu().clone() for name, value in everything.items()}


def trained(engine: Engine) -> tuple[dict[str, torch.Tensor], TrainingEpisodes]:
    """In three pieces: one ends where an update is due, one is a single step."""
    episodes = TrainingEpisodes(AGENTS)
    for start, end in ((0, 13), (13, 14), (14, 45)):
        run(engine, start, end, episodes=episodes)
    return numbers(engine), episodes


def test_episodes_are_those_of_these_steps() -> None:
    counted: list[list[TrainingEpisodes]] = []
    # Updates are few: games that end are counted here, and they take some 150 steps.
    rare = replace(SETTINGS, update_interval=60, target_update_interval=90)
    for processes in (False, True):
        with made(2, processes=processes, base=rare, network=Sparse) as engine:
            counted.append([TrainingEpisodes(AGENTS) for _ in range(2)])
            for i, episodes in enumerate(counted[-1]):
                run(engine, 110 * i, 110 * (i + 1), episodes=episodes)
    differ = False
    for serial, asynchronous in zip(*counted, strict=True):
        assert asynchronous.episode_count.tolist() == serial.episode_count.tolist()
        # What began in an earlier stretch counts here as a whole.
        assert (asynchronous.return_sum >= serial.return_sum).all()
        differ |= bool((asynchronous.return_sum > serial.return_sum).any())
    assert differ
    assert sum(episodes.episode_count.sum() for episodes in counted[0]) > 0


def test_new_episodes_after_steps_that_were_ended() -> None:
    def stop(step: int) -> None:
        if step == 20:
            raise KeyboardInterrupt

    with made(2, processes=True, network=Sparse) as engine:
        with pytest.raises(KeyboardInterrupt):
            run(engine, 0, 10**6, stop)
        engine.executor.reset(range(AGENTS))
        fresh = [group.buffers.observation.array.copy() for group in groups_of(engine)]
        run(engine, 21, 30)
        assert int(engine.state.step) == 30
    with made(2, processes=True, network=Sparse) as engine:
        for group, observation in zip(groups_of(engine), fresh, strict=True):
            assert np.array_equal(group.buffers.observation.array, observation)


def pid_of(group: Group) -> int:
    process = group.environments
    assert isinstance(process, EnvironmentProcess)
    assert process._child is not None
    return process._child._process.pid


def killing(group: Group) -> Callable[[int], None]:
    """Kill the process of a group at step 15."""
    pid = pid_of(group)

    def poll(step: int) -> None:
        if step == 15:
            os.kill(pid, signal.SIGKILL)

    return poll


def test_a_process_that_dies_ends_the_steps() -> None:
    with made(2, processes=True, network=Sparse) as engine:
        kill_second = killing(groups_of(engine)[1])
        began = time.perf_counter()
        with pytest.raises(EnvironmentFailed, match=r"Breakout.*killed \(SIGKILL\)"):
            run(engine, 0, 10**6, kill_second)
        assert time.perf_counter() - began < 120


def test_who_waits_for_a_process_still_polls() -> None:
    with made(1, processes=True, network=Sparse) as engine:
        pid = pid_of(groups_of(engine)[0])
        polled: list[int] = []

        def poll(step: int) -> None:
            polled.append(step)
            if polled == [0, 1, 2]:
                os.kill(pid, signal.SIGSTOP)
            if len(polled) > 2 and len(set(polled[-3:])) == 1:
                os.kill(pid, signal.SIGCONT)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(engine, 0, 10**6, poll)


def test_processes_are_for_emulators_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def can(backend: Backend, replay_device: ReplayDevice | None = None) -> bool:
        return prefers_processes(backend, replay_device, torch.device("cpu"))

    assert not can("ale")  # a CPU's streams cannot wait
    monkeypatch.setattr("valueshare.population.engine.supports_stream_wait", lambda device: True)
    assert can("ale")
    assert not can("ale", "cpu")  # the host stores
    assert not can("gymnasium")


def test_an_engine_that_cannot_be_made_leaves_no_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[EnvironmentProcess] = []

    class Watched(EnvironmentProcess):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            begun.append(self)

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr("valueshare.population.engine.EnvironmentProcess", Watched)
    monkeypatch.setattr("valueshare.population.execution.groups.make_group", refused)
    with pytest.raises(RuntimeError, match="no memory"), made(2, processes=True):
        pass
    assert len(begun) == 2
    assert [process._child for process in begun] == [None, None]


def test_a_replay_on_the_host_is_not_for_processes() -> None:
    spec = environment_spec("ALE/Breakout-v5", protocol="machado-2018")
    settings = replace(SETTINGS, replay_device="cpu")
    table = agent_table("ALE/Breakout-v5", "dqn", seeds=[0])
    population = make_population(table, settings, spec, torch.device("cpu"))
    with pytest.raises(InvalidInput, match="need the replay on the GPU: leave `replay_device` out"):
        make_engine(population, initial_state(population), compiled=False, processes=True)


@pytest.mark.parametrize(
    ("asked", "asynchronous", "cores", "groups"),
    [
        (None, True, 16, 3),
        (None, True, 9, 2),
        (None, True, 2, 1),
        (2, True, 2, 2),
        (None, False, 16, 1),
    ],
)
def test_groups_are_as_many_as_suit(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, asynchronous: bool, cores: int, groups: int
) -> None:
    monkeypatch.setattr("valueshare.population.engine.available_cores", lambda: cores)
    monkeypatch.setattr("valueshare.population.engine.prefers_processes", lambda *_: asynchronous)
    with made(asked, processes=None, reset=False) as engine:
        assert is_asynchronous(engine) == asynchronous
        if asynchronous:
            assert len(groups_of(engine)) == groups  # of three agents at most as many
        else:
            assert isinstance(engine.executor, SerialExecutor)


def test_streams_wait_where_the_machine_lets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    assert not cuda_driver.supports_stream_wait(torch.device("cpu"))
    tried: list[str] = []

    class Streams:
        cuda_stream = 0

        def synchronize(self) -> None:
            tried.append("waited")

    monkeypatch.setattr(torch.cuda, "device", lambda device: made_nothing())
    monkeypatch.setattr(torch.cuda, "current_stream", Streams)

    def lock(memory: object) -> Callable[[], None]:
        tried.append("locked")
        return lambda: tried.append("unlocked")

    monkeypatch.setattr(cuda_driver, "pin_memory", lock)
    monkeypatch.setattr(cuda_driver, "stream_wait_value", lambda word, value: None)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for value, there in (("0", True), ("", True), ("1", False)):
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", value)
        assert cuda_driver.supports_stream_wait(cuda) == there
    assert tried == ["locked", "waited", "unlocked"] * 2
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not cuda_driver.supports_stream_wait(cuda)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    def refused(memory: object) -> None:
        raise RuntimeError("no memory to lock")

    monkeypatch.setattr(cuda_driver, "pin_memory", refused)
    assert not cuda_driver.supports_stream_wait(cuda)


@contextmanager
def made_nothing() -> Iterator[None]:
    yield


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_work_behind_a_word_waits_until_it_is_written() -> None:
    memory = np.zeros(4096, np.uint8)
    unlock = cuda_driver.pin_memory(memory)
    word, seen = memory[:4].view(np.uint32), torch.from_numpy(memory[64:72]).view(torch.int64)
    tensor = torch.zeros(1, dtype=torch.int64, device="cuda")
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    word[0] = 2**32 - 3  # counts in a circle
    for number in range(1, 8):
        seen[0] = 100
        cuda_driver.stream_wait_value(word, 2**32 - 3 + number)
        tensor.copy_(seen, non_blocking=True)
        done.record()
        assert not done.query()  # type: ignore[no-untyped-call]
        seen[0] = number  # seen, because it was written before the word
        word[0] = (2**32 - 3 + number) % 2**32
        done.synchronize()
        assert int(tensor) == number
    unlock()
    unlock()  # once is enough


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("groups", "delayed"), [(1, True), (3, True), (3, False)])
def test_asynchronous_groups_equal_threaded_ones_on_a_gpu(groups: int, delayed: bool) -> None:
    with made(groups, processes=False, device="cuda", delayed=delayed) as engine:
        expected, serial = trained(engine)
    with made(groups, processes=True, device="cuda", delayed=delayed) as engine:
        found, asynchronous = trained(engine)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert asynchronous.return_sum.tolist() == serial.return_sum.tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_process_that_dies_ends_the_steps_on_a_gpu() -> None:
    with made(3, processes=True, device="cuda") as engine:
        kill_second = killing(groups_of(engine)[1])
        with pytest.raises(EnvironmentFailed, match=r"killed \(SIGKILL\)"):
            run(engine, 0, 10**6, kill_second)
    torch.cuda.synchronize()
