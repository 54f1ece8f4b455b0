"""Ray runs without a cluster: locks, locations, progress, hours, and refusals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from valueshare import result_files
from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.population import memory
from valueshare.population.phase import records_schema
from valueshare.records import CheckpointPaths, read_progress
from valueshare.runs import locks
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.launchers import ExecutionOptions, ProgressHooks
from valueshare.runs.planning import make_plan
from valueshare.runs.progress import ProgressFile, reset_progress
from valueshare.runs.workers import cluster, ray, tasks
from valueshare.runs.workers.cluster import Node, Slot, slot_of
from valueshare.runs.workers.tasks import Task, relay_progress
from valueshare.schema import Progress

Cli = Callable[..., tuple[int, str, str]]

SMALL_NODE, BIG_NODE = Node("a", "10.0.0.1", 4, 0, 8e9), Node("b", "10.0.0.2", 16, 4, 64e9)
PLAN = make_plan("CartPole-v1", ["ib-dqn", "double-dqn"], k=[0, 8], seeds=2, steps=1_000)


def test_a_lock_does_not_outlive_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = "import sys, time; from pathlib import Path; from valueshare.runs.locks import locked"
    program += "\nwith locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert locks.is_taken(path)
        with pytest.raises(locks.LockHeld), locks.locked(path, wait_seconds=0.3):
            pass
        holder.send_signal(signal.SIGKILL)
        with locks.locked(path, wait_seconds=10):  # the file is still there, and free
            assert locks.is_taken(path)
        assert not locks.is_taken(path)
    finally:
        holder.kill()
        holder.communicate()


def test_a_filesystem_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(37, os.strerror(37))  # ENOLCK

    monkeypatch.setattr("fcntl.flock", none)
    with (
        pytest.raises(InvalidInput, match=r"filesystem without locks \(no locks available\)"),
        locks.lock_run(tmp_path),
    ):
        pass


def test_what_a_population_is_given() -> None:
    nodes = [SMALL_NODE, BIG_NODE]
    assert slot_of(LauncherOptions(), "cpu", nodes) == Slot(1, 0)
    assert slot_of(LauncherOptions("ray", ray_cpus=5), "cpu", nodes) == Slot(5, 0)
    # 16 CPUs and 4 GPUs: 4 CPUs go with a GPU, 2 with half of one, 8 with two.
    assert slot_of(LauncherOptions(), "cuda", nodes) == Slot(4, 1)
    assert slot_of(LauncherOptions("ray", ray_gpus=0.5), "cuda", nodes) == Slot(2, 0.5)
    assert slot_of(LauncherOptions("ray", ray_gpus=2), "cuda", nodes) == Slot(8, 2)
    assert [Slot(4, 1).count_on(node) for node in nodes] == [0, 4]
    assert [Slot(3, 0).count_on(node) for node in nodes] == [1, 5]
    assert Slot(2, 0.5).count_on(BIG_NODE) == 8
    with pytest.raises(InvalidInput, match="no node of the cluster has more than 4 GPUs"):
        slot_of(LauncherOptions("ray", ray_gpus=5), "cuda", nodes)
    with pytest.raises(InvalidInput, match="that has the GPUs has more than 16 CPUs"):
        slot_of(LauncherOptions("ray", ray_cpus=17), "cuda", nodes)
    with pytest.raises(InvalidInput, match="the cluster has no GPU"):
        slot_of(LauncherOptions(), "cuda", [SMALL_NODE])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_counts_every_attempt(tmp_path: Path) -> None:
    clock = Clock()
    assert read_progress(tmp_path, "a") == Progress()
    first = ProgressFile(tmp_path, "a", clock)
    clock.now = 10.0
    assert first.is_due()
    first.write(100, 1)
    assert not first.is_due()
    clock.now = 14.0
    first.write(130)  # within the second phase, and then lost
    assert read_progress(tmp_path, "a") == Progress(130, 1, 14.0, 1)
    second = ProgressFile(tmp_path, "a", clock)
    clock.now = 20.0
    second.write(200, 2)
    assert read_progress(tmp_path, "a") == Progress(200, 2, 20.0, 2)  # 14 s and 6 s
    (tmp_path / "progress" / "a.json").write_text("{")
    assert read_progress(tmp_path, "a") == Progress()


def test_evaluations_have_the_time_of_all_sessions_and_not_the_time_between(tmp_path: Path) -> None:
    clock = Clock()
    first = ProgressFile(tmp_path, "a", clock)
    clock.now = 10.0
    first.write(100, 1, evaluated=True)
    clock.now = 12.0
    first.write(150, 2)  # a phase without an evaluation
    clock.now = 15.0
    first.write(200, 3, evaluated=True)  # whose checkpoint is lost
    clock.now = 1_000.0  # nothing runs: not counted
    second = ProgressFile(tmp_path, "a", clock)
    clock.now = 1_004.0
    second.write(200, 3, evaluated=True)
    assert read_progress(tmp_path, "a").evaluations == ((100, 10.0), (200, 15.0 + 4.0))
    reset_progress(tmp_path, "a", 150, 2)
    assert read_progress(tmp_path, "a") == Progress(150, 2, 19.0, 2, ((100, 10.0),))


def test_the_driver_passes_on_what_workers_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PLAN.populations["population-0"]
    spec = replace(spec, settings=PLAN.settings["CartPole-v1"])
    heard: list[Any] = []
    hooks = ProgressHooks(
        on_step=lambda name, step: heard.append((name, step)),
        on_phase=lambda name, step, records: heard.append((name, step, records.height)),
    )

    def written(**values: Any) -> None:
        (tmp_path / "progress").mkdir(exist_ok=True)
        path = tmp_path / "progress" / f"{spec.name}.json"
        path.write_text(json.dumps(asdict(Progress(**values))))

    progress = Progress()
    progress = relay_progress(tmp_path, spec, progress, hooks)
    assert heard == []  # nothing is there yet
    written(step=5, seconds=1.0, attempts=1)
    progress = relay_progress(tmp_path, spec, progress, hooks)
    assert heard == [(spec.name, 5)]
    end = spec.settings.phase_end(0)
    written(step=end, phases=0, seconds=2.0, attempts=1)  # it evaluates, at the same step
    progress = relay_progress(tmp_path, spec, progress, hooks)
    heard.clear()
    written(step=end, phases=1, seconds=3.0, attempts=1)
    before = progress
    progress = relay_progress(tmp_path, spec, progress, hooks)
    assert progress == before  # the records cannot be seen from here yet
    (tmp_path / "records").mkdir()
    records_schema().to_frame().clear(1).write_parquet(CheckpointPaths(tmp_path, spec.name).records(0))
    with monkeypatch.context() as short:
        short.setattr(result_files, "free_bytes", lambda: 0)
        assert relay_progress(tmp_path, spec, progress, hooks) == before  # there is no memory for them now
    assert heard == []
    progress = relay_progress(tmp_path, spec, progress, hooks)
    assert heard == [(spec.name, end, 1)]
    assert relay_progress(tmp_path, spec, progress, hooks) == progress
    assert len(heard) == 1
    written(step=end, phases=1, seconds=3.0, attempts=2)  # it is resumed from this checkpoint
    relay_progress(tmp_path, spec, progress, hooks)
    assert heard[1:] == [(spec.name, end)]


def test_expected_hours_by_hand(tmp_path: Path) -> None:
    # A resumed run goes by its own speed: population-0 made 500 of 1,000 steps in 3,600 s, 3,600 s
    # are left; population-1 250 in 3,600 s: 10,800 s. Side by side 3 hours, 4 of workers.
    for name, step in (("population-0", 500), ("population-1", 250)):
        (tmp_path / "progress").mkdir(exist_ok=True)
        values = asdict(Progress(step, 1, 3_600.0, 1))
        (tmp_path / "progress" / f"{name}.json").write_text(json.dumps(values))
    two = Node("a", "10.0.0.1", 2, 0, 8e9)
    launcher = ray.RayLauncher(None, LauncherOptions(launcher="ray"), [two])
    line = launcher.estimate(PLAN, tmp_path, measure=False)
    assert line == "expected: 3:00:00, 4:00:00 of workers, without evaluations"
    one = ray.RayLauncher(None, LauncherOptions(launcher="ray"), [two._replace(cpus=1.0)])
    assert one.estimate(PLAN, tmp_path, measure=False) == line.replace("3:00:00", "4:00:00")
    gpu = ray.RayLauncher(None, LauncherOptions("ray", ray_gpus=0.5), [two._replace(gpus=1.0)])
    on_gpu = gpu.estimate(replace(PLAN, device="cuda"), tmp_path, measure=False)
    assert on_gpu == line.replace("4:00:00 of workers", "2.00 GPU-hours")  # half a GPU for 4 hours
    assert launcher.time_taken(PLAN, tmp_path, 7_200.0) == "took: 2:00:00, 2:00:00 of workers"


def test_populations_are_cut_to_fit_a_node() -> None:
    whole = PLAN.populations["population-0"]
    need = memory.estimate(whole)
    # Room for 3 of the 4 agents of the first population; the second has 2.
    cpu = import_module("torch").device("cpu")
    room = (memory.process_bytes(need._replace(agents=3), cpu) + need.device_bytes(cpu).per_agent / 2) / memory.USABLE
    launcher = ray.RayLauncher(None, LauncherOptions(), [Node("a", "10.0.0.1", 1, 0, room)])
    assert launcher.split(PLAN).chunks == {"population-0": 2}
    least = launcher.split(replace(PLAN, chunks={"population-1": 2}))
    assert least.chunks == {"population-0": 2, "population-1": 2}
    tiny = ray.RayLauncher(None, LauncherOptions(), [Node("a", "10.0.0.1", 1, 0, 1e6)])
    with pytest.raises(InvalidInput, match="one agent of CartPole-v1 needs"):
        tiny.split(PLAN)


def test_a_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MEASURE_SECONDS", 0.3)
    spec = list(PLAN.populations.values())[1]
    began = time.perf_counter()
    rate = tasks.measure_speed(json.loads(tasks.speed_request(PLAN, spec.name, 1)))
    seconds = time.perf_counter() - began
    assert 0 < rate < 1e6
    # It made at least the steps of the measured time: 2 agents, and a step at most a minute.
    assert rate > 2 / 60
    assert seconds > 0.3


def test_a_task_is_text() -> None:
    task = Task("/shared/run", "population-0-1", "cuda", 4, 2)
    assert msgspec.json.decode(task.to_json(), type=Task) == task


def run(cli: Cli, tmp_path: Path, *words: str) -> str:
    code, _, err = cli(*("train", "--env", "CartPole-v1", "--launcher", "ray", "--out", tmp_path / "run", *words))
    assert (code, err.count("\n")) == (2, 1)
    assert not (tmp_path / "run").exists()
    return err


def test_ray_is_not_installed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(cluster, "import_module", missing)
    assert f"Ray is not installed: {install_command('ray')}" in run(cli, tmp_path)


def test_no_cluster_at_the_address(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    assert "no Ray cluster at 127.0.0.1:1:" in run(cli, tmp_path, "--ray-address", "127.0.0.1:1")
    assert time.monotonic() - began < 120  # most of it loads libraries; Ray would try for longer
    for wrong in ("nowhere", "ray://host:1", "host:port"):
        assert "write auto or HOST:PORT" in run(cli, tmp_path, "--ray-address", wrong)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # what `auto` then means
    assert "no Ray cluster at auto" in run(cli, tmp_path)
    monkeypatch.setattr(cluster, "STATUS_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:  # something else answers
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"no Ray cluster at {address}" in run(cli, tmp_path, "--ray-address", address)


def test_what_no_cluster_helps_with(cli: Cli, tmp_path: Path) -> None:
    launcher = ray.RayLauncher(None, LauncherOptions(), [BIG_NODE])
    with pytest.raises(InvalidInput, match="a custom network trains in this process only"):
        launcher.check(replace(PLAN, network="my.network"), ExecutionOptions())
    with pytest.raises(InvalidInput, match="write cpu or cuda; Ray chooses the GPU"):
        launcher.check(replace(PLAN, device="cuda:1"), ExecutionOptions())


def test_a_node_that_is_lost_before_the_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose worker cannot run the package is another matter: that is reported as it is."""
    real = pytest.importorskip("ray")

    class Cluster:
        exceptions = real.exceptions
        fails: Exception

        @staticmethod
        def remote(_work: object) -> Any:
            asked = SimpleNamespace(remote=lambda _text: "an answer to come")
            return SimpleNamespace(options=lambda **_: asked)

        def get(self, *_: object, **__: object) -> None:
            raise self.fails

    node = SMALL_NODE._replace(id="a" * 56)
    left, young = tmp_path / ".valueshare-abcdefgh", tmp_path / ".valueshare-12345678"
    for file in (left, young, tmp_path / ".valueshare-notes"):
        file.write_text("")
    os.utime(left, (0, 0))  # of a driver that was killed
    for error, words in (
        (real.exceptions.TaskUnschedulableError("gone"), "10.0.0.1 was lost before the run could"),
        (real.exceptions.LocalRayletDiedError(), "10.0.0.1 was lost before the run could"),
        (real.exceptions.RaySystemError("no module"), "on 10.0.0.1 cannot run valueshare"),
    ):
        monkeypatch.setattr(Cluster, "fails", error, raising=False)
        with pytest.raises(InvalidInput, match=words):
            cluster.check_shared_folder(Cluster(), tmp_path, [node])
    assert {path.name for path in tmp_path.iterdir()} == {young.name, ".valueshare-notes"}
