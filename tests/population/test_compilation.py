"""Compilation in a path with a space, and where the compiler fails."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from valueshare.errors import InvalidInput
from valueshare.population import loop
from valueshare.population.agents import agent_table
from valueshare.population.compilation import _allow_spaces
from valueshare.population.settings import TrainingSettings
from valueshare.population.train import train_population

COMPILED = """
import torch
from valueshare.population.compilation import compiler_problem
assert " " in torch.__file__
print(compiler_problem(torch.device("cpu")))
"""


@pytest.mark.slow
def test_a_path_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    folder.mkdir()
    for name in ("torch", "torchgen", "functorch"):
        (folder / name).symlink_to(Path(torch.__file__).parents[1] / name)
    own = {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "TMPDIR": str(folder)}
    own["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = subprocess.run([sys.executable, "-c", COMPILED], env={**os.environ, **own}, capture_output=True, text=True)
    assert done.stdout == "None\n", done


@pytest.mark.parametrize("prefix", ["/usr", "/home/a user"])
def test_pytorch_is_changed_only_where_a_path_has_a_space(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    from torch._inductor import cpp_builder

    before = cpp_builder.BuildOptionsBase.get_libraries_dirs
    monkeypatch.setattr(cpp_builder.BuildOptionsBase, "get_libraries_dirs", before)  # put back after the test
    monkeypatch.setattr(sys, "prefix", prefix)
    _allow_spaces.__wrapped__()
    assert (cpp_builder.BuildOptionsBase.get_libraries_dirs is before) == (" " not in prefix)


@pytest.mark.slow
def test_what_cannot_be_compiled_is_refused_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that fails on these agents alone: the test of the compiler before the run did not show it."""

    def failing(graph: object, inputs: object) -> None:
        raise RuntimeError("PassManager::run failed")

    def small() -> None:
        torch.zeros(2).add_(1)

    def compiled_if(compiled: bool, function: Callable[[], None]) -> Callable[[], None]:
        return torch.compile(small, backend=failing) if compiled else function

    monkeypatch.setattr(loop, "compiled_if", compiled_if)
    table = agent_table("CartPole-v1", "rdq", seeds=range(1))
    settings = TrainingSettings(steps=4, hidden=(4,), eval_episodes=1)
    with pytest.raises(
        InvalidInput, match=r"cannot compile rdq here \(.+\): train in another folder with `compile = False`"
    ):
        train_population(table, settings, compiled=True)
