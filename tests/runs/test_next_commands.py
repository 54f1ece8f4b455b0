"""The commands that `train` prints at its end work as they are copied."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]

SMALL = """--env CartPole-v1 --k 0 2 --seeds 2 --steps 40 --eval-interval 20 --eval-episodes 1 --hidden 8 --batch-size 4
    --replay-capacity 100 --learning-starts 10 --eval-episode-limit 20 --workers 1 --no-compile"""


def test_the_commands_that_come_next_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, _ = cli("train", *SMALL.split(), "--out", "it's my run")
    lines = said.partition("next:\n")[2].splitlines()
    commands = [shlex.split(line) for line in lines]
    assert code == 0
    assert [words[:2] for words in commands] == [["valueshare", name] for name in ("report", "watch", "play")]
    assert all(words[2] == "it's my run" for words in commands)
    for words in commands:
        if words[1] != "watch":  # it ends with Ctrl-C
            assert cli(*words[1:])[0] == 0, words
    assert Path("it's my run/report/report.html").exists()
    assert Path("agent.mp4").exists()
