"""Runs in several processes on this machine: the same answer, whoever of them is killed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from replaced_options import replaced

import valueshare
from valueshare.records import read_progress
from valueshare.runs.launcher_options import LauncherOptions

Cli = Callable[..., tuple[int, str, str]]
Start = Callable[..., subprocess.Popen[str]]

# One population of 4 agents, 10 phases: two of 2 agents with two workers, long enough to be killed.
LONG = [
    *("train", "--env", "CartPole-v1", "--algorithm", "ib-dqn", "--k", "0", "4", "--seeds", "2"),
    *(
        "--steps",
        "1000",
        "--eval-interval",
        "200",
        "--checkpoint-interval",
        "100",
        "--eval-episodes",
        "2",
    ),
    *("--hidden", "16", "--batch-size", "8", "--replay-capacity", "500", "--learning-starts", "20"),
    *("--eval-episode-limit", "20"),
]
# The same in 4 phases, for what is not killed.
SHORT = replaced(
    LONG, ["--steps", "120", "--eval-interval", "60", "--checkpoint-interval", "30", "--target-update-interval", "40"]
)
NAMES = ("population-0-0", "population-0-1")
TWO = ("--workers", "2")


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the long run, done in one go in this process."""
    from valueshare.cli import main

    folder = tmp_path_factory.mktemp("long") / "run"
    main([*LONG, "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the short run, done in one go in this process."""
    from valueshare.cli import main

    folder = tmp_path_factory.mktemp("short") / "run"
    main([*SHORT, "--out", str(folder)])
    return folder


def begun(folder: Path, process: subprocess.Popen[str]) -> dict[str, int]:
    """The workers' process ids by population, once each of them has finished a phase."""
    for _ in range(6_000):
        if all(read_progress(folder, name).phases for name in NAMES):
            return {name: holder(folder / "progress" / f"{name}.lock") for name in NAMES}
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("the run does not get on")


def holder(lock: Path) -> int:
    """The process that has the population's lock open, which nobody else has."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if any(file.readlink() == lock for file in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue  # it has ended meanwhile
    raise AssertionError(f"nobody holds {lock}")


def is_alive(pid: int) -> bool:
    """Whether it runs: one that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pids: dict[str, int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids.values()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def assert_same_agents(one: Path, other: Path) -> None:
    """Records and all that is kept of every agent are equal to the bit, however it was split."""
    mine, theirs = valueshare.open_run(one), valueshare.open_run(other)
    assert mine.finished
    assert mine.records.height > 0
    assert mine.records.equals(theirs.records)
    for agent in mine.agents["agent"]:
        weights = mine.weights(agent)
        for name, tensor in theirs.weights(agent).items():
            assert torch.equal(weights[name], tensor), (agent, name)


def test_the_same_answer(short_run: Path, tmp_path: Path, cli: Cli) -> None:
    code, out, err = cli(*SHORT, *TWO, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "4 agents in 1 population, split over 2 workers, 120 steps each" in out
    assert "for 2 populations at once" in out
    for number in (1, 2):  # both are in one display, to their ends
        assert f"part {number} of 2 | 2 agents at step 120 of 120" in out
    assert_same_agents(tmp_path / "run", short_run)
    for words in (SHORT, [*SHORT, *TWO]):  # however it was split, it is the same run
        code, _, err = cli(*words, "--out", tmp_path / "run")
        assert (code, "holds this run, finished: to repeat it, choose another --out" in err) == (2, True), err


@pytest.mark.slow
def test_from_python_with_as_many_populations_as_workers(
    uninterrupted: Path, tmp_path: Path, assert_same_end: Callable[[Path, Path], None]
) -> None:
    """Of the two populations neither is split: files have the same names, and the same bits."""
    run = valueshare.train(
        "CartPole-v1",
        ["ib-dqn", "double-dqn"],
        k=[0, 4],
        seeds=2,
        steps=200,
        eval_interval=50,
        eval_episodes=2,
        hidden=[16],
        batch_size=8,
        replay_capacity=120,
        learning_starts=20,
        eval_episode_limit=10,
        target_update_interval=40,
        out=tmp_path / "run",
        progress=False,
        launcher=LauncherOptions(workers=2),
    )
    assert run.finished
    assert_same_end(tmp_path / "run", uninterrupted)


@pytest.mark.slow
def test_a_driver_that_is_killed_takes_its_workers_with_it(
    long_run: Path, tmp_path: Path, start: Start, cli: Cli
) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, *TWO, "--out", folder)
    workers = begun(folder, process)
    assert len({process.pid, *workers.values()}) == 3
    process.kill()
    assert gone(workers, seconds=60)
    assert not valueshare.open_run(folder).finished
    assert cli("resume", folder)[0] == 0  # here: how many workers there were is not part of a run
    assert_same_agents(folder, long_run)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_asked_to_end(number: signal.Signals, code: int, tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, *TWO, "--out", folder)
    workers = begun(folder, process)
    if number == signal.SIGINT:  # a terminal sends it to all; the driver alone minds it
        os.kill(workers[NAMES[0]], number)
        os.kill(workers[NAMES[0]], signal.SIGUSR1)  # nor what a scheduler sends to all
        time.sleep(0.2)
        assert is_alive(workers[NAMES[0]])
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert gone(workers, seconds=0)
    of = r"population-0-[01](, the least advanced)?"
    assert re.match(rf"valueshare: stopped at step [\d,]+ of {of}; resume continues from t", err)
    assert err.endswith(f": valueshare resume {folder}\n")


@pytest.mark.slow
def test_a_worker_that_is_killed_is_reported_and_the_others_go_on(
    long_run: Path, tmp_path: Path, start: Start, cli: Cli
) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, *TWO, "--out", folder)
    os.kill(begun(folder, process)["population-0-1"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    *before, last = (line for line in out.splitlines() if "population" in line)
    assert any(line.startswith("population-0-1 failed: its process was killed") for line in before)
    assert "at step 1,000 of 1,000" in last  # the other one went on, and it had been said before
    first, last = err.splitlines()
    assert first == (
        "valueshare: population-0-1 failed: its process was killed (SIGKILL), as the system does when memory runs out"
    )
    assert last == (
        f"valueshare: 1 population failed; the others are finished; resume with: valueshare resume {folder}"
    )
    assert read_progress(folder, "population-0-0").step == 1_000
    assert read_progress(folder, "population-0-1").step < 1_000
    assert cli("resume", folder, "--workers", "3")[0] == 0  # one population is left
    assert read_progress(folder, "population-0-0").attempts == 1  # it was not begun again
    assert_same_agents(folder, long_run)


@pytest.mark.slow
def test_a_worker_that_cannot_write(tmp_path: Path, start: Start) -> None:
    """Files may not be larger than 8 kB: the run's folder appears, and no checkpoint of 14 kB."""
    limited = ("sh", "-c", 'ulimit -f 16; exec "$@"', "sh")
    folder = tmp_path / "run"
    process = start(*LONG, *TWO, "--out", folder, before=limited)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err.count("\n")) == (1, 1), err
    assert "File too large" in err
    assert f"resume with: valueshare resume {folder}" in err
    assert not valueshare.open_run(folder).finished


def test_what_a_worker_refuses(short_run: Path, tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "run"
    shutil.copytree(short_run, folder)
    for path in (folder / "checkpoints" / "population-0").glob("*.safetensors"):
        path.write_bytes(b"damaged")
    code, _, err = cli("resume", folder, *TWO)
    assert (code, err.count("\n")) == (2, 1)
    assert "no checkpoint in " in err


def test_a_defect_in_a_worker_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A library that is broken; this process has loaded the one that is not."""
    broken = tmp_path / "broken" / "safetensors"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('one\\ntwo')\n")
    monkeypatch.setattr(sys, "path", [str(broken.parent), *sys.path])
    run = valueshare.train(
        "CartPole-v1",
        seeds=2,
        steps=100,
        eval_interval=100,
        out=tmp_path / "run",
        launcher=LauncherOptions(workers=2),
    )
    assert not run.finished
    assert run.failures == dict.fromkeys(NAMES, "RuntimeError: one")
    assert capfd.readouterr().err.count("Traceback") == 2  # and where it was
