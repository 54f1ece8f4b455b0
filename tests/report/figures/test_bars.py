"""Bars by game: sorted, clipped, in percent."""

import polars as pl
from matplotlib.axes import Axes

from valueshare.report.figures import bars
from valueshare.report.figures.style import series_style

PLAIN, LAYER = series_style("dqn"), series_style("ib-dqn", 18.0, 18)


def differences() -> pl.DataFrame:
    """As `game_differences` answers it."""
    return pl.DataFrame(
        {
            "env": ["ALE/Pong-v5", "Alien", "Breakout"],
            "difference": [0.5, -0.02, 30.0],
            "ci95_low": [0.4, -0.05, None],
            "ci95_high": [0.7, 0.01, None],
            "percent": [-50.0, 25.0, -150.0],
        }
    )


def heights(axes: Axes) -> list[float]:
    return [float(bar.get_width()) for bar in axes.patches]  # type: ignore[attr-defined]


def names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_score_changes_are_sorted_bars_on_a_symlog_axis() -> None:
    (axes,) = bars.score_change(differences(), PLAIN, LAYER).axes
    assert names(axes) == ["Alien", "Pong", "Breakout"]  # from below
    assert heights(axes) == [-0.02, 0.5, 30.0]
    assert axes.get_xscale() == "symlog"
    assert axes.get_title(loc="left").startswith("better in 2 of 3 games, worse in 1")
    assert axes.get_xlabel().endswith("DQN → IB-DQN(n) (symlog)")
    strokes = axes.collections[0].get_segments()  # type: ignore[attr-defined]
    drawn = [[tuple(point) for point in stroke.tolist()] for stroke in strokes]
    assert drawn == [[(-0.05, 0), (0.01, 0)], [(0.4, 1), (0.7, 1)]]  # none for Breakout
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours[1] == colours[2] != colours[0]


def test_overestimation_reductions_are_in_percent_of_the_plain_ones() -> None:
    (axes,) = bars.overestimation_reduction(differences(), PLAIN, LAYER).axes
    assert names(axes) == ["Alien", "Pong", "Breakout"]
    assert heights(axes) == [-25.0, 50.0, 150.0]  # the reduction, not the change
    assert axes.get_title(loc="left") == "less in 2 of 3 games, more in 1"


def test_action_gaps_are_clipped_and_say_by_how_much() -> None:
    gaps = differences().with_columns(difference=pl.Series([0.004, -0.001, 0.0234]))
    (axes,) = bars.action_gap_increase(gaps, PLAIN, LAYER).axes
    assert heights(axes) == [-0.001, 0.004, 0.01]
    assert names(axes) == ["Alien", "Pong", "Breakout (+0.023)"]
    assert "clipped at 0.01" in axes.get_xlabel()


def test_action_gaps_that_are_nearly_all_large_are_not_clipped() -> None:
    gaps = differences().with_columns(difference=pl.Series([0.04, -0.09, 0.757]))
    (axes,) = bars.action_gap_increase(gaps, PLAIN, LAYER).axes
    assert heights(axes) == [-0.09, 0.04, 0.757]
    assert "clipped" not in axes.get_xlabel()
    assert names(axes) == ["Alien", "Pong", "Breakout"]


def test_a_bar_that_is_cut_off_says_its_value_and_its_interval_stays_in_the_figure() -> None:
    gaps = differences().with_columns(
        difference=pl.Series([0.004, -0.0512, 0.002]), ci95_high=pl.Series([0.005, 3.0, 0.003])
    )
    (axes,) = bars.action_gap_increase(gaps, PLAIN, LAYER).axes
    assert names(axes) == ["Alien (−0.051)", "Breakout", "Pong"]
    assert heights(axes)[0] == -bars.GAP_CLIP
    strokes = axes.collections[0].get_segments()  # type: ignore[attr-defined]
    assert max(float(stroke.max()) for stroke in strokes if stroke[0, 1] == 0) == bars.GAP_CLIP
