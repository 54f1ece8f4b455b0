"""One name, colour and kind of line for an algorithm, in every figure; series from tidy tables."""

import re
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from valueshare.learning.algorithms import ALGORITHMS
from valueshare.report.figures import style
from valueshare.report.figures.style import series_style
from valueshare.report.figures.variants import find_variants

PAPER = [
    ("dqn", 0.0, "DQN"),
    ("dueling-dqn", 0.0, "Dueling DQN"),
    ("ib-dqn", 1.0, "IB-DQN(1)"),
    ("ib-dqn", 18.0, "IB-DQN(n)"),
    ("rdq", 0.0, "RDQ"),
    ("iqn", 0.0, "IQN"),
    ("ib-iqn", 18.0, "IB-IQN(n)"),
]


@pytest.mark.parametrize(("algorithm", "k", "label"), PAPER)
def test_the_papers_names_and_dashes_where_the_layer_is_on(algorithm: str, k: float, label: str) -> None:
    own = series_style(algorithm, k, n=18)
    assert own.label == label
    assert own.dashed == label.startswith("IB-")
    assert own.line == ("--" if k else "-")


@pytest.mark.parametrize("dashes", range(len(style.DASHES)))
def test_patterns_are_those_that_matplotlib_draws(dashes: int) -> None:
    own = series_style("ib-dqn", 2.0)._replace(dashes=dashes)
    axes = Figure().subplots()
    with style.rc_style():
        (line,) = axes.plot([0, 1], [0, 1], linestyle=own.line, linewidth=1)
    assert tuple(line._unscaled_dash_pattern[1]) == own.pattern  # type: ignore[attr-defined]
    assert series_style("dqn").pattern == ()


def test_every_algorithm_of_the_package_has_a_look_and_all_of_the_paper_differ() -> None:
    for algorithm in ALGORITHMS:
        assert series_style(algorithm).label != algorithm  # known
    assert len({series_style(a, k, 18).colour for a, k, _ in PAPER}) == len(PAPER)
    assert series_style("ib-dqn", 0.0).colour == series_style("dqn").colour  # k = 0 is DQN
    assert not series_style("ib-dqn", 0.0).dashed
    assert series_style("ib-dqn", 18.0).label == "IB-DQN(18)"  # n is not known


def test_contrast_is_that_of_wcag() -> None:
    """#777777: (119 / 255 + 0.055) / 1.055 to the power of 2.4 is 0.1845, and 1.05 / 0.2345 is 4.478."""
    assert style.contrast("black", "white") == pytest.approx(21)
    assert style.contrast("#777777", "white") == style.contrast("white", "#777777") == pytest.approx(4.478, abs=1e-3)
    assert style.text_colour("#595959") == "#595959"
    assert 4.5 <= style.contrast(style.text_colour(style.SKY), "white") < 5.1


def test_lines_stand_out_from_white_paper() -> None:
    for algorithm, k, _ in PAPER:
        assert style.contrast(series_style(algorithm, k, 18).colour, "white") > 2.0


def as_deuteranope(colour: str) -> np.ndarray:
    """Viénot, Brettel and Mollon's (1999) simulation of the most common colour blindness."""
    to_lms = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    blind = np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]])
    linear = np.array(to_rgb(colour)) ** 2.2
    seen = np.linalg.inv(to_lms) @ blind @ to_lms @ linear
    return np.asarray(np.clip(seen, 0, 1) ** (1 / 2.2))


def test_colours_differ_for_colour_blind_eyes_or_the_lines_do() -> None:
    looks = [series_style(a, k, 18) for a, k, _ in PAPER]
    for i, one in enumerate(looks):
        for other in looks[:i]:
            apart = float(np.abs(as_deuteranope(one.colour) - as_deuteranope(other.colour)).max())
            assert apart > 0.1 or one.dashed != other.dashed, (one.label, other.label)


def test_unknown_names_and_settings_keep_their_names_and_their_colours() -> None:
    assert series_style("PPO").label == "PPO"
    assert series_style("PPO") == series_style("PPO")
    assert series_style("Rainbow DQN").label == "Rainbow DQN"
    assert series_style("dqn (mine)").label == "dqn (mine)"
    assert series_style("Rainbow DQN step_size=0.1").label == "Rainbow DQN with step size 0.1"
    both = series_style("rdq step_size=0.1 beta=0.5")
    assert both.label == "RDQ with step size 0.1 and beta 0.5"
    told = series_style("ib-dqn step_size=0.001", 4.0)
    assert told.label == "IB-DQN(4) with step size 0.001"
    assert told.dashed


def test_the_order_is_the_papers() -> None:
    shuffled = pl.DataFrame([(a, k) for a, k, _ in reversed(PAPER)], ["algorithm", "k"], orient="row")
    assert [v.style.label for v in find_variants(shuffled, 18)] == [name for *_, name in PAPER]


def test_an_svg_keeps_two_decimals_and_nothing_is_dated() -> None:
    figure = Figure()
    figure.subplots().plot([0, 1 / 3, 1], [0, 1 / 7, 1])
    svg = style.rendered(figure)["svg"].decode()
    paths = re.findall(r' d="([^"]*)"', svg)
    assert paths
    assert not [p for p in paths if re.search(r"\.\d{3}", p)]
    assert "<dc:date>" not in svg


def test_a_figure_that_is_laid_out_once_is_as_large_as_matplotlib_makes_it(tmp_path: Path) -> None:
    """As a PNG alone."""
    with style.rc_style():
        figure = Figure(figsize=(3, 2), layout="constrained")
        figure.add_subplot().plot([0, 1], [0, 1e6])
        figure.text(1.2, 0.5, "beside the figure")  # which the saved part includes
        figure.savefig(tmp_path / "alone.png", bbox_inches="tight")
    engine = figure.get_layout_engine()
    png = BytesIO(style.rendered(figure)["png"])
    assert figure.get_layout_engine() is engine
    with Image.open(tmp_path / "alone.png") as alone, Image.open(png) as image:
        assert image.size == alone.size
        assert image.width > 3.5 * 200
