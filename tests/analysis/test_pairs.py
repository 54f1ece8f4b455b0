"""Two algorithms where both have something: environments, and evaluations."""

import polars as pl
import pytest

from valueshare import InvalidInput
from valueshare.analysis import run_auc, shared_evaluations


def table(*curves: tuple[str, str, int, dict[int, float | None]]) -> pl.DataFrame:
    rows = [(env, name, seed, step, score) for env, name, seed, own in curves for step, score in own.items()]
    names = ["env", "algorithm", "seed", "step", "score"]
    return pl.DataFrame(rows, names, orient="row", infer_schema_length=None)


def test_curves_are_cut_to_the_evaluations_of_both() -> None:
    """In Pong x is evaluated every 5 steps and y every 10, and y has no score at 20."""
    given = table(
        ("Pong", "x", 0, {5: 1.0, 10: 2.0, 15: 3.0, 20: 4.0, 30: 5.0}),
        ("Pong", "y", 0, {10: 7.0, 20: None, 30: 9.0}),
        ("Pong", "y", 1, {10: 8.0, 30: 10.0}),
        ("Alien", "x", 0, {10: 1.0}),
        ("Alien", "y", 0, {10: 2.0}),
        ("Freeway", "x", 0, {10: 1.0}),
        ("Freeway", "y", 0, {11: 1.0}),
        ("Qbert", "x", 0, {10: 1.0}),
    )
    kept, notes = shared_evaluations(given, "x", "y")
    own = kept.sort("algorithm", "env", "seed", "step")
    assert own.select("env", "algorithm", "seed", "step").rows() == [
        ("Alien", "x", 0, 10), ("Pong", "x", 0, 10), ("Pong", "x", 0, 30),
        ("Alien", "y", 0, 10), ("Pong", "y", 0, 10), ("Pong", "y", 0, 30),
        ("Pong", "y", 1, 10), ("Pong", "y", 1, 30),
    ]  # fmt: skip
    assert notes == ("x and y are compared at the evaluations that both have: Freeway 0 of 2, Pong 2 of 5",)
    # All runs have a value now, over the same points: (2 + 5) / 2, (7 + 9) / 2, (8 + 10) / 2.
    areas = run_auc(kept.with_columns(env=pl.lit("No") + "_" + pl.col("env"))).table
    assert areas.filter(pl.col("env") == "No_Pong")["score"].to_list() == [3.5, 8.0, 9.0]


def test_what_both_have_is_left_alone() -> None:
    given = table(("Pong", "x", 0, {0: 1.0, 9: 2.0}), ("Pong", "y", 0, {0: 3.0, 9: 4.0}))
    kept, notes = shared_evaluations(given, "x", "y")
    assert kept.sort("algorithm", "step").equals(given.sort("algorithm", "step"))
    assert notes == ()
    with pytest.raises(InvalidInput, match="x is compared with itself"):
        shared_evaluations(given, "x", "x")
