"""The options of workers: wrong ones are refused in one line, before anything is made."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from torch import nn

import valueshare
from valueshare import resources, starting
from valueshare.errors import InvalidInput
from valueshare.host_memory import format_bytes
from valueshare.population import memory
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.launchers import ExecutionOptions
from valueshare.runs.planning import make_plan
from valueshare.runs.shards import balance
from valueshare.runs.workers import local
from valueshare.runs.workers.local import ProcessLauncher

Cli = Callable[..., tuple[int, str, str]]

TRAIN = ("train", "--env", "CartPole-v1")
TWO = ("--workers", "2")


def sizes(workers: int, algorithms: list[str], k: list[float], seeds: int, most: int = 0) -> Any:
    """How many agents the populations have, once they are split for so many workers."""
    plan = make_plan("CartPole-v1", algorithms, k=k, seeds=seeds, steps=1_000)
    options = LauncherOptions(workers=workers, population_agents=most)
    made = ProcessLauncher(options).split(plan)
    return [spec.agents.height for spec in made.populations.values()]


def test_populations_are_split_for_the_workers() -> None:
    one = (["ib-dqn"], [0.0])
    assert sizes(2, *one, 64) == [32, 32]
    assert sizes(3, *one, 64) == [21, 21, 22]
    assert sizes(4, *one, 2) == [1, 1]
    assert sizes(2, *one, 64, most=8) == [8] * 8  # as small as asked for
    # Enough for all workers: two of the same size are not split, for four workers each is halved.
    two = (["ib-dqn", "double-dqn"], [0.0])
    assert sizes(2, *two, 16) == [16, 16]
    assert sizes(4, *two, 16) == [8, 8, 8, 8]
    # One twice as large as the other. A tick costs as much as 8 agents: 4 + 8 is sooner done than
    # any split, but 128 + 8 is not: halves of both take 64 + 8 and 32 + 8, one after the other.
    uneven = (["ib-dqn", "double-dqn"], [0.0, 4.0])
    assert sizes(2, *uneven, 2) == [4, 2]
    assert sizes(2, *uneven, 64) == [64, 64, 32, 32]


def test_a_split_that_is_there_stays() -> None:
    plan = replace(make_plan("CartPole-v1", seeds=8), chunks={"population-0": 4})
    assert balance(plan, 2).chunks == {"population-0": 4}
    assert balance(plan, 8).chunks == {"population-0": 8}


def test_memory_is_that_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = ProcessLauncher(LauncherOptions(workers=2))
    plan = launcher.split(make_plan("CartPole-v1", seeds=2, steps=1_000))
    one = memory.process_bytes(
        memory.estimate(plan.populations["population-0-0"]), torch.device("cpu")
    )  # with libraries
    assert one > memory.PROCESS_BYTES
    monkeypatch.setattr(memory, "free_bytes", lambda _: int(2.02 * one / memory.USABLE))
    said = launcher.check(plan, ExecutionOptions()).memory
    assert said.startswith(f"requires {format_bytes(2 * one)} for 2 populations at once (600.0 MB per process); ")
    monkeypatch.setattr(memory, "free_bytes", lambda _: int(1.98 * one / memory.USABLE))
    with pytest.raises(InvalidInput, match=r"`workers = 2`: .* are free; write fewer"):
        launcher.check(plan, ExecutionOptions())


gymnasium.register("tests/Own-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")


def network(shape: Any, k: float) -> nn.Module:
    return nn.Linear(shape.observation[0], shape.actions)


def test_what_workers_cannot_do(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def refused(*words: str) -> str:
        code, _, err = cli(*words)
        assert (code, err.count("\n")) == (2, 1)
        assert list(tmp_path.iterdir()) == []
        return err

    assert "--workers -2: write a number >= 0" in refused(*TRAIN, "--workers", "-2")
    assert "--workers" in refused(*TRAIN, "--workers", "two")
    assert "is for the local launcher" in refused(*TRAIN, *TWO, "--launcher", "ray")
    for study in ("tabular", "reproduce gridworld", "reproduce gridworld-actions"):  # they have no processes
        for option in ("--workers", "--population-agents"):
            assert f"{study} has no option {option}" in refused(*study.split(), option, "2")
            assert option not in cli(*study.split(), "--help")[1]
    with pytest.raises(InvalidInput, match="a custom network trains in this process only"):
        valueshare.train("CartPole-v1", network=network, launcher=LauncherOptions(workers=2))
    assert "put its module before the name, like my_package:tests/Own-v0" in refused(
        *("train", "--env", "tests/Own-v0", "--eval-episode-limit", "10", *TWO)
    )
    for module in (local, resources, starting):
        monkeypatch.setattr(module, "checked_device", torch.device)  # as if there were a GPU
    assert "one batched program already" in refused(*TRAIN, *TWO, "--device", "cuda")
