"""All commands together: their order, and one name and one form for one meaning."""

import re

import pytest

from valueshare.cli import main


def test_the_help_begins_with_what_is_used_most(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    listed = re.findall(r"│ ([a-z][a-z-]+) ", capsys.readouterr().out)
    assert listed[:8] == ["train", "report", "watch", "play", "resume", "extend", "evaluate", "best"]
