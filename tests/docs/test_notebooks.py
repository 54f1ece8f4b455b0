"""The notebooks run from their first cell to their last, and the outputs that they store are small and current."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from notebook_cells import read_cells, run_cells

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
LARGEST = 100_000  # bytes of a notebook with its outputs


def texts(outputs: list[dict[str, Any]]) -> list[str]:
    return ["".join(output["text"]) for output in outputs if output["output_type"] == "stream"]


def images(outputs: list[dict[str, Any]]) -> int:
    return sum(output["output_type"] == "display_data" for output in outputs)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_stored_outputs_are_small_and_complete(path: Path) -> None:
    assert path.stat().st_size < LARGEST
    cells = read_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        source = "".join(cell["source"])
        assert bool(texts(cell["outputs"])) == ("print(" in source)
        assert images(cell["outputs"]) == source.count("plt.subplots(")


def test_the_layer() -> None:
    outputs, names = run_cells(FOLDER / "layer.ipynb")
    for cell, fresh in zip(read_cells(FOLDER / "layer.ipynb"), outputs, strict=True):
        assert texts(fresh) == texts(cell["outputs"])
        assert images(fresh) == images(cell["outputs"])
    for k in (0, 1, 4):  # by hand: the change is step size · M_k M_k e_1, with M_k = I + (k/4) J
        expanded = np.eye(4) + k / 4 * np.ones((4, 4))
        np.testing.assert_allclose(names["change"](k), 0.1 * (expanded @ expanded)[0], rtol=1e-6)


@pytest.mark.slow
def test_a_program_stores_the_outputs(tmp_path: Path) -> None:
    """The command of CONTRIBUTING.md, with a copy of the notebook."""
    program = Path(__file__).parents[1] / "shared" / "notebook_cells.py"
    copy = Path(shutil.copy(FOLDER / "layer.ipynb", tmp_path))
    stored = [texts(cell["outputs"]) for cell in read_cells(copy)]
    notebook = json.loads(copy.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell.pop("outputs", None)
    copy.write_text(json.dumps(notebook), encoding="utf-8")
    subprocess.run([sys.executable, program, copy], check=True)
    assert [texts(cell["outputs"]) for cell in read_cells(copy)] == stored


@pytest.mark.slow
def test_a_population() -> None:
    outputs, names = run_cells(FOLDER / "population.ipynb")
    assert names["run"].finished
    assert names["run"].agents["k"].to_list() == [0, 0, 0, 2, 2, 2]
    assert names["scores"]["step"].unique().sort().to_list() == [0, 500, 1_000, 1_500, 2_000, 2_500]
    for cell, fresh in zip(read_cells(FOLDER / "population.ipynb"), outputs, strict=True):
        assert images(fresh) == images(cell["outputs"])
