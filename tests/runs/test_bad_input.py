"""Runs that cannot be made are refused in one line, with exit code 2, and nothing is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from replaced_options import replaced
from torch import nn

import valueshare
from valueshare.errors import InvalidInput
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.plan import difference, to_config
from valueshare.runs.plan_text import plan_summary
from valueshare.runs.planning import make_plan


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
    "far algorithm": (["--algorithm", "ppo"], "there is no algorithm 'ppo': write one of dqn, dueling-dqn, ib-dqn"),
    "k beyond float32": (["--k", "1e300"], "--k 1e+300: write a finite number >= 0"),
    "a seed beyond 64 bits": (
        ["--first-seed", str(2**64)],
        f"--first-seed {2**64}: write a whole number from 0 to {2**63 - 2}",
    ),
    "more steps than are counted": (["--steps", "9" * 23], "write a number <= 1,000,000,000,000"),
    "a layer too wide": (
        ["--hidden", "9" * 23],
        "--hidden " + "9" * 23 + ": write a number >= 1 and <= 1,000,000",
    ),
    "a network too large": (
        ["--hidden", "1000000", "1000000"],
        "in reserve: 0 would fit; write smaller layers (--hidden) or a smaller --batch-size",
    ),
    "a batch beyond 64 bits": (  # 64 quantiles x 10^12 transitions x 10^6 features
        [
            *("--algorithm", "iqn", "--hidden", "1000000", "8"),
            *("--batch-size", "9" * 12, "--replay-capacity", "9" * 12),
        ],
        "one agent of CartPole-v1 needs more memory than can be addressed here; write smaller",
    ),
    "steps below zero": (["--steps", "-5"], ": --steps -5: write a number >= 1"),
    "k below zero": (["--k", "0", "-1"], "--k -1: write a finite number >= 0"),
    "k of an algorithm without one": (
        ["--algorithm", "dqn", "rdq", "--k", "0", "3"],
        "--k 3.0: only ib-dqn, ib-double-dqn, ib-iqn have it; train one of them, or leave --k out",
    ),
    "kappa without quantiles": (
        ["--algorithm", "dqn", "ib-dqn", "--kappa", "2"],
        "--kappa 2.0: only iqn, ib-iqn have it; train one of them, or leave --kappa out",
    ),
    "quantiles without quantiles": (
        ["--algorithm", "rdq", "--target-quantiles", "4"],
        "--target-quantiles 4: only iqn, ib-iqn have it; train one of them, or leave --target-quantiles out",
    ),
    "beta of algorithms without one": (
        ["--algorithm", "dqn", "ib-dqn", "--beta", "0.1", "0.2"],
        "--beta 0.1, 0.2: only rdq has it; train it, or leave --beta out",
    ),
    "the decay of RMSprop with Adam": (
        ["--rmsprop-decay", "0.9"],
        "--rmsprop-decay 0.9: only rmsprop has it; set --optimizer rmsprop, or leave --rmsprop-decay out",
    ),
    "Adam's betas with RMSprop": (
        ["--optimizer", "rmsprop", "--adam-betas", "0.9", "0.99"],
        "only adam has it; set --optimizer adam, or leave --adam-betas out",
    ),
    "a scale of rewards that are clipped": (
        ["--clip-rewards", "--reward-scale", "0.1"],
        "--reward-scale 0.1: with --clip-rewards, training rewards are signs, whatever their scale; leave one of",
    ),
    "a loss of quantiles": (
        ["--algorithm", "iqn", "ib-iqn", "--loss", "huber"],
        "the loss of iqn, ib-iqn is the quantile Huber loss; leave",
    ),
    "k twice": (["--k", "1", "1.0"], "--k: 1 is given more than once; write each value once"),
    "a step size twice": (["--step-size", "1e-3", "2e-3", "1e-3"], "--step-size: 0.001 is given more than once"),
    "epsilon's steps twice": (["--epsilon-steps", "1k", "1000"], "--epsilon-steps: 1000 is given more than once"),
    "an algorithm twice": (["--algorithm", "dqn", "dqn"], "--algorithm: dqn is given more than once; write each"),
    "k is not a number": (["--k", "many"], "--k"),
    "small replay": (
        ["--replay-capacity", "10", "--batch-size", "11"],
        "--replay-capacity 10 is smaller than --batch-size 11",
    ),
    "no CUDA": (["--device", "cuda:7"], "CUDA device not available"),
    "no device": (["--device", "gpu"], "--device gpu: write auto, cpu, cuda or cuda:0"),
    "no seeds": (["--seeds", "0"], "--seeds 0: "),
    "step size": (["--step-size", "0"], "--step-size 0: write a number > 0"),
    "the length of a constant step size": (
        ["--step-size-schedule", "constant", "--step-size-steps", "100"],
        "--step-size-steps 100 is the length of a linear step size: add --step-size-schedule linear, or leave it out",
    ),
    "phases": (
        ["--eval-interval", "100", "--checkpoint-interval", "30"],
        "--eval-interval 100 is not a multiple of --checkpoint-interval 30",
    ),
    "loss": (["--loss", "l3"], "--loss"),
    "unknown option": (["--batch-sise", "3"], "--batch-size"),
    "no evaluation steps": (["--eval-episode-limit", "0"], "--eval-episode-limit 0"),
    "episodes below zero": (
        ["--eval-episodes", "-1", "--eval-timesteps", "100"],
        "--eval-episodes -1: write a number >= 0",
    ),
    "no environments": (["--threads", "-1"], "--threads -1: "),
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
    code, _, err = cli(*replaced(["train", *env, "--seeds", "2", "--out", "deep/run"], words))
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("valueshare: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train --env CartPole-v1", "reproduce lunarlander"])
def test_a_gpu_that_is_not_here_is_said_before_other_settings(
    command: str, uninterrupted: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    for device, message in (("cuda:7", "CUDA device not available"), ("cpu", "with other settings")):
        code, _, err = cli(*command.split(), "--device", device, "--out", uninterrupted)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("a file", "is a file: choose another --out"),
        ("a file/run", "cannot write to a file/run: not a directory"),
        ("full", "full holds files that are not results of valueshare"),
        (".", "contains the current working directory"),
        ("", "'' is not a folder: write its name, like runs/first"),
        ("/proc/run", "cannot write to /proc/run: no folder can be made there; choose another"),
    ],
)
def test_a_place_is_refused_before_anything_is_said(
    out: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    (tmp_path / "a file").write_text("stays")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "photo").write_text("stays")
    monkeypatch.chdir(tmp_path)
    code, said, err = cli("train", "--env", "CartPole-v1", "--seeds", "2", "--out", out)
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert message in err
    assert {path.name for path in tmp_path.rglob("*")} == {"a file", "full", "photo"}


def test_what_cannot_be_compiled_is_said_before_there_is_a_folder(
    tmp_path: Path, cli: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config as inductor_config

    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    out = tmp_path / "run"
    # `patch` restores the setting. monkeypatch would delete it, and no later test of the process could compile.
    with inductor_config.patch({"cpp.cxx": ("no-such-compiler",)}):
        code, _, err = cli("train", "--env", "CartPole-v1", "--compile", "--out", out)
    assert (code, err.count("\n")) == (2, 1), err
    assert "nothing can be compiled here (" in err  # and PyTorch's error, which depends on the PATH
    assert not out.exists()


def test_settings_by_name_have_their_nearest_name() -> None:
    with pytest.raises(InvalidInput, match="did you mean batch_size"):
        make_plan("CartPole-v1", batch_sise=3)
    with pytest.raises(InvalidInput, match="`first_seed` cannot be combined with a list of `seeds`"):
        make_plan("CartPole-v1", seeds=[1, 2], first_seed=3)


class Settled(gymnasium.Env[Any, Any]):
    """An environment where its name belongs."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"k": "a"}, "^`k = 'a'`: write a number, or 'n', the number of actions$"),
        ({"k": [0, None]}, "^`k = None`: write a number, or 'n'"),
        ({"k": []}, "no `k` is given"),
        ({"hidden": 64}, r"`hidden = 64`: write a list of numbers, like \[64\]"),
        ({"hidden": "64"}, "`hidden = '64'`: write a list"),
        ({"hidden": [64, "x"]}, "`hidden = 'x'`: write a whole number"),
        ({"adam_betas": 0.9}, "`adam_betas = 0.9`: write a list"),
        ({"adam_betas": [0.9, "x"]}, "`adam_betas = 'x'`: write a number"),
        ({"seeds": 2.5}, "`seeds = 2.5`: write a whole number"),
        ({"seeds": "many"}, "`seeds = 'many'`: write a whole number"),
        ({"seeds": [1, 2.5]}, "`seeds = 2.5`: write a whole number"),
        ({"seeds": None}, "`seeds = None`: write a whole number"),
        ({"first_seed": "a"}, "`first_seed = 'a'`: write a whole number"),
        ({"steps": "x"}, "^`steps = 'x'`: write a whole number"),
        ({"steps": 0}, "^`steps = 0`: write a number >= 1"),
        ({"eval_interval": 0}, "^`eval_interval = 0`: write a number >= 1"),
        ({"step_size": "x"}, "`step_size = 'x'`: write a number"),
        ({"step_size": []}, "no `step_size` is given"),
        ({"epsilon_steps": 2.5}, "`epsilon_steps = 2.5`: write a whole number"),
        ({"reward_scale": "x"}, "`reward_scale = 'x'`: write a number"),
        ({"eval_epsilon": None}, "`eval_epsilon = None`: write a number"),
        ({"tf32": "yes"}, "`tf32 = 'yes'`: write True or False"),
        ({"env": 5}, "env is given as int: write its name, like 'CartPole-v1'"),
        ({"env": Settled()}, "env is given as Settled: .* register a custom environment with Gymnasium first"),
        ({"env": []}, "no `env` is given"),
        ({"algorithm": 5}, "algorithm is given as int: write its name, like 'ib-dqn'"),
        ({"device": 5.5}, "`device = '5.5'`: write auto, cpu, cuda or cuda:0"),
        ({"out": 5}, "5 is not a location of a run: write a folder or a URL"),
        ({"out": ""}, "'' is not a folder: write its name, like runs/first"),
        ({"threads": "x"}, "`threads = 'x'`: write a whole number"),
        ({"groups": "x"}, "`groups = 'x'`: write a whole number"),
        ({"workers": 2}, r"^`workers` belongs to the launcher: write launcher=.*LauncherOptions\(workers=...\)$"),
        ({"env": "Foo-v0"}, "no environment 'Foo-v0': no EnvPool environment, .* has a similar name$"),
        ({"n_jobs": 2}, r"^`n_jobs` belongs to the launcher: write launcher=.*LauncherOptions\(workers=...\)$"),
        ({"callback": print}, "no setting 'callback': write `callbacks`, a list of functions"),
        ({"env": "CartPole-v3"}, r"no environment 'CartPole-v3': did you mean CartPole-v1\?$"),
        ({"env": "CartPol-v1"}, r"no environment 'CartPol-v1': did you mean CartPole-v1\?$"),
        ({"launcher": "ray"}, r"launcher is given as str: write valueshare.LauncherOptions\(...\)"),
        ({"network": 5}, r"network is given as int: write a function of \(shape, k\)"),
        ({"network": nn.Linear(4, 2)}, "network is given as Linear: write a function of"),
    ],
)
def test_values_of_another_kind_from_python(
    given: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = {"seeds": 1, "out": "run", "progress": False, "env": "CartPole-v1"}
    with pytest.raises(InvalidInput, match=message) as caught:
        valueshare.train(**{**small, **given})
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["workers", "ray_cpus", "ray_gpus", "population_agents", "shard"])
def test_launcher_options_of_another_kind(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"^`{name} = .* write a "):
        LauncherOptions(**{name: 2 if name == "shard" else "2"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [{"ray_address": "10.0.0.1:6379"}, {"ray_gpus": 4}, {"ray_cpus": 2}, {"ray_retries": 0}],
)
def test_options_of_ray_without_ray(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"^`{next(iter(given))}` is for a cluster: add `launcher = 'ray'`, or "):
        LauncherOptions(**given)
    LauncherOptions("ray", **given)


def test_numbers_of_other_libraries_are_numbers(tmp_path: Path) -> None:
    """They are stored as any other: JSON knows none of NumPy's."""
    plan = make_plan(
        "CartPole-v1",
        k=np.float32(4),  # type: ignore[arg-type]
        seeds=1,
        reward_scale=np.float32(0.5),
        step_size=np.float32(0.25),
        device=torch.device("cpu"),  # type: ignore[arg-type]
    )
    stored = to_config(plan)
    assert stored["settings"]["CartPole-v1"]["reward_scale"] == 0.5
    assert (plan.agents["k"][0], plan.agents["step_size"][0], stored["device"]) == (4, 0.25, "cpu")


@pytest.mark.parametrize(
    ("steps", "start", "every", "learns"),
    [(100, 99, 1, True), (100, 100, 1, False), (100, 97, 4, False), (100, 96, 4, True)],
)
def test_a_run_that_never_learns_says_so(
    steps: int, start: int, every: int, learns: bool, cli: Callable[..., tuple[int, str, str]]
) -> None:
    """Updates are due at the steps from learning_starts on that update_interval divides."""
    assert learns == any(t % every == 0 for t in range(start, steps))
    counts = ("--steps", steps, "--learning-starts", start, "--update-interval", every)
    code, out, _ = cli("train", "--env", "CartPole-v1", "--seeds", "1", *counts, "--plan")
    assert code == 0
    note = (
        f"note: CartPole-v1: no updates will run: the first is due after step {steps}, by --learning-starts and "
        "--update-interval"
    )
    assert (note in out.splitlines()) != learns


@pytest.mark.parametrize(
    ("words", "noted"),
    [
        ([], ["ib-dqn with k = 0 is dqn"]),
        (["--algorithm", "dqn", "ib-double-dqn"], ["ib-double-dqn with k = 0 is double-dqn"]),
        (["--k", "0", "4"], []),
        (["--algorithm", "dqn", "--k", "0"], []),  # 0 is what it does
        (["--algorithm", "dqn", "ib-dqn", "--k", "4"], []),
        (["--algorithm", "dqn", "iqn", "--kappa", "2"], []),
        (["--k", "0", "4", "--shard", "1/2"], []),  # has k = 0 alone
    ],
)
def test_sharing_no_value_is_said(words: list[str], noted: list[str], cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = cli("train", "--env", "CartPole-v1", "--seeds", "1", *words, "--plan")
    assert code == 0
    said = [line for line in out.splitlines() if line.startswith("note: ")]
    assert said == [f"note: {note}: to share value across actions, give a k above 0" for note in noted]


@pytest.mark.parametrize(
    ("seeds", "steps", "said"),
    [
        (1, 1, ["1 agent in 1 population, 1 step each", "1 agent, 1 agent-step in all"]),
        (2, 1_000, ["2 agents in 1 population, 1,000 steps each", "2 agents, 2,000 agent-steps"]),
    ],
)
def test_one_is_singular(seeds: int, steps: int, said: list[str]) -> None:
    first, *_, last = plan_summary(make_plan("CartPole-v1", "dqn", seeds=seeds, steps=steps))
    assert said[0] in first
    assert said[1] in last


def test_other_environments_are_named() -> None:
    there, here = (to_config(make_plan(env, "dqn", seeds=1)) for env in ("CartPole-v1", "Acrobot-v1"))
    assert difference(there, here) == "`env` is CartPole-v1 in the existing run, Acrobot-v1 now"


def test_an_environment_is_given_once() -> None:
    with pytest.raises(InvalidInput, match="`env`: CartPole-v1 is given more than once; write"):
        make_plan(["CartPole-v1", "CartPole-v1"], "dqn", seeds=1)


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
    assert "tests/Endless-v0 has no episode limit" in err
    assert err.endswith("set --eval-episode-limit, or evaluate by --eval-timesteps\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("seeds", [2**32, 10**30])
@pytest.mark.parametrize(
    "command",
    [
        ["train", "--env", "CartPole-v1"],
        *(
            ["reproduce", study, "--scale", "smoke"]
            for study in (
                *("lunarlander", "atari57", "atari-sensitivity"),
                *("atari-rmsprop", "atari-rdq-beta"),
            )
        ),
    ],
    ids=lambda words: words[-1] if words[0] == "train" else words[1],
)
def test_too_many_seeds_are_refused_before_they_are_listed(
    command: list[str], seeds: int, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, text = cli(*command, "--seeds", seeds, "--out", tmp_path / "run")
    assert code == 2
    assert text.startswith(("valueshare: --seeds ", "valueshare: seeds has more than 100,000 values"))
    assert text.count("\n") == 1
    assert not any(tmp_path.iterdir())
