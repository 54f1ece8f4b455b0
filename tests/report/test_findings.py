"""Findings: comparisons by hand, in sentences, and what is refused."""

import re

import polars as pl
import pytest
from synthetic import RESAMPLES, THREE, TWO, data_of, tidy

from valueshare.analysis.importers.results import Source
from valueshare.analysis.tidy import CI95
from valueshare.errors import InvalidInput
from valueshare.report.data import ReportData, report_data, run_names
from valueshare.report.findings import (
    Comparison,
    Verdict,
    compare_all,
    compare_pair,
    pairs,
    sentence,
    sentence_with_numbers,
)
from valueshare.report.interval import Interval, format_interval


def compared(found: ReportData, number: int = 0) -> Comparison:
    answer = compare_pair(found, pairs(found)[number])
    assert isinstance(answer, Comparison)
    return answer


def test_a_verdict_in_numbers() -> None:
    data = report_data(tidy(THREE), 5_000)
    found = compared(data)
    # AUC 12 against 2. Six draws of -1, 0 and 1 sum to -4 or less in 28 of 729 cases, and to -5 or less in 7.
    assert found.difference == pytest.approx((10.0, 10 - 4 / 3, 10 + 4 / 3))
    assert found.improvement == Interval(1.0, 1.0, 1.0)
    assert sentence(found) == "IB-DQN(4) scored higher than DQN."
    assert sentence_with_numbers(found) == (
        "IB-DQN(4) scored higher than DQN: mean AUC 12.0 against 2, a difference of +10.0 "
        "[8.7, 11.3]; probability of improvement 1.00 [1.00, 1.00], on Here."
    )
    assert compare_all(data).sentences == [f"In these runs, {sentence_with_numbers(found)}"]
    wide = found._replace(values=(149.83, 100.0), difference=Interval(49.83, 24.04, 75.71))
    assert wide.difference_text == "+49.8 [24.0, 75.7]"  # 149.8 against 100.0
    single = found._replace(values=(9.87, -5.36), difference=Interval(15.23, None, None))
    assert single.difference_text == "+15.23 (too few seeds: no interval)"
    back = compare_pair(data_of(THREE), pairs(data_of(THREE), ["dqn,ib-dqn:4"])[0])
    assert isinstance(back, Comparison)
    assert sentence(back) == "DQN scored lower than IB-DQN(4)."


def test_pairs_are_asked_for_by_every_digit_of_k() -> None:
    """To six digits, the two k here are equal."""
    near = {("Here", "ib-dqn", k, seed): [k, k] for k in (1234567.0, 1234568.0) for seed in (0, 1)}
    found = data_of(near)
    for asked in ("ib-dqn:1234568,ib-dqn:1234567", "ib-dqn:1234568.0,ib-dqn:1.234567e6"):
        (pair,) = pairs(found, [asked])
        assert [variant.k for variant in pair] == [1234568.0, 1234567.0]
    known = "write one of ib-dqn:1234567, ib-dqn:1234568"
    for asked, problem in (("ib-dqn:1.23457e+06", "is not in these"), ("ib-dqn", "matches several")):
        with pytest.raises(InvalidInput, match=f"{re.escape(asked)} {problem}.*: {known}"):
            pairs(found, [f"{asked},ib-dqn:1234567"])


def test_dqn_is_ib_dqn_with_k_0_however_it_was_trained() -> None:
    """Exact names come first, where results have both."""
    layered = {(env, "ib-dqn", k, seed): own for (env, _, k, seed), own in TWO.items()}
    both = {**layered, **TWO}
    for scores, spellings in (
        (TWO, {"dqn": "dqn", "ib-dqn:0": "dqn", "dqn:0": "dqn", "DQN": "dqn"}),
        (layered, {"dqn": "ib-dqn", "ib-dqn:0": "ib-dqn", "dqn:0.0": "ib-dqn", "DQN": "ib-dqn"}),
        (both, {"dqn": "dqn", "ib-dqn:0": "ib-dqn"}),
    ):
        for spelling, algorithm in spellings.items():
            ((x, y),) = pairs(data_of(scores), [f"ib-dqn:4,{spelling}"])
            assert [(x.algorithm, x.k), (y.algorithm, y.k)] == [("ib-dqn", 4), (algorithm, 0)]
    for text in ("dqn:4", "double-dqn"):
        with pytest.raises(InvalidInput, match=f"{text} is not in these results: write one of ib-dqn:0, ib-dqn:4"):
            pairs(data_of(layered), [f"ib-dqn:4,{text}"])


def test_k_is_n_or_a_number_where_all_environments_have_as_many_actions() -> None:
    def pair(actions: dict[str, int], text: str) -> float:
        about = Source("run", "run", 4, {"actions": actions}, None)
        return pairs(report_data(tidy(TWO)._replace(sources=(about,)), RESAMPLES), [f"{text},dqn"])[0][0].k

    assert [pair({"Here": 4}, text) for text in ("ib-dqn:n", "ib-dqn:N", "ib-dqn:4", "IB-DQN(4)")] == [4] * 4
    atari = {("Pong", key[1], 4.5 * key[2], key[3]): own for key, own in TWO.items()}  # k = 18
    assert pairs(data_of(atari), ["ib-dqn:n,dqn"]) == pairs(data_of(atari), ["ib-dqn:18,dqn"])
    for actions in ({"Here": 3}, {}):
        with pytest.raises(InvalidInput, match="ib-dqn:n is not in these results: write one of dqn:0, ib-dqn:4"):
            pair(actions, "ib-dqn:n")


def test_other_algorithms_are_compared_at_the_same_setting() -> None:
    scores = {
        ("Here", algorithm, 0.0, seed, step_size): [step_size, 10.0 * step_size]
        for algorithm in ("dqn", "rdq")
        for step_size in (0.1, 0.2)
        for seed in (0, 1)
    }
    rows = [
        (env, algorithm, k, seed, step_size, step, own)
        for (env, algorithm, k, seed, step_size), values in scores.items()
        for step, own in zip((0, 10), values, strict=True)
    ]
    columns = ["env", "algorithm", "k", "seed", "step_size", "step", "score"]
    results = tidy(TWO)._replace(table=pl.DataFrame(rows, columns, orient="row"))
    found = pairs(report_data(results, RESAMPLES))
    assert [(x.algorithm, y.algorithm) for x, y in found if x.algorithm.startswith("rdq")] == [
        ("rdq step_size=0.1", "dqn step_size=0.1"),
        ("rdq step_size=0.2", "dqn step_size=0.2"),
    ]


def test_equals_cannot_be_told_apart() -> None:
    same = {key: THREE["Here", "dqn", 0.0, key[3]] for key in THREE}
    assert sentence(compared(data_of(same))) == "IB-DQN(4) is not clearly different from DQN."


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_and_two_seeds_have_no_interval(seeds: int) -> None:
    """Of two seeds, it would exclude 0 in a third of the comparisons of equals."""
    alone = {key: own for key, own in TWO.items() if key[3] < seeds}
    both = {(env, *key[1:]): own for key, own in alone.items() for env in ("Here", "There")}
    for scores, where in ((alone, "Here"), (both, "2 environments")):
        found = compared(data_of(scores))
        for interval in filter(None, (found.difference, found.improvement)):
            assert interval[1:] == (None, None)
        assert found.envs.select(CI95).null_count().row(0) == (found.envs.height,) * 2
        assert found.direction == 0
        text = sentence_with_numbers(found)
        assert text.startswith("IB-DQN(4) is not clearly different from DQN")
        assert text.endswith(f", on {where}.")
        assert "[" not in text
        assert ("a difference of +10.0 (too few seeds: no interval)" in text) == (where == "Here")


def test_environments_with_enough_seeds_give_the_others_an_interval_together() -> None:
    """Two seeds on There have none of their own."""
    there = {("There", *key[1:]): own for key, own in TWO.items()}
    found = compared(data_of({**THREE, **there}))
    assert found.improvement == (1.0, 1.0, 1.0)
    assert found.envs.sort("env")["ci95_low"].is_null().to_list() == [False, True]
    assert "of 2 environments it is clearly higher on 1 and clearly lower on 0" in sentence_with_numbers(found)


def test_environments_without_a_common_scale_are_compared_by_who_wins() -> None:
    other = {("There", *key[1:]): [1000 * (v or 0) for v in own] for key, own in THREE.items()}
    found = compared(data_of({**THREE, **other}))
    assert found.difference is None
    assert found.improvement.value == 1.0
    assert found.direction == 1
    assert "of 2 environments it is clearly higher on 2 and clearly lower on 0" in sentence_with_numbers(found)


def test_the_first_sentence_compares_no_differences_of_different_environments() -> None:
    """50 of 1,000 points are not more than 0.8 of 0.1: without a common scale, the clearest gain comes first."""
    scores = {
        ("Small", "dqn", 0.0): (0.1, 0.2, 0.3, 0.4),
        ("Large", "dqn", 0.0): (900, 1000, 1010, 1020),
        ("Small", "ib-dqn", 2.0): (0.9, 1.0, 1.1, 1.2),
        ("Large", "ib-dqn", 4.0): (1015, 1030, 1060, 1070),
    }
    runs = {(*key, seed): [own, own] for key, values in scores.items() for seed, own in enumerate(5 * values)}
    first, _ = compare_all(data_of(runs)).sentences
    assert first.startswith("The clearest gain: IB-DQN(2) scores higher than DQN: mean AUC 1.05 against 0.25")
    large = {("Large", *key[1:]): own for key, own in runs.items() if key[0] == "Large" or key[2]}
    first, _ = compare_all(data_of(large)).sentences
    assert first.startswith("The largest gain: IB-DQN(4)")


def test_runs_under_way_are_compared_as_far_as_both_have_come() -> None:
    ahead = {key: [*own, 1e9] if key[1] == "dqn" else own for key, own in THREE.items()}
    found = compared(data_of(ahead))
    assert found.difference == compared(data_of(THREE)).difference  # as before: step 20 of one counts not
    assert "compared at the evaluations that both have: Here 2 of 3" in " ".join(found.notes)


def test_what_cannot_be_compared_is_said_in_the_verdict() -> None:
    """Two algorithms are not one, whatever is missing of them."""
    apart = {("There" if key[1] == "dqn" else "Here", *key[1:]): own for key, own in TWO.items()}
    found = compare_all(data_of(apart))
    assert (found.sentences, found.failed_comparisons) == (
        ["No two algorithms have runs on the same environment, so there is nothing to compare."],
        [],
    )
    asked = compare_all(data_of(apart), ["ib-dqn:4,dqn"])
    assert asked.sentences == ["IB-DQN(4) and DQN have no evaluation at the same step of the same environment."]
    shifted = {key: [None, *own] if key[1] == "dqn" else [own[0]] for key, own in TWO.items()}
    assert compare_all(data_of(shifted)).sentences == asked.sentences
    ragged = {key: [own[0], None] if key[3] else [None, own[1]] for key, own in TWO.items()}
    assert compare_all(data_of(ragged)).sentences == [
        "IB-DQN(4) and DQN cannot be compared: no run of one has all evaluations that both have."
    ]


def test_learners_are_compared_with_those_of_their_environments() -> None:
    """DQN and IB-DQN(4) are on Here, Double DQN with k = 0 and 2 on There: two pairs, and no note on the others."""
    learners = (
        ("Here", "dqn", 0.0),
        ("Here", "ib-dqn", 4.0),
        ("There", "double-dqn", 0.0),
        ("There", "ib-double-dqn", 2.0),
    )
    found = data_of({(*learner, seed): [seed, seed + 1.0] for learner in learners for seed in (0, 1)})
    assert [(x.algorithm, y.algorithm) for x, y in pairs(found)] == [
        ("ib-dqn", "dqn"),
        ("ib-double-dqn", "double-dqn"),
    ]
    assert not compare_all(found).failed_comparisons


def test_pairs_that_cannot_be_compared_are_one_note_with_a_count() -> None:
    """DQN was evaluated at the first step only, three others at the second."""
    runs = {("Here", "ib-dqn", k, seed): [None, k] for k in (1.0, 2.0, 4.0) for seed in (0, 1)}
    runs |= {("Here", "dqn", 0.0, seed): [1.0, None] for seed in (0, 1)}
    (note,) = compare_all(data_of(runs)).failed_comparisons
    first, rest = note.split("; ")
    assert first == "IB-DQN(1) and DQN have no evaluation at the same step of the same environment"
    assert rest == "nor can 2 more pairs be compared."


def test_another_grid_of_evaluations_is_compared_where_both_have_one() -> None:
    """DQN at 0 and 20, IB-DQN at 0, 10 and 20: its AUCs are 11 and 13 without step 10."""
    often = {("Here", "ib-dqn", 4.0, s): [10.0 + 2 * s, 99.0, 12.0 + 2 * s] for s in (0, 1)}
    seldom = {("Here", "dqn", 0.0, s): [2.0 * s, None, 2.0 + 2 * s] for s in (0, 1)}
    results = tidy({**often, **seldom})
    results = results._replace(table=results.table.filter(pl.col("score").is_not_null()))
    assert compared(report_data(results, RESAMPLES)).difference == Interval(10.0, None, None)


def test_headlines_count_all_comparisons() -> None:
    scores = {
        ("Here", "ib-dqn", k, seed): [base + seed] * 2
        for k, base in ((0.0, 0.0), (1.0, 10.0), (2.0, 20.0), (4.0, 0.0), (8.0, -9.0))
        for seed in range(10)
    }
    found = data_of(scores)
    first, second = Verdict([compared(found, number) for number in range(4)]).sentences
    assert first.startswith("The largest gain: IB-DQN(2) scores higher than DQN")
    assert second == (
        "Of 4 comparisons with DQN: higher 2 times (IB-DQN(1), IB-DQN(2)); lower once (IB-DQN(8)); unclear once "
        "(IB-DQN(4))."
    )
    assert Verdict([]).sentences == ["There is one algorithm, and nothing to compare it with."]


def test_of_few_seeds_nothing_is_called_a_gain() -> None:
    """k = 2 is better by 20 with three seeds, and k = 1 by 10 with ten."""
    seeds = {0.0: 10, 1.0: 10, 2.0: 3}
    levels = {0.0: 0.0, 1.0: 10.0, 2.0: 20.0}
    runs = {
        ("Here", "ib-dqn", k, seed): [levels[k] + seed / 10] * 2 for k, count in seeds.items() for seed in range(count)
    }
    first, _ = compare_all(data_of(runs)).sentences
    assert first.startswith("The largest gain: IB-DQN(1) scores higher than DQN: ")
    worse = {key: ([-v for v in own] if key[2] == 1 else own) for key, own in runs.items()}
    first, _ = compare_all(data_of(worse)).sentences  # k = 1 is worse with ten
    assert first.startswith("The largest loss: IB-DQN(1) scores lower than DQN: ")
    few = {key: own for key, own in runs.items() if key[-1] < 3}
    first, _ = compare_all(data_of(few)).sentences
    assert first.startswith("The largest difference in these runs: IB-DQN(2) scored higher than DQN: ")


def test_pairs_are_named_where_baselines_differ() -> None:
    levels = {("dqn", 0.0): 0.0, ("double-dqn", 0.0): 20.0, ("dueling-dqn", 0.0): 10.0, ("ib-dqn", 4.0): 10.0}
    found = data_of({("Here", *who, seed): [level + seed] * 2 for who, level in levels.items() for seed in (0, 1, 2)})
    _, counted = compare_all(
        found, ["ib-dqn,dqn", "ib-dqn,double-dqn", "ib-dqn,dueling-dqn", "dueling-dqn,dqn"]
    ).sentences
    assert counted == (
        "Of 4 comparisons: higher 2 times (IB-DQN(4) than DQN, Dueling DQN than DQN); lower once (IB-DQN(4) than "
        "Double DQN); unclear once (IB-DQN(4) against Dueling DQN)."
    )


def test_a_comparison_at_one_step_size_says_so() -> None:
    """k = 0 is best at 0.1 and k = 4 at 0.2: at 0.2, the gain of k = 4 is the larger one."""
    scores = {(0.0, 0.1): 10.0, (0.0, 0.2): 0.0, (4.0, 0.1): 12.0, (4.0, 0.2): 15.0}
    found = data_of(
        {
            ("Here", f"ib-dqn step_size={size}", k, seed): [score + seed / 10] * 2
            for (k, size), score in scores.items()
            for seed in range(10)
        }
    )
    first, counted = compare_all(found).sentences
    assert first.startswith("The largest gain: IB-DQN(4) with step size 0.2 scores higher than DQN with step size 0.2")
    assert counted == (
        "Of 3 comparisons: higher 2 times (IB-DQN(4) than DQN with step size 0.1, IB-DQN(4) than DQN with step size "
        "0.2); lower once (DQN with step size 0.2 than DQN with step size 0.1)."
    )


def test_few_seeds_are_warned_of_on_one_environment_and_on_several() -> None:
    def warning(seeds: int, *envs: str) -> list[str]:
        scores = {(env, "ib-dqn", k, seed): [k + seed] * 2 for env in envs for k in (0.0, 4.0) for seed in range(seeds)}
        return compare_all(data_of(scores)).few_seeds

    for envs, enough in ((("Here",), 10), (("Here", "There"), 5)):
        assert warning(3, *envs) == [f"Too few seeds (3) for a conclusion: run at least {enough}."]
        assert warning(1, *envs) == [f"Too few seeds (1) for a conclusion: run at least {enough}."]
        assert warning(enough, *envs) == []


def test_each_comparison_has_its_own_number_of_seeds_that_are_enough() -> None:
    scores = {(env, "ib-dqn", k, seed): [k + seed] * 2 for env in ("A", "B") for k in (0.0, 4.0) for seed in range(5)}
    scores |= {("A", "ib-dqn", 8.0, seed): [float(seed)] * 2 for seed in range(12)}
    verdict = compare_all(data_of(scores))
    assert [one.enough_seeds for one in verdict.comparisons] == [5, 10]
    assert verdict.few_seeds == ["Too few seeds (5) for a conclusion: run at least 10."]  # of k = 8: 5 of DQN on A
    assert not verdict.has_one_seed


def test_names_with_commas_are_told_apart() -> None:
    scores = {
        ("Here", f"{algorithm} run={run}", k, seed): [base + seed] * 2
        for run, base in (("a", 0.0), ("b", 1.0))
        for algorithm, k in (("dqn", 0.0), ("ib-dqn", 4.0))
        for seed in (0, 1)
    }
    found = data_of(scores)
    _, counted = Verdict([compared(found, number) for number in range(3)]).sentences
    assert counted.endswith(
        "unclear 3 times (DQN, run b against DQN, run a; IB-DQN(4) against DQN, run a; IB-DQN(4) against DQN, run b)."
    )
    about = [Source(path, "table", 2, None, None) for path in ("runs/lr 1,2", "runs/lr 3")]
    assert list(run_names(about).values()) == ["lr_1_2", "lr_3"]  # --compare has a comma between two names
    about = [Source(path, "table", 2, None, None) for path in ("runs/a b", "runs/a,b")]
    assert list(run_names(about).values()) == ["a_b", "a_b-2"]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(49.83, 24.04, 75.71), "+50 [24, 76]"),
        (Interval(-0.01234, -0.02345, -0.00123), "-0.012 [-0.023, -0.001]"),
        (Interval(1234.5, 1000.2, 9000.7), "+1,234 [1,000, 9,001]"),
        (Interval(0.0, 0.0, 0.0), "0.00 [0.00, 0.00]"),
    ],
)
def test_intervals_are_written_with_the_digits_they_are_worth(interval: Interval, text: str) -> None:
    assert format_interval(interval) == text


@pytest.mark.parametrize("asked", ["dqn", "dqn,rainbow", "dqn,ib-dqn:5", "a,b,c"])
def test_comparisons_that_cannot_be_are_refused(asked: str) -> None:
    with pytest.raises(InvalidInput, match=r"write"):
        pairs(data_of(TWO), [asked])
