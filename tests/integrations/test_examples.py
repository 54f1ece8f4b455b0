"""The examples train for a few hundred steps in the real libraries; then their networks equal the closed form."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from valueshare.analysis import read_results

EXAMPLES = Path(__file__).parents[2] / "examples"
K = 3.0

# `networks` are those of the library, `outputs(network, x)` its action-values; z is what the last linear layer returns.
TORCH = """
from torch import nn
import torch
torch.manual_seed(1)
x = torch.randn(7, 4)
M = torch.eye(2) + 3.0 / 2 * torch.ones(2, 2)
for network in networks:
    seen = []
    linear = [m for m in network.modules() if isinstance(m, nn.Linear)][-1]
    linear.register_forward_hook(lambda module, inputs, z: seen.append(z))
    q = outputs(network, x)
    z = seen[0].reshape(q.shape)
    torch.testing.assert_close(q, z @ M)
    assert not torch.allclose(q, z)
online, target = networks
assert any(not torch.equal(a, b) for a, b in zip(online.parameters(), target.parameters(), strict=True))
"""
PLAIN = "networks, outputs = trained, lambda network, x: network(x)"
CHECKS = {
    "sb3": PLAIN + TORCH,
    "sb3_qrdqn": PLAIN + TORCH,
    "cleanrl_dqn": PLAIN + TORCH,
    "pfrl_dqn": "networks, outputs = trained, lambda network, x: network(x).q_values" + TORCH,
    "tianshou_dqn": "networks, outputs = trained, lambda network, x: network(x)[0]" + TORCH,
    "torchrl_dqn": """
from tensordict import TensorDict
import torch
torch.manual_seed(1)
network, loss = trained
x = torch.randn(7, 4)
M = torch.eye(2) + 3.0 / 2 * torch.ones(2, 2)
def by_hand(w):
    w = {name.split("module.0.module.")[-1]: tensor for name, tensor in w.flatten_keys(".").items()}
    for layer in ("0.", "2.", "4.0."):
        x_ = (x if layer == "0." else torch.relu(x_)) @ w[layer + "weight"].T + w[layer + "bias"]
    return x_ @ M
online, target = loss.value_network_params, loss.target_value_network_params
torch.testing.assert_close(network(x), by_hand(online))
for weights in (online, target):
    with weights.to_module(loss.value_network):
        q = loss.value_network(TensorDict({"observation": x}, [7]))["action_value"]
    torch.testing.assert_close(q, by_hand(weights))
assert not torch.equal(by_hand(online), by_hand(target))
""",
    "flax_dqn": """
import numpy as np
network, params = trained
x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
h = x
for layer in range(3):
    w = params["params"][f"Dense_{layer}"]
    h = (h if layer == 0 else np.maximum(h, 0)) @ np.asarray(w["kernel"]) + np.asarray(w["bias"])
M = np.eye(2) + 3.0 / 2 * np.ones((2, 2))
np.testing.assert_allclose(network.apply(params, x), h @ M, rtol=1e-4, atol=1e-4)
""",
    "equinox_dqn": """
import jax, numpy as np
x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
z = np.asarray(jax.vmap(trained.mlp)(x))
M = np.eye(2) + 3.0 / 2 * np.ones((2, 2))
np.testing.assert_allclose(jax.vmap(trained)(x), z @ M, rtol=1e-4, atol=1e-4)
""",
}
OPTIONAL = {"pfrl_dqn": "pfrl", "tianshou_dqn": "tianshou", "torchrl_dqn": "torchrl"}
SHORT = f"--k {K:g} --steps 340 --eval-interval 170 --eval-episodes 1 --seed 4".split()


def test_every_example_is_here() -> None:
    shared = {"cartpole", "jax_dqn"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} - shared == set(CHECKS)


def test_options_are_whole_numbers_that_training_can_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    options = import_module("cartpole").options
    args = options("", ["--steps", "1e3", "--eval-interval", "2e3"])
    assert (args.steps, args.eval_interval) == (1_000, 1_000)
    for name, value, least in (
        *(("steps", text, 10) for text in ("0", "9", "1.5e1.5", "10.5", "inf", "many")),
        *((name, text, 1) for name in ("eval-interval", "eval-episodes") for text in ("0", "-1")),
    ):
        with pytest.raises(SystemExit) as ended:
            options("", [f"--{name}={value}"])
        assert ended.value.code == 2
        wanted = f"argument --{name}: {value}: write a whole number >= {least}\n"
        assert capsys.readouterr().err.endswith(wanted)


@pytest.mark.parametrize("name", sorted(CHECKS.keys() - OPTIONAL.keys()))
def test_it_trains_and_its_networks_equal_the_closed_form(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    args = import_module("cartpole").options("", SHORT)
    names = {"trained": import_module(name).train(args)}
    exec(CHECKS[name], names)
    assert_scores(capsys.readouterr().out, tmp_path)


@pytest.mark.parametrize("name", OPTIONAL)
def test_the_same_in_libraries_that_are_not_installed_with_the_others(name: str, tmp_path: Path) -> None:
    """In a process of its own: these libraries change how processes start, and what is logged."""
    library = OPTIONAL[name]
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: docs/integrations.md says how to run this test")
    program = f"import sys, {name} as example\nfrom cartpole import options\n"
    program += f"trained = example.train(options('', sys.argv[1:]))\n{CHECKS[name]}"
    paths = [str(EXAMPLES), *filter(None, sys.path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", program, *SHORT], capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
    assert_scores(ended.stdout, tmp_path)


def assert_scores(printed: str, folder: Path) -> None:
    """An example prints a table that `valueshare report` reads."""
    (folder / "scores.csv").write_text(printed)
    scores = read_results(folder / "scores.csv").table
    assert scores.select("env", "k", "seed", "step").rows() == [
        ("CartPole-v1", K, 4, 170),
        ("CartPole-v1", K, 4, 340),
    ]
    assert scores["score"].is_between(1, 500).all()
