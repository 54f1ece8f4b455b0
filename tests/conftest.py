"""The command line without a process of its own; signals, disk and time limits of all tests."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SLOW_SECONDS = 3_600  # at most, of a test marked slow; the others have the limit of pyproject.toml


def pytest_configure() -> None:
    """Tests send SIGINT to processes, and a shell's background jobs ignore it from the start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.fixture(autouse=True)
def _the_cpu_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test leaves the device out, it is the CPU on a machine with a GPU too."""
    if Path("/dev/nvidiactl").exists():
        monkeypatch.setattr("valueshare.resources._has_cuda", lambda: False)


@pytest.fixture(autouse=True, scope="session")
def _the_disk_is_not_waited_for() -> Iterator[None]:
    """Nothing that is tested outlives a power failure, and a run waits for the disk a hundred times.

    When files are synced, and what happens where that fails, is seen by the tests that replace `os.fsync` themselves;
    processes that tests start have the real one.
    """

    def fsync(handle: int) -> None:
        os.fstat(handle)  # fails, too, where the file is closed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


class Said(NamedTuple):
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs a command: code, out, err = cli("report", folder)."""
    from valueshare.cli import main

    def run(*words: object) -> Said:
        capsys.readouterr()
        code: object = 0
        try:
            main([str(word) for word in words])
        except SystemExit as exit_:
            code = exit_.code or 0
        said = capsys.readouterr()
        assert isinstance(code, int)
        return Said(code, said.out, said.err)

    return run
