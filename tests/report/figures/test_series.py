"""Series: smoothing and means by hand."""

import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb

from valueshare.errors import InvalidInput
from valueshare.report.figures import series
from valueshare.report.figures.style import series_style
from valueshare.text import format_steps


def test_smoothing_by_hand() -> None:
    values = pl.Series([1.0, 2.0, 6.0, 4.0])
    # Windows of three: (1+2)/2, (1+2+6)/3, (2+6+4)/3, (6+4)/2.
    np.testing.assert_allclose(series.smoothed(values, 3), [1.5, 3.0, 4.0, 5.0])
    np.testing.assert_array_equal(series.smoothed(values, 1), values)
    rng = np.random.default_rng(0)
    long = rng.standard_normal(50)
    slow = [long[max(0, i - 3) : i + 4].mean() for i in range(50)]
    np.testing.assert_allclose(series.smoothed(pl.Series(long), 7), slow)
    for window in (0, 2, -1):
        with pytest.raises(InvalidInput, match="odd"):
            series.smoothed(values, window)


def test_means_over_seeds_count_them_and_say_where_some_are_missing() -> None:
    table = pl.DataFrame(
        {
            "env": ["Pong"] * 5,
            "algorithm": ["dqn"] * 5,
            "seed": [0, 1, 2, 0, 1],
            "step": [0, 0, 0, 10, 10],
            "score": [1.0, 2.0, None, 4.0, float("nan")],
        }
    )
    means = series.seed_means(table, "score")
    assert means.select("k", "step", "mean", "seeds").rows() == [
        (0.0, 0, 1.5, 2),
        (0.0, 10, 4.0, 1),
    ]
    assert series.short_seeds(means).startswith("1 of 1 curves")
    assert series.short_seeds(means.head(1)) == ""
    with pytest.raises(InvalidInput, match="'overestimation'"):
        series.seed_means(table, "overestimation")
    with pytest.raises(InvalidInput, match="nothing to draw"):
        series.seed_means(table.with_columns(score=pl.lit(None, pl.Float64)), "score")


def test_names_and_numbers_as_one_reads_them() -> None:
    assert series.game("ALE/MsPacman-v5") == "MsPacman"
    assert series.game("LunarLander-v3") == "LunarLander-v3"
    assert [format_steps(x) for x in (0, 250_000, 33_750_000, 999)] == [
        "0",
        "250k",
        "33.75M",
        "999",
    ]


def test_ib_dqn_with_k_0_is_called_dqn_and_labels_differ() -> None:
    rows = [{"algorithm": "ib-dqn", "k": k} for k in (0.0, 4.0)]
    assert [v.style.label for v in series.find_variants(pl.DataFrame(rows))] == ["DQN", "IB-DQN(4)"]
    both = [{"algorithm": "dqn", "k": 0.0}, *rows]
    labels = [v.style.label for v in series.find_variants(pl.DataFrame(both))]
    assert labels == ["DQN", "DQN (ib-dqn)", "IB-DQN(4)"]


def test_an_imported_dqn_with_several_k_keeps_all_of_them() -> None:
    ks = [0.0, 1.0, 2.0, 4.0, 4.0000001, 4.0000002]
    variants = series.find_variants(pl.DataFrame([{"algorithm": "dqn", "k": k} for k in ks]))
    assert [variant.k for variant in variants] == ks
    assert [variant.style.label for variant in variants] == [
        *("DQN", "DQN(1)", "DQN(2)", "DQN(4)", "DQN(4) (dqn)", "DQN(4) (dqn, k = 4.0000002)")
    ]


def drawn(algorithms: list[tuple[str, float]]) -> list[tuple[str, object]]:
    """Colour and line of each, in a figure of all of them."""
    table = pl.DataFrame(algorithms, ["algorithm", "k"], orient="row")
    return [(variant.style.colour, variant.style.line) for variant in series.find_variants(table)]


@pytest.mark.parametrize(
    "algorithms",
    [
        [("dqn", 0.0), ("ib-dqn", 0.0), ("ib-dqn", 4.0)],
        [(f"ib-dqn step_size={size}", k) for size in ("0.001", "0.0003", "0.0001") for k in (0.0, 1.0, 4.0)],
        [("ib-dqn", float(k)) for k in (0, 1, 2, 3, 4, 5, 6, 8, 10)],
        [("ib-dqn", 1.0), ("ib-double-dqn", 1.0), ("ib-iqn", 1.0), ("dqn", 0.0), ("PPO", 0.0), ("SAC", 0.0)],
    ],
)
def test_no_two_algorithms_of_a_figure_look_alike(algorithms: list[tuple[str, float]]) -> None:
    found = drawn(algorithms)
    for i, (colour, line) in enumerate(found):
        for other, other_line in found[:i]:
            apart = np.abs(np.subtract(to_rgb(colour), to_rgb(other))).max()
            assert line != other_line or apart > 0.15


def test_what_looks_like_no_other_keeps_its_look() -> None:
    paper = [("dqn", 0.0), ("dueling-dqn", 0.0), ("ib-dqn", 1.0), ("ib-dqn", 18.0), ("rdq", 0.0), ("iqn", 0.0)]
    assert drawn(paper) == [(own.colour, own.line) for own in (series_style(*one) for one in paper)]
