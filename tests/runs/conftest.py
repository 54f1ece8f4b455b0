"""A run small enough for tests, and the command line without a process of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from valueshare.cli import main

# Two populations (double-dqn has another loss), 2 x 3 agents, 4 phases each.
SMALL = [
    *("train", "--env", "CartPole-v1", "--algorithm", "ib-dqn", "double-dqn", "--k", "0", "4"),
    *("--seeds", "2", "--steps", "400", "--eval-every", "100", "--eval-episodes", "2"),
    *("--hidden", "16", "--minibatch", "8", "--replay-capacity", "250", "--replay-start", "20"),
    *("--eval-episode-limit", "20", "--target-every", "40"),
]


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Cli = Callable[..., Said]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
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


@pytest.fixture
def small() -> list[str]:
    return SMALL


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
