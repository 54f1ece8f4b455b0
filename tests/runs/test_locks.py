"""A run's folder is held from before it appears, or is noted as resumed, until its end."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import valueshare
from valueshare import starting
from valueshare.errors import InvalidInput
from valueshare.runs import directory, locks, run_folder
from valueshare.runs.run import Run
from valueshare.runs.run_plan import run_plan

Cli = Callable[..., tuple[int, str, str]]


def is_held(folder: Path) -> bool:
    try:
        with locks.lock_run(folder):
            return False
    except InvalidInput:
        return True


def test_a_resumption_is_noted_and_run_under_one_hold(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    run = valueshare.train("CartPole-v1", "dqn", out=folder, seeds=1, should_stop=lambda: True, **tiny)
    assert not run.finished
    assert not is_held(folder)
    log: list[str] = []
    hold, note = locks.lock_run, run_folder.record_resume

    @contextmanager
    def logged_hold(where: Path) -> Iterator[None]:
        with hold(where):
            log.append("held")
            yield
        log.append("let go")

    def logged_note(*args: Any) -> None:
        log.append("noted")
        note(*args)

    def logged_run(*args: Any) -> Run:
        log.append("launched")
        return run_plan(*args)

    monkeypatch.setattr(starting, "lock_run", logged_hold)
    monkeypatch.setattr(run_folder, "record_resume", logged_note)
    monkeypatch.setattr(starting, "run_plan", logged_run)
    assert valueshare.resume(folder, progress=False).finished
    assert log == ["held", "noted", "launched", "let go"]


def test_a_new_run_is_held_when_it_appears(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    move, seen = directory._move, []

    def appear(staging: Path, target: Path) -> None:
        move(staging, target)
        seen.append(is_held(folder))  # nobody can come between this and the first step

    def logged_run(*args: Any) -> Run:
        seen.append(is_held(folder))
        return run_plan(*args)

    monkeypatch.setattr(directory, "_move", appear)
    monkeypatch.setattr(starting, "run_plan", logged_run)
    valueshare.train("CartPole-v1", "dqn", out=folder, seeds=1, **tiny)
    assert seen == [True, True]
    assert not is_held(folder)


def test_a_run_on_a_read_only_filesystem_is_trained_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / locks.LOCK).touch()

    def refuse(*arguments: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    locks.refuse_if_trained(tmp_path)


@pytest.mark.parametrize("command", ["extend", "evaluate", "resume"])
def test_a_run_on_a_read_only_filesystem_is_refused_by_what_would_write(
    command: str, uninterrupted: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    if command == "resume":
        shutil.rmtree(folder / "checkpoints")
    before = sorted(folder.rglob("*"))

    def refuse(**options: Any) -> None:
        assert options["dir"] == folder
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder / "random"))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    words = {"extend": ("--steps", 300), "evaluate": ("--episodes", 1), "resume": ()}[command]
    code, _, error = cli(command, folder, *words)
    advice = "get write access, or copy the run and use the copy"
    assert (code, error) == (2, f"valueshare: cannot write to {folder}: read-only file system; {advice}\n")
    assert sorted(folder.rglob("*")) == before
