"""A study's command given a second time."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from undrawn import undrawn

from valueshare.cli import main


def check_repeated(command: Sequence[str], out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command makes only the report again; one with other settings is refused."""
    file = out / "report" / "report.json"
    first = json.loads(file.read_text())
    file.unlink()
    with undrawn():
        main(command)
    assert "this run is finished" in capsys.readouterr().out
    assert json.loads(file.read_text()) == first
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--seeds", "3"])
    assert exit_.value.code == 2
    assert "other settings" in capsys.readouterr().err
