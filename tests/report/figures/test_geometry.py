"""The geometry of the layer: the paper's worked example."""

import numpy as np
from matplotlib.quiver import Quiver

from valueshare.report.figures.geometry import geometry
from valueshare.report.figures.style import contrast


def test_the_geometry_is_the_papers_worked_example() -> None:
    (axes,) = geometry().axes
    arrows = {
        str(a.get_label()): (
            np.asarray(a.XY)[0].tolist(),
            [np.asarray(a.U).item(), np.asarray(a.V).item()],
        )
        for a in axes.collections
        if isinstance(a, Quiver)
    }
    assert arrows == {
        "z": ([0, 0], [3, 1]),
        "baseline": ([0, 0], [4, 4]),
        "q": ([0, 0], [7, 5]),
        "z, added": ([4, 4], [3, 1]),
    }
    assert min(contrast(text.get_color(), "white") for text in axes.texts) >= 4.5
    words = {text.get_text().replace("\n", " ") for text in axes.texts}
    assert {"z = (3, 1)", "q = (7, 5)", "mean of z (2, 2)", "mean of q (6, 6)"} < words
    assert "baseline, k = 2 (4, 4)" in words
