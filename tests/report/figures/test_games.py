"""Per-game figures draw the table they are given."""

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from synthetic import synthetic_results

from valueshare.analysis.scores import atari_baselines
from valueshare.report.figures import games


def shown(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    found = {}
    for line in axes.lines:
        x, y = (np.asarray(data, float).tolist() for data in line.get_data(orig=True))
        found[str(line.get_label())] = (x, y)
    return found


def table(rows: list[tuple[str, str, float, int, int, float]], column: str) -> pl.DataFrame:
    return pl.DataFrame(rows, ["env", "algorithm", "k", "seed", "step", column], orient="row")


def test_learning_curves_are_smoothed_means_over_seeds() -> None:
    points = [0.0, 3.0, 6.0, 0.0]
    rows = [
        ("Pong", "dqn", 0.0, seed, 10 * t, points[t] + 2 * seed)  # two seeds: the mean is + 1
        for seed in (0, 1)
        for t in range(4)
    ]
    rows += [("ALE/Alien-v5", "ib-dqn", 18.0, 0, 10 * t, 1.0) for t in range(4)]
    figure = games.learning_curves(table(rows, "score"), smoothing=3, n=18)
    alien, pong = shown(figure)
    assert [axes.get_title(loc="left") for axes in (alien, pong)] == ["Alien", "Pong"]
    x, y = lines(pong)["DQN"]
    assert x == [0, 10, 20, 30]
    # Means 1, 4, 7, 1; windows of three: 5/2, 12/3, 12/3, 8/2.
    assert y == [2.5, 4.0, 4.0, 4.0]
    assert lines(alien)["IB-DQN(n)"][1] == [1.0] * 4
    words = " ".join(text.get_text() for text in figure.texts)
    assert "moving average of 3 evaluations" in words
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["DQN", "IB-DQN(n)"]
    dashes = [line.get_linestyle() for line in figure.legends[0].get_lines()]
    assert dashes == ["-", "--"]


def test_the_smoothing_of_the_paper_is_stated_and_missing_seeds_too() -> None:
    rows = [("Pong", "dqn", 0.0, seed, t, 1.0) for seed in (0, 1) for t in range(9)]
    figure = games.learning_curves(table(rows[:-1], "score"))
    words = " ".join(text.get_text() for text in figure.texts)
    assert "moving average of 7 evaluations" in words
    assert "1 of 1 curves rest on fewer seeds" in words


def test_bands_are_the_intervals_given() -> None:
    rows = [("Pong", "dqn", 0.0, seed, t, float(seed)) for seed in (0, 1) for t in range(3)]
    bands = pl.DataFrame(
        {
            "env": ["Pong"] * 3,
            "algorithm": ["dqn"] * 3,
            "k": [0.0] * 3,
            "step": [0, 1, 2],
            "ci95_low": [-1.0, -2.0, None],
            "ci95_high": [1.0, 2.0, None],
        }
    )
    figure = games.learning_curves(table(rows, "score"), smoothing=1, bands=bands)
    (axes,) = shown(figure)
    corners = np.asarray(axes.collections[0].get_paths()[0].vertices)
    assert {tuple(corner) for corner in corners.tolist()} >= {(0, -1), (0, 1), (1, -2), (1, 2)}
    assert corners[:, 0].max() == 1  # no interval, no shade
    assert "95 % intervals" in " ".join(text.get_text() for text in figure.texts)


def test_overestimation_is_capped_and_each_seed_is_a_line() -> None:
    rows = [
        ("Pong", "dqn", 0.0, seed, t, value)
        for seed, curve in enumerate(([1.0, 2.0], [3.0, 60.0]))
        for t, value in enumerate(curve)
    ]
    figure = games.overestimation_curves(table(rows, "overestimation"))
    (axes,) = shown(figure)
    seeds, mean = axes.lines
    np.testing.assert_array_equal(np.asarray(seeds.get_ydata(orig=True), float), [1.0, 2.0, np.nan, 3.0, 25.0, np.nan])
    assert seeds.get_alpha() == 0.3
    # Means 2 and 31, the second cut at 25.
    assert list(np.asarray(mean.get_ydata(orig=True))) == [2.0, 25.0]
    words = " ".join(text.get_text() for text in figure.texts)
    assert "Capped at 25; the highest is 60" in words


def test_overestimation_of_an_algorithm_that_one_environment_does_not_have() -> None:
    """k = n differs between environments with different numbers of actions."""
    rows = [("A-v0", "ib-dqn", 9.0, 0, 1, 2.0), ("B-v0", "ib-dqn", 49.0, 0, 1, 3.0)]
    panels = shown(games.overestimation_curves(table(rows, "overestimation")))
    drawn = [[list(np.asarray(line.get_ydata(orig=True))) for line in axes.lines[1::2]] for axes in panels]
    assert drawn == [[[2.0], []], [[], [3.0]]]


def test_fifty_seven_panels() -> None:
    results = synthetic_results(57, 1, 2)
    figure = games.learning_curves(results, smoothing=1, n=18)
    panels = shown(figure)
    assert len(panels) == 57
    names = [axes.get_title(loc="left") for axes in panels]
    assert names == sorted(atari_baselines()["game"].to_list(), key=str.lower)
    pong = results.filter((pl.col("env") == "Pong") & (pl.col("algorithm") == "rdq"))
    drawn = lines(panels[names.index("Pong")])
    assert drawn["RDQ"][1] == pytest.approx(pong["score"].to_list())
    assert list(drawn) == [*("DQN", "Dueling DQN", "IB-DQN(1)", "IB-DQN(n)", "RDQ", "IQN", "IB-IQN(n)")]


@pytest.mark.parametrize(("algorithms", "columns"), [(5, 5), (6, 3)])
def test_five_games_with_many_lines_have_two_rows_of_larger_panels(algorithms: int, columns: int) -> None:
    names = ["dqn", "dueling-dqn", "rdq", "double-dqn", "iqn", "other"][:algorithms]
    rows = [(f"Game{i}", name, 0.0, 0, step, 1.0) for i in range(5) for name in names for step in (0, 1)]
    panels = shown(games.learning_curves(table(rows, "score"), smoothing=1))
    assert len(panels) == 5
    assert len({round(axes.get_position().x0, 6) for axes in panels}) == columns
