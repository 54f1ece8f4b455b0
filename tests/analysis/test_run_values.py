"""One number a run: areas and ends of curves, whole ones only."""

from collections.abc import Callable

import polars as pl
import pytest

from valueshare import InvalidInput
from valueshare.analysis import bootstrap_interval, final_scores, run_auc
from valueshare.analysis.aggregate import auc

Tidy = Callable[..., pl.DataFrame]


@pytest.fixture
def curves(tidy: Tidy) -> pl.DataFrame:
    """Pong is evaluated at 0, 10, 20, 30, Alien at 0 and 10; Pong's seed 1 lacks step 20."""
    steps = {0: [1.0, 2.0], 10: [3.0, 4.0], 20: [5.0, None], 30: [9.0, 8.0]}
    pong = [tidy({("dqn", "Pong"): own}, step=step) for step, own in steps.items()]
    alien = [tidy({("dqn", "Alien"): [step + 1.0]}, step=step) for step in (0, 10)]
    return pl.concat([*pong, *alien])


def test_areas_of_whole_curves(curves: pl.DataFrame) -> None:
    found = run_auc(curves)
    rows = found.table.select("env", "seed", "score", "points", "missing").rows()
    assert rows == [
        ("Alien", 0, 11.0, 1, 0),
        ("Pong", 0, (3 + 5 + 9) / 3, 3, 0),
        ("Pong", 1, None, 2, 1),
    ]
    (note,) = found.notes
    assert note.startswith("1 of 3 runs lack evaluations that others have there, and have no value")
    assert note.endswith(": dqn k=0 env=Pong 1")


def test_the_last_evaluations(curves: pl.DataFrame) -> None:
    assert final_scores(curves, last=1).table["score"].to_list() == [11.0, 9.0, 8.0]
    # Not the one before training: Alien has one evaluation.
    assert final_scores(curves).table["score"].to_list() == [11.0, (3 + 5 + 9) / 3, None]
    with pytest.raises(InvalidInput, match="last = 0"):
        final_scores(curves, last=0)


def test_one_environment_has_the_areas_of_the_agents(study: pl.DataFrame) -> None:
    own = study.filter(pl.col("env") == "Game02", pl.col("algorithm") == "dqn")
    agents = auc(own.with_columns(agent=pl.col("seed")))
    assert run_auc(own).table["score"].to_list() == pytest.approx(agents["value"].to_list())


def test_areas_go_into_intervals(study: pl.DataFrame) -> None:
    found = bootstrap_interval(run_auc(study).table, resamples=100).table
    assert found["runs"].to_list() == [55, 55]


def test_other_settings_are_other_runs_and_twice_is_refused(tidy: Tidy) -> None:
    table = tidy({("dqn", "Pong"): [1.0]})
    two = pl.concat([table.with_columns(step_size=pl.lit(size)) for size in (0.1, 0.2)])
    assert run_auc(two).table["step_size"].to_list() == [0.1, 0.2]
    with pytest.raises(InvalidInput, match="evaluation twice"):
        run_auc(pl.concat([table, table]))
    with pytest.raises(InvalidInput, match="no column 'gap'"):
        run_auc(table, "gap")


def test_games_are_not_scored_before_training() -> None:
    # Pong: (-20 - 10) / 2 = -15; with the first it would be -17. LunarLander: (-30 + 60) / 3 = 10.
    steps = [0, 250_000, 500_000]
    rows = [("ALE/Pong-v5", s, v) for s, v in zip(steps, (-21.0, -20.0, -10.0), strict=True)]
    rows += [("LunarLander-v3", s, v) for s, v in zip(steps, (-30.0, 0.0, 60.0), strict=True)]
    table = pl.DataFrame(rows, schema=["env", "step", "score"], orient="row").with_columns(
        algorithm=pl.lit("dqn"), seed=0
    )
    found = run_auc(table).table
    assert dict(found.select("env", "score").iter_rows()) == {
        "ALE/Pong-v5": -15.0,
        "LunarLander-v3": 10.0,
    }
