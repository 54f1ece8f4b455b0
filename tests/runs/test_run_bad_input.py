"""What cannot be run is refused in one line, with exit code 2, and nothing is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from valueshare.errors import InvalidInput
from valueshare.experiments.plans import make_plan


class Dictionary(gymnasium.Env[Any, Any]):
    def __init__(self, **_: Any) -> None:
        box = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"a": box})
        self.action_space = gymnasium.spaces.Discrete(2)


gymnasium.register("tests/Dictionary-v0", Dictionary)

BAD = {
    "continuous actions": (["--env", "Pendulum-v1"], "choose an environment with Discrete actions"),
    "dictionary observations": (["--env", "tests/Dictionary-v0"], "choose one with Box"),
    "unknown environment": (["--env", "CartPol-v1"], "did you mean CartPole-v1"),
    "unknown algorithm": (["--algorithm", "ib-dqm"], "did you mean ib-dqn"),
    "far algorithm": (["--algorithm", "ppo"], "write one of dqn, double-dqn"),
    "k beyond float32": (["--k", "1e300"], "k = 1e+300: write a finite number >= 0"),
    "a seed beyond 64 bits": (["--first-seed", str(2**64)], "at most 64 bits"),
    "more steps than are counted": (["--steps", "9" * 23], "write a number <= 1,000,000,000,000"),
    "a layer too wide": (["--hidden", "9" * 23], "layer sizes are from 1 to 1,000,000"),
    "a network too large": (["--hidden", "1000000", "1000000"], "does not fit into memory"),
    "k below zero": (["--k", "0", "-1"], "k = -1.0: write a finite number >= 0"),
    "k twice": (["--k", "1", "1"], "an agent twice"),
    "k is no number": (["--k", "many"], "--k"),
    "small replay": (
        ["--replay-capacity", "10", "--minibatch", "11"],
        "replay_capacity = 10 is smaller than minibatch = 11",
    ),
    "no CUDA": (["--device", "cuda:7"], "no such CUDA device"),
    "no device": (["--device", "abacus"], "write cpu, cuda or cuda:0"),
    "no seeds": (["--seeds", "0"], "seeds = 0"),
    "step size": (["--step-size", "0"], "step_size = 0.0: write a number > 0"),
    "phases": (["--eval-every", "100", "--phase-steps", "30"], "no multiple of phase_steps"),
    "loss": (["--loss", "l3"], "--loss"),
    "unknown option": (["--minibach", "3"], "--minibatch"),
    "no evaluation steps": (["--eval-episode-limit", "0"], "eval_episode_limit = 0"),
    "episodes below zero": (
        ["--eval-episodes", "-1", "--eval-timesteps", "100"],
        "eval_episodes = -1: write a number >= 0",
    ),
    "no environments": (["--threads", "-1"], "threads = -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    monkeypatch.chdir(tmp_path)
    words, message = BAD[name]
    env = [] if "--env" in words else ["--env", "CartPole-v1"]
    code, _, err = cli("train", *env, "--seeds", "2", *words, "--out", "deep/run")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("valueshare: ")
    assert list(tmp_path.iterdir()) == []


def test_settings_by_name_have_their_nearest_name() -> None:
    with pytest.raises(InvalidInput, match="did you mean minibatch"):
        make_plan("CartPole-v1", minibach=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="first_seed goes with a number"):
        make_plan("CartPole-v1", seeds=[1, 2], first_seed=3)


def test_numpy_seeds_are_seeds() -> None:
    count = make_plan("CartPole-v1", seeds=np.int64(3), first_seed=5)  # type: ignore[arg-type]
    assert count.agents["seed"].to_list() == [5, 6, 7]
    listed = make_plan("CartPole-v1", seeds=np.array([5, 6, 7]))
    assert listed.agents.equals(count.agents)


def test_an_environment_without_an_end_needs_an_evaluation_limit(
    tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    class Endless(gymnasium.Env[Any, Any]):
        def __init__(self, **_: Any) -> None:
            self.observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
            self.action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register("tests/Endless-v0", Endless)
    code, _, err = cli("train", "--env", "tests/Endless-v0", "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1)
    assert "set eval_episode_limit" in err
    assert not (tmp_path / "run").exists()
