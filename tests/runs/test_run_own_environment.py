"""Environments of one's own: what they raise is said in one line, and by whom."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import valueshare
from valueshare.envs import make_environments
from valueshare.errors import EnvironmentFailed, InvalidInput
from valueshare.runs.engines import EngineOptions

Cli = Callable[..., tuple[int, str, str]]

MODULE = """
import gymnasium
import numpy as np


class Countdown(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, fails_at=10**9, shape=(2,), fails_in="", finite=10**9):
        self.fails_at, self.shape, self.fails_in, self.finite = fails_at, shape, fails_in, finite
        self.steps = 0
        self.see("constructor")

    def see(self, doing):
        if self.fails_in == doing and self.steps >= self.fails_at:
            raise ValueError("no\\nsensor")  # line 17
        return np.full(self.shape, self.steps % 10, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see("reset"), {}

    def step(self, action):
        self.steps += 1
        reward = 1.0 if self.steps < self.finite else float("nan")
        return self.see("step"), reward, self.steps % 10 == 0, False, {}


class Old(Countdown):
    def reset(self, *, seed=None, options=None):
        return self.see("reset")


KINDS = {
    "Fine": {},
    "Constructor": {"fails_in": "constructor", "fails_at": 0},
    "Reset": {"fails_in": "reset", "fails_at": 0},
    "Step": {"fails_in": "step", "fails_at": 2},
    "LateReset": {"fails_in": "reset", "fails_at": 20},
    "LateStep": {"fails_in": "step", "fails_at": 150},
    "Narrow": {"shape": (1,)},  # a row of two would take it twice
    "Scalar": {"shape": ()},
    "Later": {"finite": 150},
    "Nowhere": {"finite": 0},
}
for name, options in KINDS.items():
    gymnasium.register(f"own/{name}-v0", Countdown, max_episode_steps=50, kwargs=options)
gymnasium.register("own/Old-v0", Old, max_episode_steps=50)
"""

QUICK: dict[str, Any] = {
    "seeds": 2,
    "steps": 300,
    "eval_every": 100,
    "eval_episodes": 1,
    "replay_start": 20,
    "hidden": [8],
    "minibatch": 8,
    "progress": False,
}
WORDS = (
    *("--seeds", "2", "--steps", "300", "--eval-every", "100", "--eval-episodes", "1"),
    *("--replay-start", "20", "--hidden", "8", "--minibatch", "8"),
)
RAISED = "raised ValueError: no sensor (own_countdown.py, line 17) in its "


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_countdown.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Constructor", f"{RAISED}constructor"),
        ("Reset", f"{RAISED}reset"),
        ("Step", f"{RAISED}step"),
        ("Narrow", "gave an observation of shape (1,) in its reset, and its observation_space has"),
        ("Scalar", "gave an observation of shape () in its reset, and its observation_space has"),
        ("Nowhere", "gave reward nan in its step: it must be finite"),
        ("Old", "gave a ndarray in its reset, where (observation, info) is wanted"),
    ],
)
def test_what_fails_at_once_is_refused(kind: str, message: str, tmp_path: Path, cli: Cli) -> None:
    env, folder = f"own_countdown:own/{kind}-v0", tmp_path / "run"
    code, out, err = cli("train", "--env", env, *WORDS, "--out", folder)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"valueshare: the environment {env} {message}")
    assert not folder.exists()
    with pytest.raises(InvalidInput) as caught:
        valueshare.train(env, out=folder, **QUICK)
    assert isinstance(caught.value.__cause__, ValueError) == ("ValueError" in message)
    assert not folder.exists()


@pytest.mark.parametrize(("kind", "doing"), [("LateReset", "reset"), ("LateStep", "step")])
def test_what_fails_later_leaves_a_run_that_can_go_on(
    kind: str, doing: str, tmp_path: Path, cli: Cli
) -> None:
    env, folder = f"own_countdown:own/{kind}-v0", tmp_path / "run"
    code, _, err = cli("train", "--env", env, *WORDS, "--out", folder)
    assert (code, err.count("\n")) == (1, 1)
    assert err == (
        f"valueshare: the environment {env} {RAISED}{doing}; all finished phases are safe; mend "
        f"it, then go on with: valueshare resume {folder}\n"
    )
    assert not valueshare.open_run(folder).finished
    with pytest.raises(EnvironmentFailed) as caught:
        valueshare.resume(folder, progress=False)
    assert isinstance(caught.value.__cause__, ValueError)
    gymnasium.registry[f"own/{kind}-v0"].kwargs["fails_in"] = ""  # mended
    assert cli("resume", folder)[0] == 0
    assert valueshare.open_run(folder).finished


def test_a_reward_that_is_no_number_is_not_blamed_on_agents(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="gave reward nan in its step: it must be finite"):
        valueshare.train("own_countdown:own/Later-v0", out=tmp_path / "run", **QUICK)


def test_workers_say_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env = "own_countdown:own/LateStep-v0"
    options = {**QUICK, "progress": True}
    run = valueshare.train(env, out=tmp_path / "run", engine=EngineOptions(workers=2), **options)
    assert not run.finished
    reason = f"the environment {env} {RAISED}step"
    assert run.failures == dict.fromkeys(("population-0-0", "population-0-1"), reason)
    out, err = capfd.readouterr()
    assert err == ""
    assert f"population-0-1 failed: {reason}" in out.splitlines()


def test_a_sound_environment_is_not_touched(tmp_path: Path) -> None:
    run = valueshare.train("own_countdown:own/Fine-v0", out=tmp_path / "run", **QUICK)
    assert run.finished
    assert set(run.records["score"]) == {10.0}  # a reward of 1 for each of 10 steps


def test_an_environment_that_cannot_be_closed_is_over_all_the_same() -> None:
    class Stuck(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, **_: Any) -> None: ...

        def close(self) -> None:
            raise OSError("the door is stuck")

    gymnasium.register("tests/Stuck-v0", Stuck)
    make_environments("tests/Stuck-v0", 1).close()
