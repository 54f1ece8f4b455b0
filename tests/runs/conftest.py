"""Runs small enough for tests, and commands in processes of their own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from valueshare.cli import main
from valueshare.runs.storage import leases

# Two populations (double-dqn has another loss), 2 x 3 agents, 4 phases each.
SMALL = [
    *("train", "--env", "CartPole-v1", "--algorithm", "ib-dqn", "double-dqn", "--k", "0", "4"),
    *("--seeds", "2", "--steps", "200", "--eval-interval", "50", "--eval-episodes", "2"),
    *("--hidden", "16", "--batch-size", "8", "--replay-capacity", "120", "--learning-starts", "20"),
    *("--eval-episode-limit", "10", "--target-update-interval", "40"),
]


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _leases_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run at an address begins without the two seconds in which a store settles."""
    monkeypatch.setattr(leases, "SETTLE_SECONDS", 0.05)


@pytest.fixture(scope="session")
def small() -> list[str]:
    return SMALL


@pytest.fixture
def tiny() -> dict[str, Any]:
    """Options of `valueshare.train`: 60 steps, evaluated at 0, 30 and 60."""
    return {
        "steps": 60,
        "eval_interval": 30,
        "eval_episodes": 1,
        "eval_episode_limit": 10,
        "hidden": [8],
        "batch_size": 4,
        "learning_starts": 10,
        "progress": False,
    }


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a command as a process of its own; whatever still runs afterwards is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "valueshare", *(str(word) for word in words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its group can be sent what Ctrl-C sends
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small run, done in one go."""
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    main([*SMALL, "--out", str(folder)])
    return folder


@pytest.fixture
def assert_same_end() -> Callable[[Path, Path], None]:
    """Records, weights, optimisers and counters of two finished runs are equal to the bit."""

    def compare(one: Path, other: Path) -> None:
        for path in sorted((other / "records").iterdir()):
            assert pl.read_parquet(one / "records" / path.name).equals(pl.read_parquet(path))
        for population in sorted((other / "checkpoints").iterdir()):
            last = sorted(population.glob("state-*"))[-1]
            mine = load_file(one / "checkpoints" / population.name / last.name)
            theirs = load_file(last)
            assert mine.keys() == theirs.keys()
            for name, tensor in theirs.items():
                assert torch.equal(mine[name], tensor), name
        assert sorted(p.name for p in (one / "records").iterdir()) == sorted(
            p.name for p in (other / "records").iterdir()
        )

    return compare
