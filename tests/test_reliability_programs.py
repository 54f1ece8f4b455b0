"""The programs of docs/reliability.md on a few cases: they run, and find nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(program: str, out: Path, *words: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / program), *words, "--json", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, object] = json.loads(out.read_text())
    assert found["faults"] == 0
    return found


@pytest.mark.slow
def test_runs_that_are_killed_come_to_the_same_end(tmp_path: Path) -> None:
    words = ("--kills", "8", "--minutes", "20", "--only", "cartpole", "tabular")
    run("soak.py", tmp_path / "soak.json", *words)


@pytest.mark.slow
def test_wrong_input_and_damaged_files_are_told(tmp_path: Path) -> None:
    found = run("fuzz.py", tmp_path / "fuzz.json", "--cases", "40", "--seed", "5")
    assert found["cases"] == 40
