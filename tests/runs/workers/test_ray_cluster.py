"""Runs on a real Ray cluster of several nodes on this machine, nodes and workers killed in them.

The cluster listens on the loopback alone and is started and stopped here. Every test compares with
the run of the same table in this process, to the bit.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from replaced_options import replaced

import valueshare
from valueshare import starting
from valueshare.cli import arguments
from valueshare.experiments.study import make_study
from valueshare.records import read_progress
from valueshare.runs.launchers import ExecutionOptions

pytestmark = [
    pytest.mark.slow,
    # Ray's own: sockets and processes that it leaves to the garbage collector, and a notice.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

Cli = Callable[..., tuple[int, str, str]]
Same = Callable[[Path, Path], None]

# Two populations of 2 agents, 12 phases each: long enough to be killed in.
LONG = [
    *("train", "--env", "CartPole-v1", "--algorithm", "ib-dqn", "double-dqn", "--k", "4"),
    *("--seeds", "2", "--steps", "3000", "--eval-interval", "250", "--eval-episodes", "2"),
    *("--hidden", "16", "--batch-size", "8", "--replay-capacity", "500", "--learning-starts", "20"),
    *("--eval-episode-limit", "20"),
]
NODE: dict[str, Any] = {"node_ip_address": "127.0.0.1", "object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A head that runs nothing and two nodes of one CPU each; its sessions are in /tmp/ray."""
    with pytest.MonkeyPatch.context() as patch:
        # Without it, Ray takes 127.0.0.1 for the address of a network card.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        from ray.cluster_utils import Cluster

        cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **NODE})
        try:
            cluster.add_node(num_cpus=1, **NODE)
            cluster.add_node(num_cpus=1, **NODE)
            yield cluster
        finally:
            session = Path(cluster.head_node.get_session_dir_path())
            cluster.shutdown()
            shutil.rmtree(session, ignore_errors=True)


@pytest.fixture
def on_ray(ray_cluster: Any) -> tuple[str, ...]:
    return ("--launcher", "ray", "--ray-address", str(ray_cluster.address))


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the long run, done in one go in this process."""
    from valueshare.cli import main

    folder = tmp_path_factory.mktemp("long") / "run"
    main([*LONG, "--out", str(folder)])
    return folder


def test_the_same_answer(
    on_ray: tuple[str, ...], long_run: Path, tmp_path: Path, cli: Cli, assert_same_end: Same
) -> None:
    code, out, err = cli(*LONG, *on_ray, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "room for 2 at once on 2 nodes, with 1 CPU each" in out
    for number in (1, 2):  # both are in one display, to their ends
        assert f"population {number} of 2 | 2 agents at step 3,000 of 3,000" in out
    assert "took: " in out
    assert_same_end(tmp_path / "run", long_run)


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "valueshare", *(str(word) for word in words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(2_400):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("it does not come to that")


def phases(folder: Path, name: str) -> int:
    return read_progress(folder, name).phases


def test_a_node_is_killed_during_the_run(
    ray_cluster: Any,
    on_ray: tuple[str, ...],
    long_run: Path,
    tmp_path: Path,
    assert_same_end: Same,
) -> None:
    doomed = ray_cluster.add_node(num_cpus=1, **NODE)
    folder = tmp_path / "run"
    process = start(*LONG, *on_ray, "--population-agents", "1", "--out", folder)
    names = [f"population-{a}-{b}" for a in (0, 1) for b in (0, 1)]
    # Three nodes, four populations of one agent: the doomed node has one of the first three.
    wait_for(lambda: sum(phases(folder, name) >= 1 for name in names) >= 3, process)
    ray_cluster.remove_node(doomed, allow_graceful=False)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert ": worker lost; resuming from its last checkpoint" in out
    assert sum(read_progress(folder, name).attempts for name in names) == 5
    run, whole = valueshare.open_run(folder), valueshare.open_run(long_run)
    assert run.records.equals(whole.records)
    for agent in range(4):
        mine, theirs = run.weights(agent), whole.weights(agent)
        assert all((mine[name] == theirs[name]).all() for name in theirs)


def worker_of(folder: Path | str, name: str) -> int | None:
    """The process that holds the population's lock, which is open nowhere else.

    At an address, the lock is in a copy of the run with the same name.
    """
    lock = f"{folder}/progress/{name}.lock"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if any(str(file.readlink()).endswith(lock) for file in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue  # it has ended meanwhile
    return None


def kill_worker(folder: Path | str, name: str) -> None:
    pid = worker_of(folder, name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_lost_too_often_is_reported_and_the_rest_goes_on(
    on_ray: tuple[str, ...], long_run: Path, tmp_path: Path, cli: Cli, assert_same_end: Same
) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, *on_ray, "--ray-retries", "1", "--out", folder)
    for attempt in (1, 2):
        wait_for(
            lambda attempt=attempt: (  # type: ignore[misc]
                read_progress(folder, "population-1").attempts == attempt and phases(folder, "population-1") >= attempt
            ),
            process,
        )
        kill_worker(folder, "population-1")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    first, last = err.splitlines()
    assert first.startswith("valueshare: population-1 failed: its worker was lost 2 times")
    assert last == (
        f"valueshare: 1 population failed; the others are finished; resume with: valueshare resume {folder}"
    )
    assert read_progress(folder, "population-0").step == 3_000
    assert not valueshare.open_run(folder).finished
    assert cli("resume", folder)[0] == 0  # here: the launcher is not part of a run
    assert_same_end(folder, long_run)


def test_a_population_that_fails_by_itself_is_not_tried_again(
    on_ray: tuple[str, ...], long_run: Path, tmp_path: Path, cli: Cli
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(long_run, folder)
    (folder / "checkpoints" / "population-0" / "checkpoint-000011.json").unlink()
    for path in (folder / "checkpoints" / "population-1").glob("*.safetensors"):
        path.write_bytes(b"damaged")
    code, _, err = cli("resume", folder, *on_ray)
    assert code == 1
    first, last = err.splitlines()
    assert first.startswith("valueshare: population-1 failed: no checkpoint in ")
    assert last.startswith("valueshare: 1 population failed; the others are finished;")
    assert (folder / "checkpoints" / "population-0" / "checkpoint-000011.json").exists()
    assert read_progress(folder, "population-1").attempts == 2  # the long run's, and one here


def test_drivers_that_end_and_one_too_many(
    on_ray: tuple[str, ...], long_run: Path, tmp_path: Path, cli: Cli, assert_same_end: Same
) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, *on_ray, "--out", folder)
    wait_for(lambda: phases(folder, "population-0") >= 1, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75
    assert err.count("\n") == 1
    assert f"resume with: valueshare resume {folder}" in err
    assert worker_of(folder, "population-0") is None

    before = phases(folder, "population-0")
    process = start("resume", folder, *on_ray)
    wait_for(lambda: phases(folder, "population-0") > before, process)
    code, _, err = cli("resume", folder, *on_ray)  # a second driver
    held = f"valueshare: {folder} is being trained by another process: wait for it to finish\n"
    assert (code, err) == (2, held)
    process.kill()
    process.communicate()

    code, _, err = cli("resume", folder, *on_ray)
    assert (code, err) == (0, "")
    assert_same_end(folder, long_run)


def test_a_run_at_an_address_is_extended(
    on_ray: tuple[str, ...], tmp_path: Path, cli: Cli, assert_same_end: Same
) -> None:
    """The driver reads the phase that is run again, instead of its copy of the shorter run."""
    schedules = ("--step-size-schedule", "constant", "--epsilon-start", "0.1", "--replay-capacity", "5000")
    whole, there = tmp_path / "whole", tmp_path / "there"
    assert cli(*replaced(LONG, [*schedules, "--steps", "600", "--out", str(whole)]))[0] == 0
    assert cli(*replaced(LONG, [*schedules, "--steps", "400", *on_ray, "--out", f"local://{there}"]))[0] == 0
    code, out, err = cli("extend", f"local://{there}", "--steps", "600", *on_ray)
    assert (code, err) == (0, "")
    assert "(step 600, " in out
    assert_same_end(there, whole)


def test_a_run_at_an_address(
    on_ray: tuple[str, ...],
    long_run: Path,
    tmp_path: Path,
    cli: Cli,
    assert_same_end: Same,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers with copies of their own, one of them killed."""
    there, url = tmp_path / "there", f"local://{tmp_path}/there"
    process = start(*LONG, *on_ray, "--out", url)
    wait_for(lambda: phases(there, "population-1") >= 2, process)
    kill_worker("/there", "population-1")
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert "population-1: worker lost; resuming from its last checkpoint" in out
    for number in (1, 2):
        assert f"population {number} of 2 | 2 agents at step 3,000 of 3,000" in out
    assert_same_end(there, long_run)
    assert valueshare.open_run(url).records.equals(valueshare.open_run(long_run).records)
    assert sorted(path.name for path in there.iterdir()) == [
        *("agents.parquet", "checkpoints", "config.json", "progress", "provenance.json", "records")
    ]
    code, out, _ = cli("resume", url, *on_ray)
    assert (code, f"this run is finished: {url}" in out) == (0, True)
    monkeypatch.setattr(arguments, "IN_MEMORY", ())
    code, _, err = cli(*LONG, *on_ray, "--out", "memory://a/run")  # every process has its own
    assert (code, err.count("\n")) == (2, 1)
    assert "3 of 3 nodes cannot use memory://a/run (127.0.0.1: it does not see the driver's" in err


def test_a_run_can_be_watched(on_ray: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, *on_ray, "--out", folder)
    wait_for((folder / "config.json").exists, process)
    watch = start("watch", folder, "--port", "0")
    try:
        assert watch.stdout is not None
        address = watch.stdout.readline().split()[0]
        shares = list[str]()

        def status() -> str:
            with urllib.request.urlopen(address) as answer:
                return str(answer.read().decode().partition('role="status">')[2].partition("<")[0])

        while process.poll() is None:
            shares += re.findall(r"(\d+)% of all steps", status())
            time.sleep(0.2)
        _, err = process.communicate()
        assert (process.returncode, err) == (0, "")
        assert len(set(shares)) >= 2  # phases of both are counted as they end
        assert [int(share) for share in shares] == sorted(map(int, shares))
        wait_for(lambda: status() == "Finished.", watch)
    finally:
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=30)
    assert (watch.returncode, err) == (0, "stopped\n")


def test_an_atari_study(on_ray: tuple[str, ...], tmp_path: Path, cli: Cli) -> None:
    words = "reproduce atari57 --scale smoke --algorithm dqn dueling-dqn --seeds 2 --steps 120 "
    words += "--eval-interval 120 --eval-timesteps 100 --replay-capacity 200"
    command = [*words.split(), *on_ray, "--population-agents", "1"]
    code, out, err = cli(*command, "--plan")
    assert (code, err) == (0, "")
    assert out.count("expected: 0:00:") == 2  # a line a run
    assert "room for 2 at once on 2 nodes, with 1 CPU each" in out
    code, _, err = cli(*command, "--out", tmp_path / "there")
    assert (code, err) == (0, "")
    study = make_study(
        "atari57",
        "smoke",
        algorithm=("dqn", "dueling-dqn"),
        seeds=2,
        steps=120,
        eval_interval=120,
        eval_timesteps=100,
        replay_capacity=200,
    )
    for name, plan in study.runs.items():
        here = starting.start(plan, tmp_path / "here" / name, "", ExecutionOptions(progress=False))
        there = valueshare.open_run(tmp_path / "there" / name)
        assert there.records.equals(here.records)
    assert (tmp_path / "there" / "report" / "report.html").exists()


def sweeping() -> int:
    """How many workers of a cluster here are at a sweep: Ray gives them its name."""
    titles = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            titles.append(entry.read_bytes())
        except OSError:
            continue  # it has ended meanwhile
    return sum(title.startswith(b"ray::sweep_rows") for title in titles)


def test_the_tabular_sweep_with_a_node_killed(
    ray_cluster: Any, on_ray: tuple[str, ...], tmp_path: Path, cli: Cli
) -> None:
    ks = [str(k) for k in range(6)]  # a task each, a second or two of work, on three nodes
    sweep = ("tabular", "--k", *ks, "--seeds", "32", "--steps", "200000")
    assert cli(*sweep, "--out", tmp_path / "here")[0] == 0
    doomed = ray_cluster.add_node(num_cpus=1, **NODE)
    process = start(*sweep, *on_ray, "--out", tmp_path / "there")
    wait_for(lambda: sweeping() == 3, process)
    ray_cluster.remove_node(doomed, allow_graceful=False)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    for name in ("records/runs.parquet", "report/tables/norms.parquet"):
        here, there = (pl.read_parquet(tmp_path / place / name) for place in ("here", "there"))
        assert here.height > 0
        assert there.equals(here)


def test_what_the_cluster_cannot_do(on_ray: tuple[str, ...], ray_cluster: Any, tmp_path: Path, cli: Cli) -> None:
    def refused(*words: str) -> str:
        code, _, err = cli(*replaced([*LONG, *on_ray], list(words)), "--out", tmp_path / "run")
        assert (code, err.count("\n")) == (2, 1)
        assert list(tmp_path.iterdir()) == []
        return err

    assert "the cluster has no GPU" in refused("--device", "cuda")
    assert "--ray-cpus 2: no node of the cluster has more than 1 CPUs" in refused("--ray-cpus", "2")
    # 60 GB of replay for each of 4 agents.
    huge = refused("--replay-capacity", "1000000000", "--steps", "1000000000")
    assert "one agent of CartPole-v1 needs" in huge
    gpu = ray_cluster.add_node(num_cpus=1, num_gpus=2, **NODE)
    try:
        said = refused("--device", "cuda", "--ray-gpus", "3")
        assert "--ray-gpus 3: no node of the cluster has more than 2 GPUs" in said
    finally:
        ray_cluster.remove_node(gpu)


def test_a_folder_that_a_node_cannot_see(on_ray: tuple[str, ...], tmp_path: Path, cli: Cli) -> None:
    """A node with another filesystem where the run would be."""
    program = (
        "import sys, time\n"
        "from ray._private.node import Node\n"
        "from ray._private.parameter import RayParams\n"
        "own = RayParams(gcs_address=sys.argv[1], num_cpus=1, object_store_memory=80_000_000,"
        " node_ip_address='127.0.0.1')\n"
        "Node(own, head=False, shutdown_at_exit=True, spawn_reaper=True)\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    mount = 'mount -t tmpfs none "$1" && shift && exec "$@"'  # any path may contain a space
    node = subprocess.Popen(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"),
            *(str(tmp_path), sys.executable, "-c", program, on_ray[3]),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        said: list[str] = []
        assert node.stdout is not None
        while "started" not in "".join(said[-1:]):
            said.append(node.stdout.readline())
            if not said[-1]:
                pytest.skip(f"no node with a filesystem of its own: {said}")
        code, _, err = cli(*LONG, *on_ray, "--out", tmp_path / "run")
        assert (code, err.count("\n")) == (2, 1), err
        assert f"1 of 4 nodes cannot see {tmp_path} (for example 127.0.0.1)" in err
        assert list(tmp_path.iterdir()) == []
    finally:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGTERM)
        node.communicate()
