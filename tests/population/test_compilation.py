"""Compilation in a path with a space, and where the compiler fails."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from valueshare.errors import InvalidInput
from valueshare.learning.randomness import integers, stream_keys
from valueshare.population import loop
from valueshare.population.agents import agent_table
from valueshare.population.compilation import _allow_spaces, compiled_if
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


def test_random_numbers_are_generated_from_few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the nine steps x ^ (x >> n) uses its number twice: inlined, the first one is there 512 times."""
    from torch._inductor import config
    from torch._inductor.loop_body import LoopBody

    if not hasattr(config, "realize_cpu_opcount_threshold"):
        pytest.skip("this version of PyTorch has no threshold for CPUs")
    sizes = []
    original: Any = LoopBody.__init__

    def counted(self: LoopBody, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        sizes.append(len(self.root_block.graph.nodes))

    monkeypatch.setattr(LoopBody, "__init__", counted)
    keys, step, drawn = stream_keys(range(4), "replay"), torch.tensor(3), torch.zeros(4, 8, dtype=torch.int64)

    def draw() -> None:
        drawn.copy_(integers(keys, step, 8, 100))

    with config.patch(fx_graph_cache=False):
        compiled_if(True, draw)()
    assert torch.equal(drawn, integers(keys, step, 8, 100))
    assert 0 < max(sizes) < 50, sizes


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
