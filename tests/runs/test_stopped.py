"""The line of a run that was stopped, and the first lines of the attempt that resumes it."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from valueshare.population.train import TrainingResult, train_population
from valueshare.records import CheckpointPaths, read_progress
from valueshare.runs.progress import reset_progress
from valueshare.runs.stopped import stopped_at
from valueshare.runs.workers import tasks

Cli = Callable[..., tuple[int, str, str]]
TRAIN = [
    *("train", "--env", "CartPole-v1", "--algorithm", "dqn", "--seeds", "2", "--steps", "60", "--no-compile"),
    *("--eval-interval", "60", "--checkpoint-interval", "20", "--eval-episodes", "1", "--eval-episode-limit", "10"),
    *("--hidden", "8", "--batch-size", "8", "--replay-capacity", "60", "--learning-starts", "10"),
]
INTERVAL = "(train --checkpoint-interval sets how often there is one)"
TWO = ("population-0-0", "population-0-1")


@pytest.fixture
def stop(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command until its first population is at a step; the line at its end."""

    def run(at: int, *words: object) -> str:
        def train(*args: Any, on_step: Callable[[int], None], **rest: Any) -> TrainingResult:
            def on_step_or_signal(step: int) -> None:
                on_step(step)
                if step == at:
                    signal.raise_signal(signal.SIGINT)

            return train_population(*args, on_step=on_step_or_signal, **rest)

        with monkeypatch.context() as patched:
            patched.setattr(tasks, "train_population", train)
            code, _, err = cli(*words)
        assert (code, err.count("\n")) == (130, 1)
        return err

    return run


def test_what_is_lost_and_where_resume_continues(stop: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert stop(7, *TRAIN, "--out", folder) == (
        f"valueshare: stopped at step 7; there is no checkpoint yet {INTERVAL}, so resume starts again from step 0: "
        f"valueshare resume {folder}\n"
    )
    assert read_progress(folder, "population-0").step == 7  # not that of the last second
    assert stop(35, "resume", folder) == (
        f"valueshare: stopped at step 35; resume continues from the checkpoint at step 20 {INTERVAL}: "
        f"valueshare resume {folder}\n"
    )


def test_nothing_is_lost_at_a_checkpoint(stop: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stop(25, *TRAIN, "--out", folder)
    reset_progress(folder, "population-0", 20, 1)  # as if it had been stopped there
    assert stopped_at(folder) == (20, 20, "")
    assert stop(20, *TRAIN, "--out", tmp_path / "other") == (
        f"valueshare: stopped at step 20; resume continues from there: valueshare resume {tmp_path / 'other'}\n"
    )


@pytest.fixture
def split_run(stop: Callable[..., str], cli: Cli, tmp_path: Path) -> Path:
    """A run of two populations, stopped within the second phase of the first."""
    folder = tmp_path / "run"
    stop(35, *TRAIN, "--population-agents", 1, "--out", folder)
    return folder


def test_of_several_populations(split_run: Path) -> None:
    assert stopped_at(split_run) == (35, 20, TWO[0])  # the second has not begun
    reset_progress(split_run, TWO[1], 7, 0)
    assert stopped_at(split_run) == (7, 0, f"{TWO[1]}, the least advanced")
    assert str(stopped_at(split_run)) == f"step 7 of {TWO[1]}, the least advanced"
    reset_progress(split_run, TWO[0], 20, 1)  # nothing of it is lost
    assert stopped_at(split_run) == (7, 0, TWO[1])
    reset_progress(split_run, TWO[1], 0, 0)
    assert stopped_at(split_run) == (20, 20, TWO[0])


def test_workers_that_resume_begin_at_the_checkpoint(split_run: Path, cli: Cli) -> None:
    """Before, the first line had the step of the attempt that was stopped, and speeds counted from there."""
    reset_progress(split_run, TWO[0], 39, 1)  # as of an attempt that was killed
    assert len(CheckpointPaths(split_run, TWO[0]).manifests()) == 1
    code, said, _ = cli("resume", split_run, "--workers", 2)
    assert code == 0
    shown = re.findall(r"part (\d) of 2 \| 1 agent at step (\d+) of 60(.*)", said)
    steps = {part: [int(step) for number, step, _ in shown if number == part] for part in "12"}
    assert (steps["1"][0], steps["2"][0]) == (20, 0)
    assert all(mine == sorted(mine) for mine in steps.values())
    assert "agent-steps/s" not in shown[0][2]
