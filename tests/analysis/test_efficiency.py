"""How much sooner a curve reaches another's best: by hand, and against a naive bootstrap."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pytest

from valueshare import InvalidInput
from valueshare.analysis import (
    efficiency,
    iqm,
    iqm_curves,
    sample_efficiency,
    sample_efficiency_interval,
)
from valueshare.analysis.efficiency import EfficiencyPoint

Tidy = Callable[..., pl.DataFrame]


def curves(**lines: list[float | None]) -> pl.DataFrame:
    rows = [
        {"algorithm": name, "step": 10 * (index + 1), "value": value}
        for name, line in lines.items()
        for index, value in enumerate(line)
    ]
    return pl.DataFrame(rows, schema_overrides={"value": pl.Float64})


def test_the_first_step_that_reaches_the_others_best() -> None:
    table = curves(dqn=[1, 5, 4, 5], ib=[2, 4, 5, 3], slow=[0, 1, 2, 3])
    assert sample_efficiency(table, "ib", "dqn") == EfficiencyPoint(30, 5.0, 20, 40, 0.75)
    assert sample_efficiency(table, "slow", "dqn").step is None
    assert sample_efficiency(table, "slow", "dqn").fraction is None


def test_curves_of_other_lengths_and_with_gaps() -> None:
    table = curves(dqn=[1, None, 3], ib=[2, 4, None, 1, 1])
    assert sample_efficiency(table, "ib", "dqn") == EfficiencyPoint(20, 3.0, 30, 30, 20 / 30)


def test_curves_that_cannot_be_compared_are_refused() -> None:
    table = curves(dqn=[1, 2], ib=[None, None])
    with pytest.raises(InvalidInput, match="ib has no finite value"):
        sample_efficiency(table, "dqn", "ib")
    with pytest.raises(InvalidInput, match="there are no runs of iqn: choose one of dqn; ib"):
        sample_efficiency(table, "iqn", "dqn")
    two = pl.concat([table.with_columns(k=pl.lit(k)) for k in (1.0, 2.0)])
    with pytest.raises(InvalidInput, match="dqn is several curves: name its k too"):
        sample_efficiency(two, "dqn", "dqn")


def test_points_over_fewer_games_are_other_quantities() -> None:
    """At step 30 only easy games are left of dqn: 9 is not what ib has to reach."""
    table = curves(dqn=[1, 5, 9], ib=[4, 5, 6]).with_columns(games=pl.Series([2, 2, 1, 2, 2, 2]))
    assert sample_efficiency(table, "ib", "dqn") == EfficiencyPoint(20, 5.0, 20, 20, 1.0)
    fewer = table.with_columns(games=pl.Series([1, 1, 1, 2, 2, 2]))
    with pytest.raises(InvalidInput, match="dqn has no point over all 2 environments"):
        sample_efficiency(fewer, "ib", "dqn")


def naive(x: np.ndarray, y: np.ndarray, steps: Sequence[int], draws: int) -> list[float]:
    """Whole runs are drawn, game by game. Shapes: x, y [games, seeds, steps]."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(draws):
        lines = []
        for side in (x, y):
            seeds, points = side.shape[1:]
            drawn = np.stack([game[rng.integers(seeds, size=seeds)] for game in side])
            lines.append([iqm(drawn[:, :, t]) for t in range(points)])
        there = [step for step, value in zip(steps, lines[0], strict=True) if value >= max(lines[1])]
        found.append(min(there, default=np.inf))
    return sorted(found)


@pytest.fixture(scope="module")
def rising() -> pl.DataFrame:
    """Three games, four seeds, ten evaluations; ib rises a little faster."""
    rng = np.random.default_rng(11)
    rows = [
        (f"Game{game}", name, seed, 10 * t, speed * t * (1 + game) + 4 * noise + rng.normal(0, 0.5))
        for game in range(3)
        for name, speed in (("dqn", 1.0), ("ib", 1.5))
        for seed in range(4)
        for noise in [rng.normal()]  # a run's own, at all its evaluations
        for t in range(1, 11)
    ]
    return pl.DataFrame(rows, ["env", "algorithm", "seed", "step", "score"], orient="row")


def test_the_interval_is_that_of_a_naive_bootstrap(rising: pl.DataFrame) -> None:
    found = sample_efficiency_interval(rising, "ib", "dqn", resamples=20_000).table
    row = found.row(0, named=True)
    point = sample_efficiency(iqm_curves(rising, resamples=1).table, "ib", "dqn")
    assert tuple(row[name] for name in EfficiencyPoint._fields) == tuple(point)
    x, y = (
        rising.filter(algorithm=name).sort("env", "seed", "step")["score"].to_numpy()
        .reshape(3, 4, 10)
        for name in ("ib", "dqn")
    )  # fmt: skip
    drawn = naive(x, y, range(10, 110, 10), 1_000)
    # Steps are tens: at 1,000 draws an end may be one evaluation off.
    assert row["ci95_low"] == pytest.approx(drawn[24], abs=10)
    assert row["ci95_low"] < row["step"] <= row["ci95_high"] <= 100
    assert row["reached"] == pytest.approx(np.isfinite(drawn).mean(), abs=0.03)
    assert (row["games"], row["runs_x"], row["runs_y"]) == (3, 12, 12)


def test_many_evaluations_are_resampled_in_pieces(rising: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sample_efficiency_interval(rising, "ib", "dqn", resamples=4_000).table
    monkeypatch.setattr(efficiency, "MEMORY", 16 * 10 * 500)
    pieces = sample_efficiency_interval(rising, "ib", "dqn", resamples=4_000).table
    assert pieces["ci95_low"][0] == pytest.approx(whole["ci95_low"][0], abs=10)
    assert pieces["reached"][0] == pytest.approx(whole["reached"][0], abs=0.03)


def test_what_is_never_reached_has_no_end(rising: pl.DataFrame) -> None:
    high = rising.with_columns(score=pl.col("score") + 1e3 * (pl.col("algorithm") == "dqn"))
    never = sample_efficiency_interval(high, "ib", "dqn", resamples=50).table
    row = never.row(0, named=True)
    assert (row["step"], row["ci95_low"], row["ci95_high"], row["reached"]) == (None, None, None, 0)
    alone = sample_efficiency_interval(rising.filter(pl.col("seed") == 0), "ib", "dqn", resamples=50).table
    row = alone.row(0, named=True)
    assert row["step"] is not None
    assert (row["ci95_low"], row["reached"]) == (None, None)
    every = sample_efficiency_interval(rising, "ib", "dqn", resamples=50).table
    assert pl.concat([every, never, alone])["step"].null_count() == 1  # their columns have the same types


def test_runs_that_lack_evaluations_are_left_out_and_said(rising: pl.DataFrame) -> None:
    short = rising.filter(~((pl.col("algorithm") == "dqn") & (pl.col("env") == "Game1")
                            & (pl.col("seed") == 2) & (pl.col("step") > 50)))  # fmt: skip
    found = sample_efficiency_interval(short, "ib", "dqn", resamples=50)
    assert found.table.select("runs_x", "runs_y").row(0) == (12, 11)
    assert found.notes == ("dqn: 1 runs lack evaluations or a partner: env=Game1 seed=2",)
    with pytest.raises(InvalidInput, match="no environment with runs that have all evaluations"):
        sample_efficiency_interval(
            rising.filter((pl.col("algorithm") == "ib") | (pl.col("step") != 10 * pl.col("seed"))
                          | (pl.col("seed") == 0)).filter(pl.col("seed") > 0), "ib", "dqn"
        )  # fmt: skip
