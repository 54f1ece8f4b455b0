"""The command line without a process of its own."""

from collections.abc import Callable
from typing import NamedTuple

import pytest


class Said(NamedTuple):
    """What a command printed, and its exit code."""

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
