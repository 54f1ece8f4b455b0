"""Running out of memory ends a command with one line, whoever says it and wherever it happens."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from valueshare import cli as command_line
from valueshare import host_memory
from valueshare.errors import InvalidInput, first_line
from valueshare.runs.workers import local
from valueshare.training import train

Cli = Callable[..., tuple[int, str, str]]


class PanicError(BaseException):
    """An error of a library that is not an `Exception`."""


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc"), PanicError("capacity overflow")])
def test_a_command_that_runs_out_of_memory_says_so(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(command_line.COMMANDS, "bench import", fail)
    code, _, said = cli("bench", "import")
    assert (code, said) == (1, f"valueshare: {command_line.OUT_OF_MEMORY} ({first_line(error)})\n")


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setitem(command_line.COMMANDS, "bench import", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        cli("bench", "import")


def test_training_that_runs_out_says_what_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(local, "run_population", fail)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"out of memory \(planned: requires .* resume 'my run'"):
        train("CartPole-v1", seeds=1, steps=100, eval_interval=100, out="my run", progress=False)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_results_are_refused_within_a_limit_of_the_address_space(tmp_path: Path) -> None:
    """1.2 GB of text beside 2 GB of addresses: the file has no bytes on the disk."""
    with (tmp_path / "big.csv").open("wb") as file:
        file.write(b"env,algorithm,seed,step,score\n")
        file.truncate(1_200_000_000)
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
    command = "from valueshare.cli import main; main(['report', 'big.csv'])"
    done = subprocess.run(
        [sys.executable, "-c", limited + command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "big.csv would take 9.6 GB of memory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["big.csv"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.parametrize("words", [["train", "--plan", "--env", "CartPole-v1"], ["report", "nothing"]])
@pytest.mark.parametrize("megabytes", [300, 700, 1_900])
def test_libraries_that_do_not_fit_into_the_address_space(words: list[str], megabytes: int, tmp_path: Path) -> None:
    """PyTorch's allocator aborts, and Polars' hangs: the limit is looked at before they are loaded."""
    limit = megabytes * 10**6
    program = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit})); "
    program += "runpy.run_module('valueshare', run_name='__main__', alter_sys=True)"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"valueshare: {host_memory.NO_ADDRESSES}\n")


def test_an_error_of_the_system_is_one_line(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    def fail() -> None:
        raise OSError("no libllvmlite.so\nbecause")

    monkeypatch.setitem(command_line.COMMANDS, "bench import", fail)
    assert cli("bench", "import")[1:] == ("", "valueshare: no libllvmlite.so\\nbecause\n")
