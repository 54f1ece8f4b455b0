"""Series: smoothing and means by hand."""

import numpy as np
import polars as pl
import pytest

from valueshare.errors import InvalidInput
from valueshare.report.figures import series
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
