"""A run that was ended in any way resumes to the same end, to the bit."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from valueshare import open_run, resume, signals, train
from valueshare.analysis.importers.results import read_results
from valueshare.population import train as training_loop
from valueshare.population.checkpoints import saving
from valueshare.records import CheckpointPaths
from valueshare.runs import locks, run_folder
from valueshare.runs.progress import ProgressFile
from valueshare.runs.workers import local
from valueshare.schema import FORMAT
from valueshare.signals import Stopped, stop_on_signals

Same = Callable[[Path, Path], None]
Cli = Callable[..., tuple[int, str, str]]
Start = Callable[..., subprocess.Popen[str]]

# One population of 2 agents and 15 phases, long enough to be killed in.
ENDS_SECONDS = 120.0  # at most, until a process that was asked to end has, on a busy machine
LONG = [
    *("train", "--env", "CartPole-v1", "--algorithm", "ib-dqn", "--k", "0", "4", "--seeds", "1"),
    *("--steps", "900", "--eval-interval", "180", "--checkpoint-interval", "60", "--eval-episodes", "1"),
    *("--hidden", "16", "--batch-size", "8", "--replay-capacity", "300", "--learning-starts", "20"),
    *("--eval-episode-limit", "10"),
]
# The line of a run that was stopped after its first checkpoint.
STOPPED = (
    r"valueshare: stopped at step \d+( of population-\d)?; resume continues from (there|the checkpoint at step \d+ "
    r"\(train --checkpoint-interval sets how often there is one\)): valueshare resume "
)


@pytest.fixture
def start(start: Start) -> Start:
    """A command in a process of its own, with one thread."""
    return partial(start, before=("env", "OMP_NUM_THREADS=1"))


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the long run, done in one go."""
    from valueshare.cli import main

    folder = tmp_path_factory.mktemp("long") / "run"
    main([*LONG, "--out", str(folder)])
    return folder


def wait_for_phases(folder: Path, process: subprocess.Popen[str], count: int) -> None:
    """Until so many phases are finished, or the run is."""
    for _ in range(6_000):
        done = [int(p.stem.split("-")[1]) for p in folder.glob("checkpoints/*/checkpoint-*.json")]
        if (done and max(done) + 1 >= count) or process.poll() is not None:
            return
        time.sleep(0.01)
    raise AssertionError("the run does not get on")


def finished_phases(folder: Path) -> int:
    done = [int(p.stem.split("-")[1]) for p in folder.glob("checkpoints/*/checkpoint-*.json")]
    return max(done, default=-1) + 1


def wait_until_begun(folder: Path, process: subprocess.Popen[str], resumed: int) -> None:
    """Until the run's folder says that this process, the so-many-th resumption, has begun."""
    about = folder / "provenance.json"
    for _ in range(6_000):
        if about.exists() and len(json.loads(about.read_text())["resumed"]) >= resumed:
            return
        if process.poll() == 0:
            return  # the kill before came after the last phase: the run is finished
        assert process.returncode is None, process.communicate()[1]
        time.sleep(0.01)
    raise AssertionError("the run does not begin")


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(
    kills: int, long_run: Path, tmp_path: Path, start: Start, cli: Cli, assert_same_end: Same
) -> None:
    chance = random.Random(kills)
    number = resumed = landed = 0
    while landed < kills:
        folder = tmp_path / f"run-{number}"
        process = start(*(("resume", folder) if folder.exists() else (*LONG, "--out", folder)))
        wait_until_begun(folder, process, resumed)
        time.sleep(chance.uniform(0, 1.5))
        process.kill()
        if process.wait() == -signal.SIGKILL:
            landed, resumed = landed + 1, resumed + 1
        else:  # it was faster: a run that survived its kills, and a new one for the rest
            assert process.returncode == 0
            assert_same_end(folder, long_run)
            number, resumed = number + 1, 0
    if folder.exists():
        assert cli("resume", folder)[0] == 0
        assert_same_end(folder, long_run)
        assert open_run(folder).records.equals(open_run(long_run).records)


@pytest.mark.slow  # all three are sent without another process below
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)])
def test_asked_to_end(
    number: signal.Signals,
    code: int,
    long_run: Path,
    tmp_path: Path,
    start: Start,
    cli: Cli,
    assert_same_end: Same,
) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, "--out", folder)
    wait_for_phases(folder, process, 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=ENDS_SECONDS)
    assert process.returncode == code
    assert err.count("\n") == 1
    assert re.fullmatch(STOPPED + re.escape(str(folder)), err.strip())
    assert finished_phases(folder) >= 2
    assert not open_run(folder).finished
    if number != signal.SIGTERM:
        return  # the rest is the same for all
    assert cli("resume", folder)[0] == 0
    assert_same_end(folder, long_run)
    assert len(json.loads((folder / "provenance.json").read_text())["resumed"]) == 1


# A library that takes its time to load, and loses what is raised meanwhile.
SLOW = """
import contextlib, os, signal, time

with contextlib.suppress(BaseException):
    os.kill(os.getpid(), signal.{name})
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, 75, marks=pytest.mark.slow),  # loading libraries: tests/test_signals.py
        pytest.param(signal.SIGUSR1, 75, marks=pytest.mark.slow),
        (signal.SIGINT, 130),
    ],
)
def test_asked_to_end_before_it_could_begin(
    number: signal.Signals, code: int, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(name=number.name))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start("train", "--env", "slow:own/Slow-v0", "--out", tmp_path / "run")
    _, err = process.communicate(timeout=ENDS_SECONDS)
    assert (process.returncode, err) == (code, "valueshare: interrupted\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_asked_again_and_again(long_run: Path, tmp_path: Path, start: Start, cli: Cli, assert_same_end: Same) -> None:
    folder = tmp_path / "run"
    process = start(*LONG, "--out", folder)
    wait_for_phases(folder, process, 2)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, err = process.communicate()
    assert (process.returncode, err.count("\n")) == (130, 1)
    assert re.fullmatch(STOPPED + re.escape(str(folder)), err.strip())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert list(folder.rglob("*.partial")) == []
    assert cli("resume", folder)[0] == 0
    assert_same_end(folder, long_run)


def test_a_run_that_does_not_end_is_ended() -> None:
    """After some seconds, and then whenever it is asked again."""
    with stop_on_signals() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop()
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.setitimer(signal.ITIMER_REAL, 0)  # as when it has run out
            with pytest.raises(Stopped) as ended:
                signal.raise_signal(number)
            assert ended.value.exit_code == 75


def test_ended_by_somebody_else(small: list[str], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was cancelled, say: a run that is not finished never ends with 0."""
    monkeypatch.setattr(local, "run_population", lambda *task: False)
    code, _, err = cli(*small, "--out", tmp_path / "run")
    assert (code, "stopped at step 0; resume continues from there: valueshare resume" in err) == (1, True)


@contextmanager
def signal_after(phase: int, number: signal.Signals) -> Iterator[None]:
    """Runs of this process send it a signal when a phase is saved."""

    def save_and_signal(where: CheckpointPaths, saved: int, *args: Any, **rest: Any) -> None:
        saving.save(where, saved, *args, **rest)
        if saved == phase:
            os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop, "save", save_and_signal)
        yield


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)])
def test_asked_to_end_in_this_process(
    number: signal.Signals,
    code: int,
    small: list[str],
    uninterrupted: Path,
    tmp_path: Path,
    cli: Cli,
    assert_same_end: Same,
) -> None:
    folder = tmp_path / "run"
    with signal_after(0, number):
        found, _, err = cli(*small, "--out", folder)
    assert (found, err.count("\n")) == (code, 1)
    assert re.fullmatch(STOPPED + re.escape(str(folder)), err.strip())
    assert finished_phases(folder) == 1
    assert not open_run(folder).finished
    if number != signal.SIGTERM:
        return  # the rest is the same for all
    assert cli("resume", folder)[0] == 0
    assert_same_end(folder, uninterrupted)
    assert len(json.loads((folder / "provenance.json").read_text())["resumed"]) == 1


@pytest.mark.parametrize(
    ("number", "code", "seconds"),
    [(signal.SIGTERM, 75, 10.0), (signal.SIGINT, 130, 10.0), (signal.SIGTERM, 75, 0.1)],  # more and less than it takes
)
def test_asked_to_end_while_a_thread_writes_a_checkpoint(
    number: signal.Signals,
    code: int,
    seconds: float,
    small: list[str],
    uninterrupted: Path,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_end: Same,
) -> None:
    """As on CUDA: the finished phase is published before the command ends."""
    folder = tmp_path / "run"

    def signal_and_save(paths: CheckpointPaths, phase: int, *args: Any) -> None:
        if phase == 1:
            os.kill(os.getpid(), number)
            time.sleep(0.5)
        saving.save(paths, phase, *args)

    with monkeypatch.context() as patch:
        patch.setattr(signals, "GRACE_SECONDS", seconds)
        patch.setattr(training_loop, "writes_in_background", lambda device, env, replay: True)
        patch.setattr(training_loop, "save", signal_and_save)
        found, _, err = cli(*small, "--out", folder)
    assert (found, err.count("\n")) == (code, 1)
    assert re.fullmatch(STOPPED + re.escape(str(folder)), err.strip())
    assert finished_phases(folder) == 2
    assert not list(folder.rglob("*.partial"))
    assert cli("resume", folder)[0] == 0
    assert_same_end(folder, uninterrupted)


@pytest.fixture(scope="module")
def stopped_run(small: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run, ended by a signal after phase 2 of its first population."""
    from valueshare.cli import main

    folder = tmp_path_factory.mktemp("stopped") / "run"
    with signal_after(2, signal.SIGTERM), pytest.raises(SystemExit) as ended:
        main([*small, "--out", str(folder)])
    assert ended.value.code == 75
    return folder


@pytest.fixture
def stopped(stopped_run: Path, tmp_path: Path) -> Path:
    """A copy of it, for a test to change."""
    return Path(shutil.copytree(stopped_run, tmp_path / "run"))


def test_killed_between_a_checkpoint_and_its_progress(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the evaluation is known nevertheless."""

    class Killed(BaseException):
        pass

    def write(self: ProgressFile, step: int, phases: int | None = None, *, evaluated: bool = False) -> None:
        if phases == 1:
            raise Killed
        whole(self, step, phases, evaluated=evaluated)

    whole, own = ProgressFile.write, tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(ProgressFile, "write", write)
        with pytest.raises(Killed):
            train("CartPole-v1", seeds=1, out=own, **tiny)
    assert (own / "checkpoints" / "population-0" / "checkpoint-000000.json").is_file()
    assert resume(own, progress=False).finished
    table = read_results(own).table
    assert table["step"].to_list() == [0, 30, 60]
    assert table["seconds"].null_count() == 0


def test_a_run_of_which_nothing_is_learned_goes_on(
    small: list[str],
    uninterrupted: Path,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_end: Same,
) -> None:
    """As one that was ended before its first phase was finished."""
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(local, "run_population", lambda *task: False)
        assert cli(*small, "--out", folder)[0] == 1
    code, _, err = cli(*small, "--first-seed", "1", "--out", folder)
    assert (code, "holds a run with other settings" in err) == (2, True)
    for other in (["--replay-device", "disk"], ["--population-agents", "1"]):  # not in silence
        code, _, err = cli(*small, *other, "--out", folder)
        assert (code, "unfinished: write valueshare resume" in err) == (2, True), err
    with locks.lock_run(folder):
        code, _, err = cli(*small, "--out", folder)
    assert (code, "is being trained by another process" in err) == (2, True)
    assert cli(*small, "--out", folder)[0] == 0
    assert_same_end(folder, uninterrupted)


def test_records_without_checkpoints_are_not_begun_again(
    small: list[str], uninterrupted: Path, tmp_path: Path, cli: Cli
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    shutil.rmtree(folder / "checkpoints")
    code, _, err = cli(*small, "--out", folder)
    assert (code, "unfinished: write valueshare resume" in err) == (2, True)
    assert open_run(folder).records.equals(open_run(uninterrupted).records)


def test_an_unfinished_run_is_not_begun_again(small: list[str], stopped: Path, cli: Cli) -> None:
    code, _, err = cli(*small, "--out", stopped)
    assert (code, err.count("\n")) == (2, 1)
    assert f"unfinished: write valueshare resume {stopped}" in err


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(  # other damage: tests/population/checkpoints/test_resuming.py
    ("damage", "file"), [(cut, "checkpoints/population-0/state"), (flip_a_bit, "records/population-0")]
)
def test_a_damaged_checkpoint_falls_back(
    damage: Callable[[Path], None],
    file: str,
    stopped: Path,
    uninterrupted: Path,
    cli: Cli,
    caplog: pytest.LogCaptureFixture,
    assert_same_end: Same,
) -> None:
    damage(next(stopped.glob(f"{file}-000002.*")))
    assert cli("resume", stopped)[0] == 0
    assert f"{stopped}/checkpoints/population-0/checkpoint-000002.json is damaged" in caplog.text
    assert_same_end(stopped, uninterrupted)


def test_a_finished_run_that_is_damaged_is_repaired(
    uninterrupted: Path, tmp_path: Path, cli: Cli, assert_same_end: Same
) -> None:
    folder = Path(shutil.copytree(uninterrupted, tmp_path / "run"))
    flip_a_bit(next(folder.glob("checkpoints/population-1/state-000003.*")))
    assert not open_run(folder).finished
    assert cli("resume", folder)[0] == 0
    assert_same_end(folder, uninterrupted)


def test_a_full_disk(
    small: list[str],
    uninterrupted: Path,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_end: Same,
) -> None:
    folder = tmp_path / "run"
    sync = os.fsync

    def full(handle: int) -> None:
        if "replay-000002" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, _, err = cli(*small, "--out", folder)
    assert (code, err.count("\n")) == (1, 1)
    assert err.endswith(
        "no room on the disk for replay-000002.safetensors; all checkpoints are intact: make room, then resume with: "
        f"valueshare resume {folder}\n"
    )
    assert finished_phases(folder) == 2
    assert cli("resume", folder)[0] == 0
    assert_same_end(folder, uninterrupted)


def test_a_full_disk_before_the_run_begins(
    small: list[str], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run_folder, "write_json", full)
    code, _, err = cli(*small, "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (1, 1)
    assert "nothing was written" in err
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_says_so(uninterrupted: Path, cli: Cli) -> None:
    code, out, err = cli("resume", uninterrupted)
    assert (code, err) == (0, "")
    assert "this run is finished" in out


def edited(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def refused(cli: Cli, *words: object) -> str:
    code, _, err = cli("resume", *words)
    assert (code, err.count("\n")) == (2, 1)
    return err


def test_what_a_kill_after_the_last_phase_has_left_goes(uninterrupted: Path, tmp_path: Path, cli: Cli) -> None:
    """The last phase is committed, then old files are deleted: it was killed between the two."""
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    before = {path for path in folder.rglob("*") if path.is_file()}
    own = folder / "checkpoints" / "population-1"
    for name in ("checkpoint-000001.json", "state-000001.safetensors"):
        (own / name).write_text("old")
    (own / "notes.txt").write_text("mine")
    (folder / "progress" / "population-1.json.0123456789abcdef.partial").write_text("half")
    assert cli("resume", folder)[0] == 0
    assert {path for path in folder.rglob("*") if path.is_file()} == {*before, own / "notes.txt"}


def test_an_old_checkpoint_is_kept_where_the_newest_are_damaged(
    stopped: Path, uninterrupted: Path, tmp_path: Path, cli: Cli, assert_same_end: Same
) -> None:
    """It was kept by a kill after the last phase, and is the only whole one now."""
    own = stopped / "checkpoints" / "population-0"
    shutil.copytree(own, tmp_path / "old")
    assert cli("resume", stopped)[0] == 0
    shutil.copytree(tmp_path / "old", own, dirs_exist_ok=True)
    for phase in (2, 3):
        flip_a_bit(own / f"state-{phase:06d}.safetensors")
    assert cli("resume", stopped)[0] == 0
    assert_same_end(stopped, uninterrupted)


def test_old_checkpoints_stay_while_another_process_holds_the_run(
    uninterrupted: Path, tmp_path: Path, cli: Cli
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    old = folder / "checkpoints" / "population-1" / "state-000001.safetensors"
    old.write_text("old")
    with locks.lock_run(folder):
        assert cli("resume", folder)[0] == 0
        assert old.exists()
    assert cli("resume", folder)[0] == 0
    assert not old.exists()


def test_what_cannot_be_resumed(stopped: Path, cli: Cli) -> None:
    assert "nowhere does not exist: give the folder of a run" in refused(cli, stopped.parent / "nowhere")
    assert "there is no training run" in refused(cli, stopped.parent)
    folder = stopped
    before = (folder / "config.json").read_text()
    files = sorted(path for path in folder.rglob("*"))

    assert "a run resumes with its own settings: leave out --batch-size" in refused(cli, folder, "--batch-size", "16")
    edited(folder, format=FORMAT + 1, valueshare="9.0")
    assert f"(valueshare 9.0), in run-folder format {FORMAT + 1}" in refused(cli, folder)
    edited(folder, **json.loads(before) | {"device": "cuda:9"})
    assert "is on cuda:9, and there is no such device here" in refused(cli, folder)
    settings = json.loads(before)["settings"]
    settings["CartPole-v1"]["batch_size"] = 16
    edited(folder, **json.loads(before) | {"settings": settings})
    assert "batch_size was 8 and is now 16" in refused(cli, folder)
    (folder / "config.json").write_text(before)
    with locks.lock_run(folder):
        assert "another process" in refused(cli, folder)
    assert sorted(path for path in folder.rglob("*")) == files

    (folder / "agents.parquet").write_bytes(b"no table")
    assert f"{folder / 'agents.parquet'} cannot be read: " in refused(cli, folder)


def test_settings_that_are_damaged(uninterrupted: Path, tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    file = folder / "config.json"
    whole = json.loads(file.read_text())
    for text in ("", "{", "[]", '{"format": 1, "kind": "trai'):
        file.write_text(text)
        assert f"{file} is damaged" in refused(cli, folder)
        assert cli("train", "--env", "CartPole-v1", "--out", folder)[1:] == ("", refused(cli, folder))
    for name in ("settings", "backends", "device", "compile", "agents"):
        file.write_text(json.dumps({key: value for key, value in whole.items() if key != name}))
        assert f"{file} is damaged (Object missing required field '{name}')" in refused(cli, folder)
    file.write_text(json.dumps({**whole, "settings": 3}))
    assert f"{file} is damaged" in refused(cli, folder)
    file.write_text(json.dumps({**whole, "settings": {"CartPole-v1": {"batch_size": "x"}}}))
    assert f"{file} is damaged (batch_size = 'x': write a whole number)" in refused(cli, folder)
    assert cli("train", "--env", "CartPole-v1", "--out", folder)[1:] == ("", refused(cli, folder))
    file.write_text(json.dumps(whole))
    (folder / "agents.parquet").write_bytes(b"no table")
    assert cli("train", "--env", "CartPole-v1", "--out", folder)[1:] == ("", refused(cli, folder))
