"""Settings chosen on half of the seeds, scored on the other half: against a few lines of plain Python."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest

from valueshare.analysis.tuned import tuned_pair, tuned_scores

Scores = Mapping[tuple[float, float], Sequence[float | None]]  # (k, step size) -> scores by seed
Known = dict[tuple[float, float], list[float]]
FEW = 2_000  # resamples


def runs(scores: Scores, diverged: Sequence[tuple[float, float]] = ()) -> pl.DataFrame:
    """A row per run; of a (k, step size) in `diverged`, the last seed diverged."""
    rows = [
        {"k": k, "step_size": size, "seed": seed, "score": score}
        | {"diverged": (k, size) in diverged and seed == len(own) - 1}
        for (k, size), own in scores.items()
        for seed, score in enumerate(own)
    ]
    return pl.DataFrame(rows, schema_overrides={"score": pl.Float64})


def rows_of(table: pl.DataFrame) -> dict[float, dict[str, Any]]:
    return {row["k"]: row for row in table.to_dicts()}


@pytest.fixture(scope="module")
def made_up() -> Known:
    """Noise of 10 on levels that differ by less: the halves do not always choose the same."""
    rng = np.random.default_rng(1)
    return {
        (k, size): rng.normal(100 + 3 * k - 2 * i, 10, size=8).tolist()
        for k in (0.0, 1.0, 4.0)
        for i, size in enumerate((0.1, 0.2, 0.3, 0.4))
    }


def test_choices_and_scores_are_those_of_plain_python(made_up: Known) -> None:
    found = rows_of(tuned_scores(runs(made_up), resamples=FEW))
    sizes = (0.1, 0.2, 0.3, 0.4)
    held_out, choices = {}, {}
    for k in (0.0, 1.0, 4.0):
        own = {size: made_up[k, size] for size in sizes}
        first = max(sizes, key=lambda size: mean(own[size][:4]))
        second = max(sizes, key=lambda size: mean(own[size][4:]))
        choices[k] = first, second
        held_out[k] = [*made_up[k, first][4:], *made_up[k, second][:4]]
        assert found[k]["best"] == max(sizes, key=lambda size: mean(own[size]))
        assert (found[k]["first_half_choice"], found[k]["second_half_choice"]) == (first, second)
        assert found[k]["mean"] == pytest.approx(mean(held_out[k]))
        assert found[k]["difference"] == pytest.approx(mean(held_out[k]) - mean(held_out[0.0]))
        assert found[k]["runs"] == 8
        at_reference = [*made_up[k, choices[0.0][0]][4:], *made_up[k, choices[0.0][1]][:4]]
        assert found[k]["mean_at_reference"] == pytest.approx(mean(at_reference))
    assert any(first != second for first, second in choices.values())  # or the halves would not matter
    assert (found[0.0]["difference_low"], found[0.0]["difference_high"]) == (0.0, 0.0)


def test_intervals_are_those_of_a_naive_bootstrap(made_up: Known) -> None:
    found = rows_of(tuned_scores(runs(made_up), resamples=20_000))
    rng = np.random.default_rng(5)
    drawn = {}
    for k in (0.0, 4.0):
        own = found[k]
        scores = np.array(
            [*made_up[k, own["first_half_choice"]][4:], *made_up[k, own["second_half_choice"]][:4]], float
        )
        drawn[k] = np.array([rng.choice(scores, size=8).mean() for _ in range(20_000)])
        low, high = np.quantile(drawn[k], [0.025, 0.975])
        assert own["ci95_low"] == pytest.approx(low, abs=0.05 * (high - low))
        assert own["ci95_high"] == pytest.approx(high, abs=0.05 * (high - low))
    low, high = np.quantile(drawn[4.0] - drawn[0.0], [0.025, 0.975])
    assert found[4.0]["difference_low"] == pytest.approx(low, abs=0.05 * (high - low))
    assert found[4.0]["difference_high"] == pytest.approx(high, abs=0.05 * (high - low))
    # k = 4 has the highest mean over all seeds too.
    assert max(made_up, key=lambda cell: mean(made_up[cell]))[0] == 4.0
    assert found[4.0]["mean_at_best"] == pytest.approx(max(mean(own) for own in made_up.values()))
    assert found[0.0]["from_best"] == -found[4.0]["difference"]
    assert found[0.0]["from_best_low"] == pytest.approx(-high, abs=0.05 * (high - low))
    assert found[0.0]["from_best_high"] == pytest.approx(-low, abs=0.05 * (high - low))
    assert (found[4.0]["from_best_low"], found[4.0]["from_best_high"]) == (0.0, 0.0)


def test_row_order_changes_nothing(made_up: Known) -> None:
    table = runs(made_up)
    assert tuned_scores(table.sample(fraction=1, shuffle=True, seed=1), resamples=FEW).equals(
        tuned_scores(table, resamples=FEW)
    )


def test_a_step_size_that_failed_is_no_candidate() -> None:
    scores: Scores = {
        (0.0, 0.1): [1, 1, 1, 1],
        (0.0, 0.2): [9, 9, 9, 9],  # diverged once
        (4.0, 0.1): [2, 2, 2, 2],
        (4.0, 0.2): [9, None, 9, 9],  # a run without a score
        (8.0, 0.1): [5, 5, 5, 5],  # diverged, and there is no other
    }
    found = rows_of(tuned_scores(runs(scores, [(0.0, 0.2), (8.0, 0.1)]), resamples=FEW))
    assert [found[k]["best"] for k in (0.0, 4.0, 8.0)] == [0.1, 0.1, None]
    assert [found[k]["failed"] for k in (0.0, 4.0, 8.0)] == [1, 1, 1]
    assert [found[k]["mean"] for k in (0.0, 4.0, 8.0)] == [1.0, 2.0, None]
    assert found[8.0]["difference"] is None


def test_one_seed_chooses_and_scores_nothing() -> None:
    (row,) = tuned_scores(runs({(0.0, 0.1): [1], (0.0, 0.2): [2]}), resamples=FEW).to_dicts()
    assert (row["best"], row["mean"], row["runs"]) == (0.2, None, 0)


def test_a_step_size_without_runs_in_one_half_is_no_choice() -> None:
    """0.2 has one run, the better one: it is the best of all, but cannot be chosen and scored."""
    (row,) = tuned_scores(runs({(0.0, 0.1): [1, 1], (0.0, 0.2): [9]}), resamples=FEW).to_dicts()
    assert (row["best"], row["first_half_choice"], row["second_half_choice"]) == (0.2, 0.1, 0.1)
    assert (row["mean"], row["runs"]) == (1.0, 2)


def test_a_seed_is_in_the_same_half_everywhere() -> None:
    """Of seeds 0 to 5, 0.2 lacks the first two: its seeds 2 and 3 still are of different halves.

    Seeds 0 to 2 choose 0.2, which scores 0 on 3 to 5. These choose 0.1, which scores 1 on 0 to 2.
    """
    table = runs({(0.0, 0.1): [1, 1, 1, 1, 1, 1], (0.0, 0.2): [0, 0, 9, 0, 0, 0]})
    (row,) = tuned_scores(table.filter((pl.col("step_size") == 0.1) | (pl.col("seed") > 1)), resamples=FEW).to_dicts()
    assert (row["first_half_choice"], row["second_half_choice"]) == (0.2, 0.1)
    assert (row["mean"], row["runs"]) == (0.5, 6)


def test_a_k_with_seeds_of_one_half_alone_is_not_scored() -> None:
    """As in one of several shards, or an unfinished run: k = 4 has seeds 0 and 1 of 0 to 3, k = 8 has 2 and 3."""
    table = runs({(0.0, 0.1): [1, 3, 5, 7], (4.0, 0.1): [5, 7, 0, 0], (8.0, 0.1): [0, 0, 9, 9]})
    own = {0.0: (0, 1, 2, 3), 4.0: (0, 1), 8.0: (2, 3)}
    kept = pl.any_horizontal((pl.col("k") == k) & pl.col("seed").is_in(seeds) for k, seeds in own.items())
    found = tuned_scores(table.filter(kept), resamples=FEW)
    assert found["best"].to_list() == [0.1, 0.1, 0.1]
    assert found["mean_at_best"].to_list() == [4.0, 6.0, 9.0]
    assert found["mean"].to_list() == [4.0, None, None]
    assert found["runs"].to_list() == [4, 0, 0]
    assert found["from_best"].to_list() == [None, None, None]  # the best is k = 8
    pair = tuned_pair(table.filter(kept), resamples=FEW)
    assert pair is not None
    assert (pair.best, pair.choices, pair.difference) == ((8.0, 0.1), (), (None, None, None))


def test_a_pair_is_chosen_from_all_k_together() -> None:
    """The first half prefers k = 4 with 0.2, which then scores 3; the second k = 8 with 0.1, which scores 5.

    So k > 0 has 3, 3, 5, 5, and k = 0 has 2, 2, 2, 2: 2 more, though the best k alone would have looked 7 better.
    """
    scores: Scores = {
        (0.0, 0.1): [2, 2, 2, 2],
        (4.0, 0.1): [0, 0, 0, 0],
        (4.0, 0.2): [9, 9, 3, 3],
        (8.0, 0.1): [5, 5, 9, 9],
    }
    pair = tuned_pair(runs(scores), resamples=FEW)
    assert pair is not None
    assert pair.choices == ((4.0, 0.2), (8.0, 0.1))
    assert pair.best == (8.0, 0.1)  # 7 against 6
    assert pair.difference[0] == 2.0
    assert pair.difference[1] == pytest.approx(1.0)  # all four resampled are 3
    assert pair.difference[2] == pytest.approx(3.0)
    assert tuned_pair(runs({(0.0, 0.1): [1, 2]})) is None
