"""One number per run: areas and ends of curves, whole ones only."""

from collections.abc import Callable, Sequence

import polars as pl
import pytest

from valueshare import InvalidInput
from valueshare.analysis import bootstrap_interval, final_scores, run_auc
from valueshare.analysis.run_values import at_shared_steps, uneven_evaluations

Tidy = Callable[..., pl.DataFrame]


@pytest.fixture
def curves(tidy: Tidy) -> pl.DataFrame:
    """Pong is evaluated at 0, 10, 20, 30, Alien at 0 and 10; Pong's seed 1 lacks step 20."""
    steps = {0: [1.0, 2.0], 10: [3.0, 4.0], 20: [5.0, None], 30: [9.0, 8.0]}
    pong = [tidy({("dqn", "Pong"): own}, step=step) for step, own in steps.items()]
    alien = [tidy({("dqn", "Alien"): [step + 1.0]}, step=step) for step in (0, 10)]
    return pl.concat([*pong, *alien])


def test_evaluations_far_from_even_are_noted() -> None:
    """A run of 50 steps, evaluated every 5, that was extended to 51; and one that evaluates at the end of episodes."""

    def noted(steps: Sequence[int]) -> list[str]:
        return uneven_evaluations(pl.DataFrame({"env": "E", "algorithm": "dqn", "k": 0.0, "seed": 0, "step": steps}))

    note = "E: evaluations are not evenly spaced, and AUC counts each of them equally"
    assert noted([*range(0, 51, 5), 51]) == noted([0, 100, 170]) == [note]
    assert noted(range(0, 51, 5)) == noted([0, 105, 203, 310]) == noted([0]) == []


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
    ends = final_scores(curves)
    assert ends.table["score"].to_list() == [11.0, (3 + 5 + 9) / 3, None]
    assert ends.notes[0] == "final scores are means of fewer than 3 evaluations, as there are no more: Alien 1"
    assert not any("fewer" in note for note in final_scores(curves, last=1).notes)
    with pytest.raises(InvalidInput, match="last = 0"):
        final_scores(curves, last=0)


def test_areas_go_into_intervals(two_algorithms: pl.DataFrame) -> None:
    found = bootstrap_interval(run_auc(two_algorithms).table, resamples=100).table
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


def records(rows: Sequence[tuple[int, int, float | None]]) -> pl.DataFrame:
    """Evaluations of one algorithm: seed, step, score."""
    schema = {"seed": pl.Int64, "step": pl.Int64, "score": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row").with_columns(env=pl.lit("Here"))


def test_auc_is_the_mean_of_an_agents_evaluations() -> None:
    # Agent 0: (-100 + 20 + 140) / 3 = 20. Agent 1: (0 + 30 + 60) / 3 = 30.
    rows = [
        (0, 0, -100.0),
        (0, 10, 20.0),
        (0, 20, 140.0),
        (1, 0, 0.0),
        (1, 10, 30.0),
        (1, 20, 60.0),
    ]
    table = run_auc(records(rows)).table
    assert table["seed"].to_list() == [0, 1]
    assert table["score"].to_list() == [20.0, 30.0]
    assert table["missing"].to_list() == [0, 0]


def test_a_curve_with_a_hole_or_a_missing_end_has_no_auc() -> None:
    # Without its null, agent 1 would have (50 + 60) / 2 = 55: its bad start would be forgotten.
    rows = [
        *[(0, 0, 0.0), (0, 10, 10.0), (0, 20, 20.0)],
        *[(1, 0, None), (1, 10, 50.0), (1, 20, 60.0)],
        *[(2, 0, 0.0), (2, 10, 5.0)],
        *[(3, 0, 0.0), (3, 10, float("nan")), (3, 20, float("inf"))],
    ]
    table = run_auc(records(rows)).table
    assert table["score"].to_list() == [10.0, None, None, None]
    assert table["points"].to_list() == [3, 2, 2, 1]
    assert table["missing"].to_list() == [0, 1, 1, 2]


def test_a_step_at_which_nobody_has_a_value_is_no_point() -> None:
    # An action gap does not exist before training: step 0 is null for all, and costs nobody theirs.
    rows = [(0, 0, None), (0, 10, 1.0), (0, 20, 3.0), (1, 0, None), (1, 10, 2.0), (1, 20, 2.0)]
    assert run_auc(records(rows)).table["score"].to_list() == [2.0, 2.0]


def test_runs_with_other_evaluation_intervals_are_compared_where_all_were_evaluated() -> None:
    """Evaluated every 10 or 20 steps; the third run has not got as far, and the other game has one interval."""
    runs = {
        ("A", 0): range(0, 41, 10),
        ("A", 1): range(0, 41, 20),
        ("A", 2): range(0, 21, 20),
        ("B", 0): range(0, 31, 10),
    }
    rows = [
        {"env": env, "algorithm": "dqn", "seed": seed, "step": step}
        for (env, seed), own in runs.items()
        for step in own
    ]
    kept = at_shared_steps(pl.DataFrame(rows)).group_by("env", "seed", maintain_order=True).agg("step")
    assert kept["step"].to_list() == [[0, 20, 40], [0, 20, 40], [0, 20], [0, 10, 20, 30]]
