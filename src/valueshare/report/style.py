"""One look for every figure: readable at column width, safe for colour-blind eyes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
)
GREY = "#595959"
ORDER = (BLUE, ORANGE, GREEN, RED, SKY, PURPLE)  # for categories
FORMATS = ("png", "svg", "pdf")

SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "figure.dpi": 100,
    "font.size": 9,
    "grid.alpha": 0.5,
    "grid.color": "#D9D9D9",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.5,
    "savefig.dpi": 200,
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "valueshare",  # the same file for the same data
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextmanager
def house_style() -> Iterator[None]:
    with mpl.rc_context(SETTINGS):
        yield


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG, SVG and PDF without dates inside."""
    folder.mkdir(parents=True, exist_ok=True)
    dateless = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with house_style():
        for path, kind in zip(paths, FORMATS, strict=True):
            figure.savefig(path, bbox_inches="tight", metadata=dateless[kind])
    return paths
