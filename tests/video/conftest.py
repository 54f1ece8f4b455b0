"""Runs of a few steps that several tests of videos play."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from episodes import ALGORITHMS_PLAYED, HIDDEN, SHORT, K

import valueshare


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent of each architecture: 0 ib-dqn, 1 dueling-dqn, 2 rdq, 3 ib-iqn."""
    out = tmp_path_factory.mktemp("runs") / "cartpole"
    valueshare.train("CartPole-v1", ALGORITHMS_PLAYED, k=K, seeds=1, hidden=HIDDEN, out=out, **SHORT)
    return out


@pytest.fixture(scope="session")
def pong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "pong"
    small = {"steps": 24, "eval_interval": 24, "eval_episodes": 0, "eval_timesteps": 8}
    options = {"eval_envs": 1, "replay_capacity": 64, "learning_starts": 8, "batch_size": 2}
    every: dict[str, Any] = {**small, **options}
    valueshare.train("Pong", "ib-dqn", k=18, seeds=1, out=out, progress=False, **every)
    return out
