"""Compiled kernels are compiled again after an edit of a file that is compiled into them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import valueshare
from valueshare.analysis import resampling
from valueshare.splitmix import source_type
from valueshare.tabular import kernels

DRAWS = """
import numpy as np
from valueshare.analysis.resampling import count_blocks
for _, counts in count_blocks(np.array([4, 3]), resamples=9, seed=0):
    print(counts.tolist())
"""
LEARNERS = """
from valueshare.tabular.mdp import gridworld
from valueshare.tabular.sweep import sweep
print(sweep(gridworld(step_reward=-1.0), k=[0.0, 4.0], step_size=[0.1], seeds=2, steps=200).to_dicts())
"""


def test_the_type_changes_with_any_of_the_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("one")
    second.write_text("two")
    before = source_type(first, second)
    assert before == source_type(str(first), second) != source_type(first)
    second.write_text("three")
    assert before != source_type(first, second)
    (name,) = source_type(Path(valueshare.__file__).with_name("splitmix.py")).names or ()
    assert name in (resampling.KEY.names or ())
    assert kernels.Runs._field_defaults["sources"].dtype.names is not None


@pytest.mark.slow
@pytest.mark.parametrize("script", [DRAWS, LEARNERS], ids=["resampling", "tabular"])
def test_an_edit_of_the_random_streams_changes_cached_kernels(script: str, tmp_path: Path) -> None:
    copy = tmp_path / "src"
    shutil.copytree(Path(valueshare.__file__).parent, copy / "valueshare", ignore=shutil.ignore_patterns("__pycache__"))

    def output(cache: str) -> str:
        variables = os.environ | {"PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(tmp_path / cache)}
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout

    before = output("cache")
    streams = copy / "valueshare" / "splitmix.py"
    streams.write_text(streams.read_text().replace("0xBF58476D1CE4E5B9", "0xBF58476D1CE4E5B7"))
    assert output("cache") == output("empty cache") != before
