"""Environments of one's own: what they raise is said in one line, and by whom."""

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
import pytest

import valueshare
from valueshare.envs import make_environments
from valueshare.envs.gymnasium import as_seed, check_environment
from valueshare.errors import EnvironmentFailed, InvalidInput
from valueshare.runs.launcher_options import LauncherOptions

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


class Quits(Countdown):
    def see(self, doing):
        if self.fails_in == doing and self.steps >= self.fails_at:
            raise SystemExit("enough")  # line 38
        return super().see("more")


class Odd(Countdown):
    def __init__(self, step):
        super().__init__()
        self.gives = step

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return eval(self.gives)


class Drawn(Countdown):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None, fails_at=10**9, **options):
        super().__init__(fails_at=fails_at, **options)
        self.render_mode = render_mode

    def render(self):
        self.see("render")
        return np.zeros((32, 32, 3), np.uint8)


CHANGED_SHAPE, CHANGED_ACTIONS = (2,), 3


class Changing(Drawn):
    def __init__(self, render_mode=None):
        super().__init__(render_mode, shape=CHANGED_SHAPE)
        self.observation_space = gymnasium.spaces.Box(0, 100, CHANGED_SHAPE, np.float32)
        self.action_space = gymnasium.spaces.Discrete(CHANGED_ACTIONS)


gymnasium.register("own/Changing-v0", Changing, max_episode_steps=50)
gymnasium.register("own/Drawn-v0", Drawn, max_episode_steps=50, kwargs={"fails_in": ""})
ODD = {
    "Four": "observation, reward, terminated, info",
    "Six": "observation, reward, terminated, truncated, info, 0",
    "Nothing": "None",
    "Ended": "observation, reward, None, truncated, info",
    "Cut": "observation, reward, terminated, 'no', info",
    "Numbers": "observation, reward, int(terminated), np.array(truncated), info",
    "Blind": "observation if self.steps < 150 else observation * np.nan, reward, False, True, info",
}
for name, step in ODD.items():
    gymnasium.register(f"own/{name}-v0", Odd, max_episode_steps=50, kwargs={"step": step})
gymnasium.register("own/Endless-v0", Odd, kwargs={"step": ODD["Four"]})
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


class Drawing(Countdown):
    # Seeds the global generator of NumPy, which takes 32 bits.
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None, most=2**31 - 1):
        super().__init__()
        self.render_mode, self.most = render_mode, most

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            if not 0 <= seed <= self.most:
                raise ValueError(f"Seed must be between 0 and {self.most}")
            np.random.seed(seed)
        return np.random.uniform(0, 1, 2).astype(np.float32), {}

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)


gymnasium.register("own/Drawing-v0", Drawing, max_episode_steps=50)
gymnasium.register("own/FewSeeds-v0", Drawing, max_episode_steps=50, kwargs={"most": 65_535})


class Images(Countdown):
    def __init__(self, size):
        super().__init__(shape=size)
        self.observation_space = gymnasium.spaces.Box(0, 255, size, np.uint8)

    def see(self, doing):
        return super().see(doing).astype(np.uint8)


gymnasium.register("own/Images-v0", Images, max_episode_steps=50, kwargs={"size": (4, 84, 84)})
gymnasium.register("own/ChannelsLast-v0", Images, max_episode_steps=50, kwargs={"size": (84, 84, 3)})
for name in ("Constructor", "Reset", "Step", "LateReset", "LateStep"):
    options = dict(KINDS[name])
    gymnasium.register(f"own/{name}Quits-v0", Quits, max_episode_steps=50, kwargs=options)


class Unseeded(Countdown):
    # Draws from the global generator of NumPy, which no reset seeds.
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.random.uniform(0, 1, 2).astype(np.float32), {}


gymnasium.register("own/Unseeded-v0", Unseeded, max_episode_steps=50)
"""

QUICK: dict[str, Any] = {
    "seeds": 2,
    "steps": 300,
    "eval_interval": 100,
    "eval_episodes": 1,
    "learning_starts": 20,
    "hidden": [8],
    "batch_size": 8,
    "progress": False,
}
WORDS = (
    *("--seeds", "2", "--steps", "300", "--eval-interval", "100", "--eval-episodes", "1"),
    *("--learning-starts", "20", "--hidden", "8", "--batch-size", "8"),
)
RAISED = "raised ValueError: no sensor (own_countdown.py, line 17) in its "
QUIT = "raised SystemExit: enough (own_countdown.py, line 38) in its "
FIVE = "return 5 values (observation, reward, terminated, truncated, info)"


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_countdown.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Constructor", f"{RAISED}constructor"),
        ("Reset", f"{RAISED}reset"),
        ("Step", f"{RAISED}step"),
        ("Narrow", "gave an observation of shape (1,) in its reset, and its observation_space has"),
        ("Scalar", "gave an observation of shape () in its reset, and its observation_space has"),
        ("Nowhere", "gave reward nan in its step: it must be finite"),
        ("FewSeeds", "raised ValueError: Seed must be between 0 and 65535 ("),
        ("Old", "gave a ndarray in its reset, where (observation, info) is wanted"),
        ("ConstructorQuits", f"{QUIT}constructor"),
        ("ResetQuits", f"{QUIT}reset"),
        ("StepQuits", f"{QUIT}step"),
        ("Four", f"gave 4 values in its step: {FIVE}"),
        ("Six", f"gave more than 5 values in its step: {FIVE}"),
        ("Nothing", f"gave something else in its step: {FIVE}"),
        ("Ended", f"gave terminated None in its step, neither True nor False: {FIVE}"),
        ("Cut", f"gave truncated 'no' in its step, neither True nor False: {FIVE}"),
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


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("\nundefined", "NameError: name 'undefined' is not defined (own_module.py, line 2)"),
        ("raise SystemExit(3)", "SystemExit: 3 (own_module.py, line 1)"),
    ],
)
def test_what_a_module_raises_is_not_of_a_constructor(text: str, raised: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "code" / "own_module.py").write_text(text)
    env = "own_module:own/New-v0"
    message = f"valueshare: the environment {env} raised {raised} in its module own_module\n"
    assert tuple(cli("train", "--env", env, *WORDS, "--out", tmp_path / "run")) == (2, "", message)


def test_seeds_have_31_bits(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "run"
    run = valueshare.train("own_countdown:own/Drawing-v0", out=folder, **QUICK)
    assert run.finished
    assert run.evaluate(episodes=2, seeds_from=2**31 - 1, progress=False).height == 4
    code, _, err = cli("play", folder, "--agent", 0, "--video", tmp_path / "out.gif")
    assert code == 0, err
    assert [as_seed(seed) for seed in (0, 7, 2**31 - 1)] == [0, 7, 2**31 - 1]
    assert as_seed(2**63 + 2**40 + 7) == 2**9 + 5  # 2^40 -> 2^(40-31); 7 xor 2^(63-62) = 5


def test_an_environment_that_ignores_its_seed_is_noted(
    tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    """Once per run, in the plan and before training; Drawing draws from the same generator, and seeds it."""
    env, folder = "own_countdown:own/Unseeded-v0", tmp_path / "run"
    note = (
        f"{env}: reset(seed=2147483647) gave different observations twice, so results cannot be repeated: call "
        "super().reset(seed=seed) in its reset, and draw from self.np_random"
    )
    for more in (["--plan"], []):
        code, out, err = cli("train", "--env", env, *WORDS, "--out", folder, *more)
        assert (code, out.splitlines().count(f"note: {note}"), err) == (0, 1, "")
    assert check_environment(env) == note
    assert check_environment("own_countdown:own/Drawing-v0") is None
    assert check_environment("CartPole-v1") is None
    valueshare.train(env, out=tmp_path / "other", **QUICK)
    assert caplog.messages.count(note) == 1


def test_what_no_wrapper_of_gymnasium_takes_apart() -> None:
    """Without a limit of episodes a step's values come as they are."""
    environments = make_environments("own_countdown:own/Endless-v0", 1)
    environments.reset([0])
    with pytest.raises(EnvironmentFailed, match=re.escape(f"gave 4 values in its step: {FIVE}")):
        environments.step([0])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("LateStep", f"{RAISED}step"),
        ("LateResetQuits", f"{QUIT}reset"),
        pytest.param("LateReset", f"{RAISED}reset", marks=pytest.mark.slow),
        pytest.param("LateStepQuits", f"{QUIT}step", marks=pytest.mark.slow),
    ],
)
def test_what_fails_later_leaves_a_run_that_can_go_on(
    kind: str, message: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, folder = f"own_countdown:own/{kind}-v0", tmp_path / "run"
    code, _, err = cli("train", "--env", env, *WORDS, "--out", folder)
    assert (code, err.count("\n")) == (1, 1)
    # Of those that fail in a reset, the first reset after the evaluation is within the first phase.
    phases = "no checkpoint yet" if "Reset" in kind else "all checkpoints are intact"
    assert err == (
        f"valueshare: the environment {env} {message}; {phases}; fix it, then resume with: valueshare resume {folder}\n"
    )
    assert not valueshare.open_run(folder).finished
    with pytest.raises(EnvironmentFailed) as caught:
        valueshare.resume(folder, progress=False)
    assert type(caught.value.__cause__).__name__ in message
    monkeypatch.setitem(gymnasium.registry[f"own/{kind}-v0"].kwargs, "fails_in", "")  # fixed
    assert cli("resume", folder)[0] == 0
    assert valueshare.open_run(folder).finished


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fails_in": "step", "fails_at": 3}, f"{RAISED}step"),
        ({"fails_in": "reset", "fails_at": 0}, f"{RAISED}reset"),
        ({"fails_in": "render", "fails_at": 3}, f"{RAISED}render"),
        ({"finite": 3}, "gave reward nan in its step: it must be finite"),
        ({"shape": (1,)}, "gave an observation of shape (1,) in its reset, and its "),
    ],
)
def test_what_fails_while_it_is_played(
    options: dict[str, Any], message: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, folder = "own_countdown:own/Drawn-v0", tmp_path / "run"
    valueshare.train(env, out=folder, **{**QUICK, "seeds": 1, "steps": 100})
    for name, value in options.items():
        monkeypatch.setitem(gymnasium.registry["own/Drawn-v0"].kwargs, name, value)
    code, out, err = cli("play", folder, "--agent", 0, "--video", tmp_path / "new" / "out.gif")
    assert (code, out, err.count("\n")) == (1, f"importing own_countdown for {env}\n", 1)
    assert err.startswith(f"valueshare: the environment {env} {message}")
    assert not (tmp_path / "new").exists()


def test_a_reward_that_is_no_number_is_not_blamed_on_agents(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="gave reward nan in its step: it must be finite"):
        valueshare.train("own_countdown:own/Later-v0", out=tmp_path / "run", **QUICK)


def test_nor_is_an_observation(tmp_path: Path) -> None:
    message = "gave observation [nan, nan] in its step: it must be finite"
    with pytest.raises(EnvironmentFailed, match=re.escape(message)):
        valueshare.train("own_countdown:own/Blind-v0", out=tmp_path / "run", **QUICK)


def test_nor_is_the_first_one_of_an_episode() -> None:
    """Those of the trial, of a phase's start and after an episode's end are one and the same."""

    class Lost(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        lost_from = 0

        def __init__(self, **_: Any) -> None:
            pass

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            Lost.lost_from -= 1
            return np.full(2, 0.0 if Lost.lost_from >= 0 else np.nan, np.float32), {}

        def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros(2, np.float32), 0.0, True, False, {}

    gymnasium.register("tests/Lost-v0", Lost, max_episode_steps=5)
    message = re.escape("tests/Lost-v0 gave observation [nan, nan] in its reset: it must be finite")
    with pytest.raises(InvalidInput, match=message):
        check_environment("tests/Lost-v0")
    environments = make_environments("tests/Lost-v0", 2)
    Lost.lost_from = 1  # the second environment of two
    with pytest.raises(EnvironmentFailed, match=message):
        environments.reset([0, 1])
    Lost.lost_from = 2
    environments.reset([0, 1])
    with pytest.raises(EnvironmentFailed, match=message):
        environments.step([0, 0])


@pytest.mark.slow
def test_workers_say_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env = "own_countdown:own/LateStep-v0"
    options = {**QUICK, "progress": True}
    run = valueshare.train(env, out=tmp_path / "run", launcher=LauncherOptions(workers=2), **options)
    assert not run.finished
    reason = f"the environment {env} {RAISED}step"
    assert run.failures == dict.fromkeys(("population-0-0", "population-0-1"), reason)
    out, err = capfd.readouterr()
    assert err == ""
    assert f"population-0-1 failed: {reason}" in out.splitlines()


@pytest.mark.parametrize("kind", ["Fine", "Numbers"])
def test_a_sound_environment_is_not_touched(kind: str, tmp_path: Path) -> None:
    run = valueshare.train(f"own_countdown:own/{kind}-v0", out=tmp_path / "run", **QUICK)
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


def test_what_a_signal_raises_is_not_blamed_on_an_environment() -> None:
    """A worker of Ray's that is sent away exits by a handler, wherever it is."""

    class Interrupted(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, **_: Any) -> None: ...

        def reset(self, **_: Any) -> Any:
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            signal.raise_signal(signal.SIGTERM)

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(number)

    gymnasium.register("tests/Interrupted-v0", Interrupted)
    environments = make_environments("tests/Interrupted-v0", 1)
    environments.reset([0])
    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit):
            environments.step(np.zeros(1, np.int64))
    finally:
        signal.signal(signal.SIGTERM, before)


def test_images_train_with_the_preset_and_channels_last_are_refused(cli: Cli, tmp_path: Path) -> None:
    words = (
        "--steps",
        "30",
        "--eval-interval",
        "30",
        "--eval-episodes",
        "1",
        "--seeds",
        "1",
        "--out",
        tmp_path / "run",
    )
    code, _, err = cli("train", "--env", "own_countdown:own/ChannelsLast-v0", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "observations of shape (84, 84, 3): images are channels first here, (3, 84, 84); transpose them with " in err
    code, out, err = cli("train", "--env", "own_countdown:own/Images-v0", *words)
    assert (code, "no agent diverged" in out) == (0, True), err


def test_commands_to_copy_find_the_module_of_an_environment(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "my code")
    late, fine = tmp_path / "late", tmp_path / "fine"
    err = cli("train", "--env", "own_countdown:own/LateReset-v0", *WORDS, "--out", late)[2]
    assert err.endswith(f"resume with: PYTHONPATH='my code' valueshare resume {late}\n")
    out = cli("train", "--env", "own_countdown:own/Fine-v0", *WORDS, "--out", fine)[1]
    assert f"\n  valueshare report {fine}\n" in out
    assert f"\n  PYTHONPATH='my code' valueshare play {fine} " in out
    out = cli("train", "--env", "CartPole-v1", *WORDS, "--out", tmp_path / "known")[1]
    assert "PYTHONPATH" not in out


def test_a_changed_environment_is_named_where_a_run_resumes(tmp_path: Path, cli: Cli) -> None:
    env, folder = "own_countdown:own/Changing-v0", tmp_path / "run"
    valueshare.train(env, out=folder, **QUICK, should_stop=iter([False] * 150 + [True] * 10**6).__next__)
    trained = "but this run was trained with {}: restore the environment's code, or train in another folder\n"
    changes = [
        ("CHANGED_SHAPE", (3,), f"{env} returns observations of shape [3], {trained.format([2])}"),
        ("CHANGED_ACTIONS", 4, f"{env} has 4 actions, {trained.format(3)}"),
    ]
    module = sys.modules["own_countdown"]
    for name, value, message in changes:
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(module, name, value)
            assert cli("resume", folder)[2] == f"valueshare: {message}"
            assert "restore the code of the environment" in cli("play", folder, "--agent", 0, "--video", "a.gif")[2]
    assert cli("resume", folder)[0] == 0
