"""Environments in a process of their own: the same steps, and how they end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from valueshare.envs import environment_spec, make_environments
from valueshare.envs.base import Environments
from valueshare.envs.processes import environments as parent
from valueshare.envs.processes.environments import EnvironmentProcess, wait_until_idle
from valueshare.envs.processes.memory import SharedArrays, fence, shared_fields
from valueshare.envs.step_arrays import StepArrays
from valueshare.errors import EnvironmentFailed, InvalidInput

MIX = ["Pong", "Breakout", "Pong"]
SHORT = environment_spec(MIX, protocol="machado-2018")


def here(names: list[str], protocol: str = "machado-2018") -> Environments:
    return make_environments(names, len(names), protocol=protocol, lockstep=True)


@pytest.fixture
def pong() -> Iterator[EnvironmentProcess]:
    spec = environment_spec("Pong", protocol="machado-2018")
    made = EnvironmentProcess(["Pong"], spec, threads=1, protocol="machado-2018")
    yield made
    made.close()


def test_steps_are_those_of_environments_here() -> None:
    games = ["Breakout", "Breakout"]
    spec = environment_spec(games, protocol="machado-2018")
    apart = EnvironmentProcess(games, spec, threads=2, protocol="machado-2018")
    own = here(games)
    rng, ended = np.random.default_rng(0), 0
    try:
        for seeds, steps in (([1, 2**64 - 1], 250), ([3, 4], 50)):  # and again, in the same process
            assert np.array_equal(apart.reset(seeds), own.reset(seeds))
            for _ in range(steps):
                actions = rng.integers(spec.actions, size=2)
                found, expected = apart.step(actions), own.step(actions)
                for name, value in expected._asdict().items():
                    assert np.array_equal(getattr(found, name), value), name
                ended += int((expected.terminated | expected.truncated).sum())
    finally:
        apart.close()
    assert ended > 0  # so that final observations and starts were compared


@pytest.mark.parametrize(
    ("games", "protocol", "steps"), [(MIX, "machado-2018", 50), (["Breakout"], "nature-2015", 200)]
)
def test_games_are_mixed_and_lives_end_episodes_as_here(games: list[str], protocol: str, steps: int) -> None:
    spec = environment_spec(games, protocol=protocol)
    apart = EnvironmentProcess(games, spec, threads=2, protocol=protocol)
    own = here(games, protocol)
    seeds, ended = range(len(games)), 0
    try:
        assert np.array_equal(apart.reset(seeds), own.reset(seeds))
        for i in range(steps):
            actions = [i % 4] * len(games)
            found, expected = apart.step(actions), own.step(actions)
            for name, value in expected._asdict().items():
                assert np.array_equal(getattr(found, name), value), name
            ended += int(expected.terminated.sum())
    finally:
        apart.close()
    assert (ended > 0) == (protocol == "nature-2015")


def test_the_arrays_hold_a_step_and_what_was_finished_is_counted(pong: EnvironmentProcess) -> None:
    own = here(["Pong"])
    own.reset([7])
    pong.reset([7])
    arrays, reward = pong.memory.arrays, 0.0
    for _ in range(900):  # Pong of 21 lost points ends before
        result = own.step([0])
        pong.step([0])
        reward += float(result.reward[0])
        for name in ("observation", "reward", "terminated"):
            assert np.array_equal(arrays[name], getattr(result, name))
        if result.terminated[0]:
            break
    assert arrays["ended"].tolist() == [True]
    assert np.array_equal(arrays["final_observation"], result.final_observation)
    assert arrays["episode_count"].tolist() == [1]
    assert arrays["return_sum"].tolist() == [reward] == [-21.0]
    assert int(arrays["stepped"][0]) == int(arrays["counted"][0]) == pong.requested
    pong.reset([7])
    assert arrays["episode_count"].tolist() == [0]


def test_it_steps_whenever_there_are_actions(pong: EnvironmentProcess) -> None:
    pong.reset([0])
    for steps in (1, 2, 3):
        pong.requested += 1
        pong.memory.arrays["action"][0] = 2
        pong.wait(steps)
        assert pong.memory.arrays["action"].tolist() == [-1]
    time.sleep(0.05)  # so long that it looks now and then only
    assert int(pong.memory.arrays["stepped"][0]) == 3
    pong.step([3])
    assert pong.requested == 4


def test_one_that_rests_takes_no_actions_until_it_is_reset(pong: EnvironmentProcess) -> None:
    pong.reset([0])
    pong.step([0])
    pong.pause()
    pong.memory.arrays["action"][0] = 2
    time.sleep(0.1)
    assert pong.memory.arrays["action"].tolist() == [2]
    assert int(pong.memory.arrays["stepped"][0]) == 1
    pong.reset([0])
    assert pong.memory.arrays["action"].tolist() == [-1]
    pong.step([0])
    assert pong.requested == 2


def test_a_reset_drops_a_step_under_way(pong: EnvironmentProcess) -> None:
    first = pong.reset([0])
    pong.send([3])
    assert np.array_equal(pong.reset([0]), first)
    own = here(["Pong"])
    own.reset([0])
    assert np.array_equal(pong.step([2]).observation, own.step([2]).observation)


def test_steps_count_in_a_circle(pong: EnvironmentProcess) -> None:
    pong.reset([0])
    counted = pong.memory.arrays["counted"]
    counted[0] = 1
    pong.wait(2**32 + 1)
    counted[0] = 2**32 - 1
    pong.wait(2**32 - 1)
    waited: list[int] = []

    def later() -> None:
        waited.append(1)
        counted[0] = 0

    pong.wait(2**32, later)
    assert waited == [1]


def test_orders_that_make_no_sense_are_refused(pong: EnvironmentProcess) -> None:
    pong.reset([0])
    with pytest.raises(RuntimeError, match="receive follows send"):
        pong.receive()
    pong.send([0])
    with pytest.raises(RuntimeError, match="send follows"):
        pong.send([0])
    pong.receive()
    with pytest.raises(RuntimeError, match="step together"):
        pong.send([0], np.ones(1, np.bool_))
    with pytest.raises(InvalidInput, match="2 seeds for 1 environments"):
        pong.reset([1, 2])


def test_a_process_that_is_killed_is_told_of(pong: EnvironmentProcess) -> None:
    pong.reset([0])
    os.kill(pid_of(pong), signal.SIGKILL)
    pong.send([0])
    with pytest.raises(EnvironmentFailed, match=r"Pong.*killed"):
        pong.receive()
    with pytest.raises(EnvironmentFailed, match="killed"):
        pong.reset([0])
    assert pong.is_idle()  # whoever waits for the step may continue
    assert int(pong.memory.arrays["stepped"][0]) == pong.requested == 1


def test_actions_that_do_not_exist_end_it(pong: EnvironmentProcess) -> None:
    pong.reset([0])
    pong.send([18])
    with pytest.raises(EnvironmentFailed, match="actions are from 0 to 17"):
        pong.receive()


@pytest.fixture
def three() -> Iterator[list[EnvironmentProcess]]:
    spec = environment_spec("Pong", protocol="machado-2018")
    made = [EnvironmentProcess(["Pong"], spec, threads=1, protocol="machado-2018") for _ in range(3)]
    for process in made:
        process.reset([0])
    yield made
    for process in made:
        process.close()


def stepped(processes: list[EnvironmentProcess]) -> list[int]:
    return [int(process.memory.arrays["stepped"][0]) for process in processes]


def test_those_that_do_not_answer_are_given_up_together(
    three: list[EnvironmentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "END_SECONDS", 0.3)
    healthy, dead, stopped = three
    os.kill(pid_of(dead), signal.SIGKILL)
    os.kill(pid_of(stopped), signal.SIGSTOP)
    for process in three:
        process.send([0])
    began = time.perf_counter()
    wait_until_idle(three)
    assert time.perf_counter() - began < 60
    assert stepped(three) == [1, 1, 1]
    assert healthy.receive().reward.shape == (1,)
    for process in (dead, stopped):
        with pytest.raises(EnvironmentFailed, match="was ended"):
            process.reset([0])


def test_a_step_that_waits_for_one_that_died_is_waited_for(
    three: list[EnvironmentProcess],
) -> None:
    # As groups wait for each other at an update: actions come when the others' steps are made.
    first, second, dead = three
    os.kill(pid_of(dead), signal.SIGKILL)
    for process in three:
        process.requested += 1

    def act_when_all_have_stepped() -> None:
        while stepped([dead]) != [1]:
            time.sleep(0.01)
        for process in (first, second):
            process.memory.arrays["action"][0] = 0

    thread = threading.Thread(target=act_when_all_have_stepped)
    thread.start()
    wait_until_idle(three)
    thread.join()
    assert stepped(three) == [1, 1, 1]
    assert first._child is not None
    assert second._child is not None


def test_who_no_longer_wants_to_wait_leaves_nothing_that_waits(
    three: list[EnvironmentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, sleeps = time.sleep, iter([False, True])

    def interrupted(seconds: float) -> None:
        if next(sleeps, False):
            raise KeyboardInterrupt
        sleep(seconds)

    os.kill(pid_of(three[2]), signal.SIGSTOP)
    for process in three:
        process.requested += 1
    monkeypatch.setattr("valueshare.envs.processes.environments.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wait_until_idle(three)
    assert stepped(three) == [1, 1, 1]


def test_a_process_that_cannot_begin_leaves_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[SharedArrays] = []

    def refused(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(parent, "Child", refused)
    monkeypatch.setattr(SharedArrays, "close", lambda self: closed.append(self))
    with pytest.raises(OSError, match="no more processes"):
        EnvironmentProcess(MIX, SHORT, threads=2, protocol="machado-2018")
    assert len(closed) == 1


def test_it_ends_with_its_parent() -> None:
    script = """
import sys, time
from valueshare.envs import environment_spec
from valueshare.envs.processes.environments import EnvironmentProcess, wait_until_idle
made = EnvironmentProcess(["Pong"], environment_spec("Pong"), threads=1, protocol="machado-2018")
made.reset([0])
print(made._child._process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    until = time.perf_counter() + 60
    while Path(f"/proc/{child}").exists() and time.perf_counter() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists() or "Z" in state_of(child)


def test_two_views_of_one_memory() -> None:
    fields = shared_fields(environment_spec("Pong"), 2)
    one = SharedArrays(fields)
    other = SharedArrays(fields, os.dup(one.descriptor))
    one.arrays["reward"][:] = [1.5, -2.0]
    assert other.arrays["reward"].tolist() == [1.5, -2.0]
    assert {array.ctypes.data % 64 for array in one.arrays.values()} == {0}
    assert list(one.arrays)[:5] == list(StepArrays._fields)
    one.close()
    other.close()
    assert one.arrays["reward"].tolist() == [1.5, -2.0]


def test_what_a_process_is_told_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Noted:
        def __init__(self, module: str, text: str, files: list[int]) -> None:
            told.append((module, json.loads(text), files))

        kill = close = lambda self: None

    monkeypatch.setattr(parent, "Child", Noted)
    made = EnvironmentProcess(MIX, SHORT, threads=2, protocol="machado-2018")
    ((module, text, files),) = told
    assert module == "valueshare.envs.processes.child"
    assert files == [text["memory"]] == [made.memory.descriptor]
    assert text["environments"]["env_ids"] == MIX
    made.close()


def pid_of(process: EnvironmentProcess) -> int:
    assert process._child is not None
    return process._child._process.pid


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_many_threads_fence_at_once() -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(2_000):
                fence()
        except RuntimeError as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert not any(thread.is_alive() for thread in threads)
    assert failed == []
