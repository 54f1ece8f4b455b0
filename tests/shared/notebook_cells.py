"""Notebooks run without Jupyter: cells in one namespace, with their printed text and figures.

`python tests/shared/notebook_cells.py NOTEBOOK...` runs notebooks and stores their outputs.
"""

import base64
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

DPI = 60  # of stored figures: they are kept small


def read_cells(path: Path) -> list[dict[str, Any]]:
    """The code cells of a notebook."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run_cells(path: Path) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """The outputs of every code cell, and the names that they define."""
    import matplotlib

    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": "notebook"}
    outputs = []
    for number, cell in enumerate(read_cells(path), 1):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), names)
        outputs.append([*_text(printed.getvalue()), *_figures()])
    return outputs, names


def _text(printed: str) -> list[dict[str, Any]]:
    return [{"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)}] if printed else []


def _figures() -> list[dict[str, Any]]:
    """The open figures of pyplot, which are closed."""
    from matplotlib import pyplot as plt

    outputs = []
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=DPI, metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return outputs


def store_outputs(path: Path) -> None:
    """Run a notebook, and write its outputs into the file."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    outputs, _ = run_cells(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, own) in enumerate(zip(code, outputs, strict=True), 1):
        cell["outputs"], cell["execution_count"] = own, number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        store_outputs(Path(name))
