"""The style of every figure: readable at column width, safe for colour-blind readers.

An algorithm has one name, one colour and one kind of line in all figures; lines are dashed where the mean-expansion
layer is on. Of two that would look alike in a figure, the later one has another colour, or other dashes.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zlib import crc32

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from matplotlib.typing import ColorType

from valueshare.algorithm_info import ALGORITHM_INFO, K_IS_N, without_layer
from valueshare.analysis.learner_names import LearnerName
from valueshare.report.figures.svg import shortened

# Okabe and Ito's palette.
ORDER = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")  # of categories
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = ORDER
GREY, INK = "#595959", "#1A1A1A"
FORMATS = ("png", "svg", "pdf")
COLUMN = 3.4  # inches: the width of a column of a paper
ATARI_ACTIONS = 18  # the full set, whatever the game

SETTINGS = mpl.rc_params_from_file(Path(__file__).with_name("valueshare.mplstyle"), use_default_template=False)
# Dashes and gaps by the name of a line, in widths of the line.
PATTERNS: dict[str, list[float]] = {
    "-": [],
    "--": SETTINGS["lines.dashed_pattern"],
    "-.": SETTINGS["lines.dashdot_pattern"],
    ":": SETTINGS["lines.dotted_pattern"],
}
LineStyle = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]  # as Matplotlib takes it
# Usual ones, dots and dashes, dots, long ones, and long ones with two dots.
DASHES: tuple[LineStyle, ...] = ("--", "-.", ":", (0, (7.0, 1.6)), (0, (6.0, 1.4, 1.0, 1.4, 1.0, 1.4)))
TEXT_CONTRAST = 4.5  # that WCAG 2.1 requires of text
MIN_COLOUR_DISTANCE = 0.18  # in one of red, green and blue, of 1: colours of two lines that can be told apart


class SeriesStyle(NamedTuple):
    """The label and line style of an algorithm."""

    label: str
    colour: str
    dashed: bool = False  # the mean-expansion layer is on
    dashes: int = 0  # which of the kinds of dashes

    @property
    def line(self) -> LineStyle:
        return DASHES[self.dashes % len(DASHES)] if self.dashed else "-"

    @property
    def pattern(self) -> tuple[float, ...]:
        """Dashes and gaps in widths of the line; none where it is solid."""
        return self.line[1] if isinstance(self.line, tuple) else tuple(PATTERNS[self.line])

    def is_similar(self, other: "SeriesStyle") -> bool:
        """Whether the lines of the two look alike."""
        channels = zip(to_rgb(self.colour), to_rgb(other.colour), strict=True)
        return self.line == other.line and max(abs(a - b) for a, b in channels) < MIN_COLOUR_DISTANCE


_COLOURS = {
    "dqn": BLUE,
    "dueling-dqn": SKY,
    "rdq": GREEN,
    "double-dqn": "#7F6A00",
    "iqn": PURPLE,
    "ib-dqn": RED,
    "ib-double-dqn": "#8C2D04",
    "ib-iqn": INK,  # k = n
}
_AT_ONE = {"ib-dqn": ORANGE, "ib-double-dqn": "#C9A227", "ib-iqn": "#8A8A8A"}  # k = 1
_OTHERS = ("#332288", "#117733", "#882255", "#999933", "#44AA99", "#AA4499", "#6699CC", "#661100")
_SPARE = (*_OTHERS, "#EE3377", "#6A3D9A", "#B8860B", "#4D4D4D", "#00A2C7", "#7CB342")


def series_style(algorithm: str, k: float | None = 0.0, n: int | None = None) -> SeriesStyle:
    """The style of an algorithm with its k; k = 0 shares no value, so it is not dashed.

    Where `n`, the number of actions, is given, k = n is written as the paper does: IB-DQN(n). An algorithm that is not
    ours keeps its own name, and has a colour that depends on its name alone.
    """
    name = LearnerName.parse(algorithm)
    if algorithm not in _COLOURS:
        colour = _OTHERS[crc32(algorithm.encode()) % len(_OTHERS)]
    elif algorithm not in _AT_ONE:
        colour = _COLOURS[algorithm]
    elif not k:  # the same learner as without the layer
        colour = _COLOURS[without_layer(algorithm)]
    else:
        colour = _shade(k, _AT_ONE[algorithm], _COLOURS[algorithm], n)
    info = ALGORITHM_INFO.get(name.algorithm)
    return SeriesStyle(name.label(k, n), colour, dashed=bool(k) and (info is None or "k" in info.reads))


def distinct(preferred: SeriesStyle, algorithm: str, others: Sequence[SeriesStyle]) -> SeriesStyle:
    """A style that differs from those of the others: in other dashes for another k of one sweep, else in its colour."""
    swept = algorithm in _AT_ONE and preferred.dashed  # a colour of its own scale of k, which it keeps
    dashes = [preferred._replace(dashes=number) for number in range(1, len(DASHES))] if preferred.dashed else []
    first = crc32(preferred.label.encode()) % len(_SPARE)
    colours = [preferred._replace(colour=colour) for colour in (*_SPARE[first:], *_SPARE[:first])]
    candidates = [preferred, *dashes, *colours] if swept else [preferred, *colours, *dashes]
    return next((style for style in candidates if not any(style.is_similar(other) for other in others)), preferred)


def paper_order(algorithm: str, k: float | None = 0.0) -> tuple[int, str, float]:
    """A key that sorts algorithms as the paper's table does, others after them by name."""
    known, name = list(ALGORITHM_INFO), LearnerName.parse(algorithm).algorithm
    index = known.index(name) if name in known else len(known)
    return index, algorithm, k or 0.0


def _shade(k: float, at_one: str, at_n: str, n: int | None) -> str:
    """Colours of their own for k = 1 and k = n; for others one that grows lighter with log k."""
    if k == 1:
        return at_one
    if k in (n or ATARI_ACTIONS, K_IS_N):
        return at_n
    share = min(1.0, max(0.0, math.log2(k) / 15))  # the largest k of the paper is 2^15
    return to_hex(mpl.colormaps["viridis"](0.92 * share))


def luminance(colour: ColorType) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: ColorType, other: ColorType) -> float:
    """The contrast of two colours, from 1 to 21 (WCAG 2.1)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def text_colour(colour: str) -> str:
    """The colour of a line, as dark as text on white must be."""
    while contrast(colour, "white") < TEXT_CONTRAST:
        red, green, blue = to_rgb(colour)
        colour = to_hex((0.95 * red, 0.95 * green, 0.95 * blue))
    return colour


def rc_style() -> AbstractContextManager[None]:
    return mpl.rc_context(SETTINGS)


def band(axes: Axes, line: pl.DataFrame, x: str, colour: object, alpha: float = 0.15) -> None:
    """Shade the 95 % intervals of a line, where it has any."""
    known = line.drop_nulls("ci95_low")
    axes.fill_between(known[x], known["ci95_low"], known["ci95_high"], color=colour, alpha=alpha, lw=0)


def draw_line(axes: Axes, x: pl.Series, y: Any, style: SeriesStyle, label: str = "", **more: Any) -> None:
    """A line in the style of its algorithm; a line of one point is drawn as a dot."""
    options: dict[str, Any] = {"color": style.colour, "linestyle": style.line, "label": label or style.label}
    axes.plot(x, y, marker="o" if len(x) == 1 else "", **options, **more)


def symlog_k_axis(axes: Axes, ks: list[float], *, base: float = 10.0, rotation: float = 0.0) -> None:
    """A symmetric log axis of k, linear up to the smallest k above 0, with every k written."""
    axes.set_xscale("symlog", base=base, linthresh=min((k for k in ks if k > 0), default=1.0))
    axes.set_xticks(ks, [f"{k:g}" for k in ks], rotation=rotation)
    axes.minorticks_off()


def rendered(figure: Figure) -> dict[str, bytes]:
    """A figure as PNG, SVG and PDF without dates inside."""
    with _laid_out(figure) as box:
        return {kind: _rendered(figure, kind, box) for kind in FORMATS}


def as_svg(figure: Figure) -> bytes:
    """A figure as a small SVG without a date inside."""
    with _laid_out(figure) as box:
        return _rendered(figure, "svg", box)


@contextmanager
def _laid_out(figure: Figure) -> Iterator[Bbox]:
    """The part of a figure that holds something, in inches.

    Matplotlib would lay out and measure a figure again for each format, which takes as long as drawing it.
    """
    engine = figure.get_layout_engine()
    dpi = figure.get_dpi()
    try:
        with rc_style():
            figure.set_dpi(mpl.rcParams["savefig.dpi"])  # the width of a text depends on it
            figure.draw_without_rendering()
            box = figure.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])
        figure.set_layout_engine("none")
        yield box
    finally:
        figure.set_layout_engine(engine)
        figure.set_dpi(dpi)


def _rendered(figure: Figure, kind: str, box: Bbox) -> bytes:
    out = BytesIO()
    dateless = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with rc_style():
        figure.savefig(out, format=kind, bbox_inches=box, metadata=dateless[kind])
    return shortened(out.getvalue().decode()).encode() if kind == "svg" else out.getvalue()
