"""Settings chosen on half of the seeds, scored on the other half: against a few lines of plain Python."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest

from valueshare.analysis.tuned import ENDS, tuned_pair, tuned_scores

Scores = Mapping[tuple[float, float], Sequence[float | None]]  # (k, step size) -> scores by seed
Known = dict[tuple[float, float], list[float]]
FEW = 2_000  # resamples
WIDENING = 1.36**0.5  # of intervals, where there was a choice


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
        low, high = mean(scores) + WIDENING * (np.quantile(drawn[k], [0.025, 0.975]) - mean(scores))
        assert own["ci95_low"] == pytest.approx(low, abs=0.05 * (high - low))
        assert own["ci95_high"] == pytest.approx(high, abs=0.05 * (high - low))
    difference = found[4.0]["difference"]
    low, high = difference + WIDENING * (np.quantile(drawn[4.0] - drawn[0.0], [0.025, 0.975]) - difference)
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

    So k > 0 has 3, 3, 3, 5, 5, 5, and k = 0 always 2: 2 more, though the best k alone would have looked 7 better. Of
    1 in 64 resamples the mean is 3, and of 6 in 64 3 + 2 / 6, which is 2 / 3 below their mean.
    """
    scores: Scores = {
        (0.0, 0.1): [2, 2, 2, 2, 2, 2],
        (4.0, 0.1): [0, 0, 0, 0, 0, 0],
        (4.0, 0.2): [9, 9, 9, 3, 3, 3],
        (8.0, 0.1): [5, 5, 5, 9, 9, 9],
    }
    pair = tuned_pair(runs(scores), resamples=FEW)
    assert pair is not None
    assert pair.choices == ((4.0, 0.2), (8.0, 0.1))
    assert pair.best == (8.0, 0.1)  # 7 against 6
    assert pair.difference[0] == 2.0
    assert pair.difference[1] == pytest.approx(2.0 - WIDENING * 2 / 3)
    assert pair.difference[2] == pytest.approx(2.0 + WIDENING * 2 / 3)
    assert tuned_pair(runs({(0.0, 0.1): [1, 2]})) is None


def test_an_interval_is_widened_where_there_was_a_choice() -> None:
    """Resampled means of 1, 1, 1, 3, 3, 3 end 2/3 to either side of theirs (as above); those of three 3 and 9 each, 2.

    k = 4 has two step sizes to choose from: its interval is sqrt(1.36) times as wide, and so is a difference from it.
    """
    scores: Scores = {
        (0.0, 0.1): [1, 1, 1, 3, 3, 3],
        (4.0, 0.1): [9, 9, 9, 3, 3, 3],
        (4.0, 0.2): [0, 0, 0, 1, 1, 1],
        (8.0, 0.1): [2, 2, 2, 2, 2, 2],
    }
    found = rows_of(tuned_scores(runs(scores), resamples=FEW))
    intervals = {k: [found[k][name] for name in ("ci95_low", "mean", "ci95_high")] for k in found}
    assert intervals[0.0] == pytest.approx([4 / 3, 2, 8 / 3])
    assert intervals[4.0] == pytest.approx([6 - 2 * WIDENING, 6, 6 + 2 * WIDENING])
    names = ("difference_low", "difference", "difference_high")
    assert [found[8.0][name] for name in names] == pytest.approx([-2 / 3, 0, 2 / 3])
    from_best = [found[8.0][name] for name in ("from_best_low", "from_best", "from_best_high")]
    assert from_best == pytest.approx([-4 - 2 * WIDENING, -4, -4 + 2 * WIDENING])
    few = tuned_scores(runs({which: [*own[:2], *own[3:]] for which, own in scores.items()}), resamples=FEW)
    assert few["mean"].to_list() == pytest.approx([2.2, 5.4, 2.0])  # the second halves have three seeds, the first two
    assert few.select(ENDS).null_count().row(0) == (3,) * len(ENDS)


def crossed(rng: np.random.Generator, trials: int, levels: Sequence[float]) -> tuple[Any, Any]:
    """The scores of two halves at the choices of each other, minus their levels; a half is one number per setting."""
    halves = rng.normal(size=(2, trials, len(levels)))
    choices = (halves + levels).argmax(axis=2)
    first, second = np.take_along_axis(halves, choices[::-1, :, None], axis=2)[..., 0]
    return first, second


@pytest.mark.parametrize(("settings", "largest"), [(2, 0.5642), (3, 0.8463), (4, 1.0294), (25, 1.9653)])
def test_halves_scored_at_each_other_s_choices_are_correlated(settings: int, largest: float) -> None:
    """The covariance is m² / (J - 1); m, the mean of the largest of J standard normals, is from a table."""
    first, second = crossed(np.random.default_rng(settings), 100_000, [0.0] * settings)
    covariance = largest**2 / (settings - 1)
    assert np.mean(first * second) == pytest.approx(covariance, abs=4 * np.std(first * second) / 100_000**0.5)
    assert 1 + covariance < WIDENING**2 < 1.3625


@pytest.mark.parametrize("levels", [[0, 0.3, 0.6], [0, 1, 1, 1], [0, 2], [0, 0, 0, 4]])
def test_settings_that_differ_need_no_more(levels: list[float]) -> None:
    first, second = crossed(np.random.default_rng(0), 100_000, levels)
    assert np.mean(first * second) < WIDENING**2 - 1 + 3 / 100_000**0.5


def test_intervals_of_equal_settings_exclude_the_truth_about_1_time_in_20() -> None:
    """1,000 learners with three equal step sizes and a true score of 0. By theory 5 % of the intervals exclude it.

    Percentile intervals of 40 seeds are a little too narrow: 6 % by Student's t, and 10.5 % if they were not widened.
    """
    rng = np.random.default_rng(3)
    made_up = {(float(k), size): rng.normal(size=40).tolist() for k in range(1_000) for size in (0.1, 0.2, 0.3)}
    found = tuned_scores(runs(made_up), resamples=500)
    value, low, high = (found[name].to_numpy() for name in ("mean", "ci95_low", "ci95_high"))
    for factor, rate in ((WIDENING, 0.06), (1.0, 0.105)):
        narrower = factor / WIDENING
        outside = (value + narrower * (low - value) > 0) | (value + narrower * (high - value) < 0)
        assert np.mean(outside) == pytest.approx(rate, abs=3 * (rate * (1 - rate) / 1_000) ** 0.5)
