"""A sweep that is piped says a line now and then; its arithmetic by hand."""

import sys

import pytest

from valueshare import gridworld, progress_bar, sweep


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_by_hand() -> None:
    clock, said = Clock(), list[str]()
    advance = progress_bar.lines(10_000, said.append, clock)
    clock.now = 105.0
    advance(1_000)
    assert said == []  # too early
    clock.now = 110.0
    advance(1_000)
    # 2,000 in 10 s are 200 a second; 8,000 are left: 40 s.
    assert said == ["2,000 of 10,000 timesteps | 200 timesteps/s | 0:00:40 left"]
    clock.now = 119.0
    advance(1_000)
    assert len(said) == 1  # 9 s since the last line
    clock.now = 120.0
    advance(3_000)
    # 6,000 in 20 s are 300 a second; 4,000 are left: 13.3 s.
    assert said[1:] == ["6,000 of 10,000 timesteps | 300 timesteps/s | 0:00:13 left"]
    clock.now = 140.0
    advance(4_000)
    assert len(said) == 2  # the end is for the caller to tell


def test_no_time_is_estimated_from_nothing_done() -> None:
    clock, said = Clock(), list[str]()
    advance = progress_bar.lines(10, said.append, clock, "episodes")
    clock.now = 112.0
    advance(0)
    assert said == ["0 of 10 episodes | 0 episodes/s | none in 12 s"]


def test_a_sweep_says_them_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_bar, "LINE_SECONDS", 0.0)
    monkeypatch.setattr("valueshare.tabular.sweep.TASK_TIMESTEPS", 1)  # 16 runs a task
    sweep(gridworld(), seeds=64, steps=100, progress=True, threads=1)
    lines = capsys.readouterr().out.splitlines()
    done = [line.split(" of ")[0] for line in lines]
    assert done == ["1,600", "3,200", "4,800"]  # of 6,400
    assert all(" of 6,400 timesteps | " in line for line in lines)
    sweep(gridworld(), seeds=64, steps=100, threads=1)  # not unless asked for
    monkeypatch.setattr(sys, "stdout", None)
    sweep(gridworld(), seeds=64, steps=100, progress=True, threads=1)  # nowhere to say it
    monkeypatch.undo()
    assert capsys.readouterr().out == ""
