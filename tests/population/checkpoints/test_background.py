"""Checkpoints that a thread writes while the next phase trains, as on CUDA; here on a CPU."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from five_phases import FIVE_PHASES, SHORT_EXPLORATION

from valueshare.files import DiskFull, atomic_write
from valueshare.population import memory
from valueshare.population import train as training_loop
from valueshare.population.agents import agent_table
from valueshare.population.checkpoints import saving
from valueshare.population.checkpoints.loading import finished_phase_count
from valueshare.population.spec import PopulationSpec
from valueshare.population.train import TrainingResult, train_population
from valueshare.records import CheckpointPaths
from valueshare.replay import transitions
from valueshare.signals import Stopped

AGENTS = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0], agent_settings=SHORT_EXPLORATION)
SECONDS = 60.0  # at most, that one thread waits for the other


def train(folder: Path, **options: Any) -> TrainingResult:
    return train_population(AGENTS, FIVE_PHASES, directory=folder, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def after_phases(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """The files after each phase of a run whose checkpoints were written between its phases."""
    folder, files = tmp_path_factory.mktemp("expected"), []
    train(folder, on_phase=lambda report: files.append(contents(folder)))
    return files


@pytest.fixture(scope="module")
def expected(after_phases: list[dict[str, bytes]]) -> dict[str, bytes]:
    return after_phases[-1]


@pytest.fixture
def _in_background(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(training_loop, "writes_in_background", lambda device, env, replay: True)
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


class DelayedWrite:
    """Delays the write of a file until training has come to a step, or until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: str, step: int) -> None:
        self._file, self._step, self._write = file, step, atomic_write
        self.reached, self.released = threading.Event(), threading.Event()
        monkeypatch.setattr(saving, "atomic_write", self._delayed)

    def on_step(self, step: int) -> None:
        if step >= self._step:
            self.reached.set()

    def _delayed(self, path: Path, chunks: Any) -> str:
        if path.name.startswith(self._file):
            assert threading.current_thread() is not threading.main_thread()
            assert self.reached.wait(SECONDS)
            assert self.released.wait(SECONDS)
        return self._write(path, chunks)


@pytest.mark.usefixtures("_in_background")
@pytest.mark.parametrize("file", ["replay-000001", "state-000001", "checkpoint-000001"])
def test_the_files_are_those_of_a_run_that_waits(
    tmp_path: Path, after_phases: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Phase 1 is written when phase 2, steps 60 to 90, has changed weights and overwritten replay."""
    delayed, phases = DelayedWrite(monkeypatch, file, 80), []
    delayed.released.set()

    def on_phase(report: training_loop.PhaseReport) -> None:
        """Reported when it is published, by the thread that trains, and before anything of the next one is written."""
        assert threading.current_thread() is threading.main_thread()
        assert contents(tmp_path) == after_phases[report.phase]
        phases.append(report.phase)

    trained = train(tmp_path, on_step=delayed.on_step, on_phase=on_phase)
    assert phases == [0, 1, 2, 3, 4]
    assert trained.records["step"].unique().sort().to_list() == [0, 30, 60, 90, 120, 150]


@pytest.mark.usefixtures("_in_background")
def test_there_is_one_copy_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where phase 1 is not written when phase 2 ends; and it is as large as the memory that was planned for it."""
    phase_2_ended = threading.Event()
    copies: list[weakref.ref[torch.Tensor]] = []
    sizes: list[int] = []
    alive: list[int] = []
    original = training_loop._host_copies

    def count() -> int:
        return sum(copy() is not None for copy in copies)

    def host_copies(tensors: Any) -> Any:
        patience = time.monotonic() + 0.1  # the thread drops its arguments a moment after its result is there
        while count() and time.monotonic() < patience:
            time.sleep(0.001)
        alive.append(count())
        made = original(tensors)
        copies.extend(map(weakref.ref, made.values()))
        return made

    def save(paths: Any, phase: int, identity: Any, tensors: Any, records: Any, added: Any, groups: Any) -> None:
        columns = [] if added is None else added.columns.values()
        sizes.append(sum(tensor.nbytes for tensor in (*tensors.values(), *columns)))
        if phase == 1:
            assert phase_2_ended.wait(SECONDS)
            time.sleep(0.5)
        saving.save(paths, phase, identity, tensors, records, added, groups)

    monkeypatch.setattr(training_loop, "_host_copies", host_copies)
    monkeypatch.setattr(training_loop, "save", save)
    train(tmp_path, on_evaluation=lambda step: phase_2_ended.set() if step == 90 else None)
    assert alive == [0] * 5
    assert len(copies) > 5
    spec = PopulationSpec("population-0", AGENTS, FIVE_PHASES, "envpool")
    assert 2 * memory.estimate(spec).checkpoint_copy_per_agent == pytest.approx(max(sizes), rel=0.05)


# Trains, and is killed in step 80, while phase 1 is being written: at the file that is its argument.
KILLED = """
import os, signal, sys, time
from pathlib import Path
import test_background as tests
from valueshare.population import train as training_loop
from valueshare.population.checkpoints import saving

write, folder, file, steps = saving.atomic_write, Path(sys.argv[1]), sys.argv[2], []

def write_or_die(path, chunks):
    if path.name.startswith(file):
        while not steps or steps[-1] < 80:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)
    return write(path, chunks)

saving.atomic_write = write_or_die
training_loop.writes_in_background = lambda device, env, replay: True
tests.train(folder, on_step=steps.append)
"""


@pytest.mark.parametrize("file", [pytest.param("replay-000001", marks=pytest.mark.slow), "checkpoint-000001"])
def test_killed_between_the_copy_and_its_publication(tmp_path: Path, expected: dict[str, bytes], file: str) -> None:
    """The phase that was being written and the one in progress are run again; neither has left records that count."""
    modules = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": modules, "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), file], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert finished_phase_count(CheckpointPaths(tmp_path, "population-0"), 30) == 1
    phases: list[int] = []
    trained = train(tmp_path, on_phase=lambda report: phases.append(report.phase))
    assert phases == [1, 2, 3, 4]
    assert contents(tmp_path) == expected
    assert trained.records["step"].unique().sort().to_list() == [0, 30, 60, 90, 120, 150]


@pytest.mark.usefixtures("_in_background")
@pytest.mark.parametrize("phase", [1, 4])
def test_a_full_disk_is_raised_where_the_agents_train(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, phase: int
) -> None:
    """In the next phase, or at the end of the run if there is none."""
    sync, steps, phases = os.fsync, [0], [-1]

    def full(handle: int) -> None:
        if f"state-{phase:06d}" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull, match="all checkpoints are intact"):
            train(tmp_path, on_step=steps.append, on_phase=lambda report: phases.append(report.phase))
    assert 30 * (phase + 1) <= steps[-1] <= 30 * (phase + 2)
    assert phases[-1] == phase - 1
    assert not list(tmp_path.glob(f"checkpoints/*/*-{phase:06d}*"))
    train(tmp_path)
    assert contents(tmp_path) == expected


@pytest.mark.usefixtures("_in_background")
@pytest.mark.parametrize("error", [None, RuntimeError("of the environment")])
def test_a_run_that_ends_early_waits_for_the_checkpoint(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Where it is asked to stop, and where something fails: the finished phase is published and reported."""
    delayed, phases = DelayedWrite(monkeypatch, "state-000001", 80), []

    def ended() -> bool:
        if not delayed.reached.is_set():
            return False
        threading.Timer(0.2, delayed.released.set).start()
        if error is not None:
            raise error
        return True

    options: dict[str, Any] = {"on_step": delayed.on_step, "should_stop": ended}
    options["on_phase"] = lambda report: phases.append(report.phase)
    if error is None:
        stopped = train(tmp_path, **options)
        assert not stopped.finished
        assert stopped.records["step"].max() == 60
    else:
        with pytest.raises(RuntimeError, match="of the environment"):
            train(tmp_path, **options)
    assert phases == [0, 1]
    assert finished_phase_count(CheckpointPaths(tmp_path, "population-0"), 30) == 2
    train(tmp_path)
    assert contents(tmp_path) == expected


@pytest.mark.usefixtures("_in_background")
def test_a_command_that_is_ended_at_once_finishes_the_file_and_reports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 10 seconds after a signal: no thread may write to a run that another process resumes."""
    delayed, phases = DelayedWrite(monkeypatch, "state-000001", 80), []

    def on_step(step: int) -> None:
        delayed.on_step(step)
        if step == 80:
            threading.Timer(0.2, delayed.released.set).start()
            raise Stopped

    with pytest.raises(Stopped):
        train(tmp_path, on_step=on_step, on_phase=lambda report: phases.append(report.phase))
    assert phases == [0]
    assert finished_phase_count(CheckpointPaths(tmp_path, "population-0"), 30) == 2
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize(
    ("device", "backend", "frames", "in_background"),
    [
        ("cpu", "envpool", False, False),
        ("cuda", "envpool", False, True),
        ("cuda", "ale", True, False),
        ("cuda", "jax", False, False),
    ],
)
def test_where_checkpoints_are_written_in_the_background(
    monkeypatch: pytest.MonkeyPatch, device: str, backend: str, frames: bool, in_background: bool
) -> None:
    monkeypatch.setattr(transitions, "holds_frames", lambda replay: frames)
    env: Any = SimpleNamespace(backend=backend)
    replay: Any = None
    assert training_loop.writes_in_background(torch.device(device), env, replay) == in_background
