"""Scales of scores: a human's, and DQN's own."""

import polars as pl
import pytest

from valueshare.analysis import human_normalized
from valueshare.analysis.scales import NORMALIZED, dqn_scale, human_scale

# env, algorithm, k, seed, step, score. Before training: (1 + 3 + 2) / 3 = 2. DQN ends with the means of its last three
# evaluations: seed 0 (4 + 6 + 8) / 3 = 6, seed 1 (9 + 10 + 11) / 3 = 10, together 8.
ROWS = [
    *(("A-MinAtar", "dqn", 0.0, 0, step, score) for step, score in enumerate([1.0, 0.0, 4.0, 6.0, 8.0])),
    *(("A-MinAtar", "dqn", 0.0, 1, step, score) for step, score in enumerate([3.0, 0.0, 9.0, 10.0, 11.0])),
    *(("A-MinAtar", "ib-dqn", 6.0, 0, step, score) for step, score in enumerate([2.0, 0.0, 50.0, 50.0, 50.0])),
]
COLUMNS = ["env", "algorithm", "k", "seed", "step", "score"]


def table(rows: list[tuple[str, str, float, int, int, float]]) -> pl.DataFrame:
    return pl.DataFrame(rows, COLUMNS, orient="row")


def test_dqn_ends_with_1_and_everybody_starts_with_0_on_average() -> None:
    scale = dqn_scale(table(ROWS), table(ROWS[:10]))
    assert scale is not None
    assert (scale.zero, scale.one) == ({"A-MinAtar": 2.0}, {"A-MinAtar": 8.0})
    found = scale.normalize(table(ROWS)).filter(pl.col("algorithm") == "ib-dqn")[NORMALIZED].to_list()
    assert found == [0.0, pytest.approx(-1 / 3), 8.0, 8.0, 8.0]  # (50 - 2) / (8 - 2)


def test_of_several_dqns_the_best_counts() -> None:
    worse = [(env, "dqn step_size=1", *rest[:-1], rest[-1] / 2) for env, _, *rest in ROWS[:10]]
    scale = dqn_scale(table(ROWS), table([*ROWS[:10], *worse]))  # type: ignore[list-item]
    assert scale is not None
    assert scale.one == {"A-MinAtar": 8.0}


def test_no_scale_without_dqn_or_a_start_or_where_it_learned_nothing() -> None:
    rows, dqn = table(ROWS), table(ROWS[:10])
    assert dqn_scale(rows, dqn.clear()) is None
    assert dqn_scale(rows.filter(pl.col("step") > 0), dqn) is None
    assert dqn_scale(rows, dqn.with_columns(score=-pl.col("score"))) is None
    # From 2 ± 0.58 to (3 + 2) / 2 = 2.5 ± 0.5: less than two standard errors, 2·0.76.
    assert dqn_scale(rows, dqn.with_columns(score=pl.when(pl.col("seed") == 0).then(3.0).otherwise(2.0))) is None
    other = rows.filter(pl.col("k") > 0).with_columns(env=pl.lit("B-MinAtar"))
    assert dqn_scale(pl.concat([rows, other]), dqn) is None  # B without DQN


def test_the_human_scale_is_that_of_human_normalized_scores() -> None:
    rows = pl.DataFrame({"env": ["ALE/Pong-v5", "MsPacman"], "score": [0.0, 5_000.0]})
    found = human_scale(rows["env"].to_list()).normalize(rows)[NORMALIZED]
    assert found.to_list() == pytest.approx(human_normalized(rows)["human_normalized"].to_list())
    assert found[0] == pytest.approx(20.7 / (14.6 + 20.7))  # DQN Zoo: random -20.7, human 14.6
