"""Signals at moments that are hard to hit: each is raised by the process that it is for."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from valueshare.cli.run_and_report import run_and_report
from valueshare.errors import EnvironmentFailed
from valueshare.runs import run_folder
from valueshare.signals import stop_on_signals

Cli = Callable[..., tuple[int, str, str]]

TRAIN = "train --env CartPole-v1 --seeds 1 --steps 100 --eval-interval 50 --learning-starts 20"

WHILE_IT_IS_IMPORTED = """
import signal, sys

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            try:
                signal.raise_signal(signal.{signal})
            except BaseException:  # as libraries do while they are loaded
                pass

sys.meta_path.insert(0, Slow())
from valueshare.__main__ import run
run()
"""

AFTER_THE_END = """
import os, signal, threading, time
from valueshare import cli

def main():
    threading.Thread(target=time.sleep, args=(50,)).start()
    threading.Timer(0.5, os.kill, [os.getpid(), signal.{signal}]).start()
    raise SystemExit({code})

cli.main = main
from valueshare.__main__ import run
run()
"""


def run(program: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "number", "code"),
    [
        ("valueshare.cli", signal.SIGINT, 130),
        ("valueshare.cli", signal.SIGTERM, 143),
        ("valueshare.training", signal.SIGINT, 130),
        ("valueshare.training", signal.SIGTERM, 75),
    ],
)
def test_while_libraries_are_loaded(module: str, number: signal.Signals, code: int, tmp_path: Path) -> None:
    program = WHILE_IT_IS_IMPORTED.format(module=module, signal=number.name)
    out = tmp_path / "out"
    found = run(program, "reproduce", "lunarlander", "--scale", "smoke", "--out", str(out))
    assert found == (code, "valueshare: interrupted\n")
    assert not out.exists()


def test_when_a_run_is_about_to_be_written_it_begins_and_stops(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, created = tmp_path / "run", run_folder.create_run_folder

    @contextmanager
    def late(*arguments: Any, **options: Any) -> Iterator[None]:
        signal.raise_signal(signal.SIGINT)
        with created(*arguments, **options):
            yield

    monkeypatch.setattr(run_folder, "create_run_folder", late)
    code, _, err = cli(*TRAIN.split(), "--out", out)
    assert (code, err.count("\n")) == (130, 1)
    assert err == f"valueshare: stopped at step 0; resume continues from there: valueshare resume {out}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("asked", [False, True])
def test_environments_that_end_with_the_run_have_not_failed(
    asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> NoReturn:
        if asked:
            signal.raise_signal(signal.SIGTERM)
        raise EnvironmentFailed("they are gone")

    (tmp_path / "config.json").write_text("{}")
    with stop_on_signals() as stop:
        stop()
        with pytest.raises(SystemExit) as ended:
            run_and_report(work, tmp_path, stop)
    err = capsys.readouterr().err
    assert (ended.value.code, "they are gone" in err) == ((75, False) if asked else (1, True))


def test_a_library_that_crashes_is_seen() -> None:
    code, err = run(AFTER_THE_END.format(signal="SIGSEGV", code=0))
    assert (code, "Segmentation fault" in err) == (-signal.SIGSEGV, True)


@pytest.mark.parametrize("code", [0, 2])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_command_that_has_ended_can_be_hurried(name: str, code: int) -> None:
    assert run(AFTER_THE_END.format(signal=name, code=code)) == (code, "")
