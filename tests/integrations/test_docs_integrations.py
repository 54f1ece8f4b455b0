"""The snippets of docs/integrations.md run, each section in one namespace; their networks have the layer."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from valueshare import MeanExpansion

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
SECTIONS = {
    "Stable-Baselines3": "stable_baselines3",
    "sb3-contrib: QR-DQN": "sb3_contrib",
    "CleanRL": "torch",
    "PFRL": "pfrl",
    "TorchRL": "torchrl",
    "Tianshou": "tianshou",
    "Flax": "flax",
    "Equinox": "equinox",
}


def blocks(section: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def skip_where_missing(section: str) -> None:
    library = SECTIONS[section]
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: docs/integrations.md says how to run this test")


def run(section: str) -> dict[str, Any]:
    """The names that the section's snippets define, after 300 steps of training instead of 50,000."""
    skip_where_missing(section)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(section):
        exec(compile(block.replace("50_000", "300"), str(PAGE), "exec"), names)
    return names


def layers(*modules: nn.Module) -> list[float]:
    """k + 1 of the one layer of each module."""
    found = [[m.scale.item() for m in module.modules() if isinstance(m, MeanExpansion)] for module in modules]
    assert all(len(scales) == 1 for scales in found)
    return [scales[0] for scales in found]


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_section_with_code_is_run() -> None:
    titles = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [title for title in titles if blocks(title)] == list(SECTIONS)


def test_stable_baselines3() -> None:
    names = run("Stable-Baselines3")
    policy = names["model"].policy
    assert type(policy).__name__ == "OwnPolicy"
    assert layers(policy.q_net, policy.q_net_target) == [3, 3]  # k = n = 2
    loaded = names["DQN"].load("model").policy
    assert type(loaded) is names["DQNPolicy"]
    assert layers(loaded.q_net, loaded.q_net_target) == [3, 3]


def test_sb3_contrib() -> None:
    policy = run("sb3-contrib: QR-DQN")["model"].policy
    assert layers(policy.quantile_net, policy.quantile_net_target) == [3, 3]


def test_cleanrl() -> None:
    names = run("CleanRL")
    assert layers(names["q_network"], names["target_network"]) == [3, 3]
    names["envs"].close()


def test_pfrl() -> None:
    agent = run("PFRL")["agent"]
    assert layers(agent.model, agent.target_model) == [3, 3]


def test_torchrl() -> None:
    """In a process of its own: importing TorchRL changes how processes start."""
    skip_where_missing("TorchRL")
    check = """
import valueshare
(layer,) = [module for module in network.modules() if isinstance(module, valueshare.MeanExpansion)]
print(layer.scale.item(), *[t.item() for name, t in loss.named_buffers() if "scale" in name])  # online, target
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "".join(blocks("TorchRL")) + check]
    ended = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[-2] == "3.0 3.0 3.0"


def test_tianshou() -> None:
    algorithm = run("Tianshou")["algorithm"]
    assert layers(algorithm.policy.model, algorithm.model_old) == [3, 3]


@pytest.mark.parametrize("section", ["Flax", "Equinox"])
def test_jax(section: str) -> None:
    assert run(section)["q"].shape == (32, 2)
