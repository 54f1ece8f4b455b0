"""Compilation where PyTorch and the temporary folder are in a path with a space."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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
