"""The geometry of the layer in the plane: Figure 1 of the paper."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from valueshare.expansion import expand
from valueshare.report.figures.style import BLUE, COLUMN, GREEN, GREY, INK, RED, rc_style, text_colour

Floats = NDArray[np.float64]
K = 2.0


def geometry() -> Figure:
    """The map from z to q in the plane of two actions: q = z + k·mean(z)·1.

    The mean component of z, its projection on the all-ones direction, is scaled by k to the implicit baseline, to which
    z is added; the mean component of q is k+1 times that of z.
    """
    residual = np.array([3.0, 1.0])
    q: Floats = expand(residual, K)
    ones = np.ones(2)
    mean, baseline, q_mean = residual.mean() * ones, q - residual, q.mean() * ones
    far = 1.15 * q.max()
    with rc_style():
        figure = Figure(figsize=(COLUMN, COLUMN * 0.92), layout="constrained")
        axes = figure.subplots()
        axes.set_aspect("equal")
        axes.plot([0, far], [0, far], color=GREY, linewidth=0.8, linestyle=":", label="_ones")
        dashed: dict[str, Any] = {"linewidth": 0.7, "linestyle": "--", "alpha": 0.7, "zorder": 2}
        for line in ((residual, mean), (q, q_mean), (residual, q)):
            axes.plot(*np.array(line).T, color=GREY, **dashed)
        _arrow(axes, np.zeros(2), q, INK, "q")
        _arrow(axes, np.zeros(2), baseline, BLUE, "baseline")
        _arrow(axes, baseline, q, RED, "z, added", alpha=0.45)
        _arrow(axes, np.zeros(2), residual, RED, "z")
        for dot in (mean, q_mean):
            axes.plot(*dot, marker="o", color=GREEN, markersize=4.5, zorder=4)
        below = {"textcoords": "offset points", "ha": "left", "va": "top"}
        above = {"textcoords": "offset points", "ha": "right", "va": "bottom"}
        for text, at, offset, colour, where in (
            (f"z = {_point(residual)}", residual, (4, -1), RED, below),
            (f"q = {_point(q)}", q, (3, -3), INK, below),
            (f"mean of z\n{_point(mean)}", mean, (-5, 3), GREEN, above),
            (f"baseline, k = {K:g}\n{_point(baseline)}", baseline, (-6, 2), BLUE, above),
            (f"mean of q\n{_point(q_mean)}", q_mean, (-5, 3), GREEN, above),
        ):
            axes.annotate(text, at, offset, color=text_colour(colour), fontsize=8, **where)  # type: ignore[arg-type]
        low = min(0.0, residual.min()) - 0.02 * far
        axes.set_ylim(low, far)
        axes.annotate("all-ones\ndirection", (far, far), (5, -2), color=GREY, fontsize=7.5, **below)  # type: ignore[arg-type]
        axes.set_xticks(axes.get_yticks())
        axes.set(xlim=(low, 1.2 * far), xlabel="action 1", ylabel="action 2")
    return figure


def _arrow(axes: Axes, start: Floats, end: Floats, colour: str, name: str, alpha: float = 1.0) -> None:
    scale: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.009}
    head: dict[str, Any] = {"headwidth": 4, "headlength": 5, "headaxislength": 4.5}
    style: dict[str, Any] = {"color": colour, "alpha": alpha, "zorder": 3, "label": name}
    axes.quiver(*start, *(end - start), **scale, **head, **style)


def _point(x: Floats) -> str:
    return f"({x[0]:g}, {x[1]:g})"
