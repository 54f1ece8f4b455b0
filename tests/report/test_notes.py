"""Notes: one for each kind, with all of the algorithms that it is about."""

import polars as pl
from synthetic import RESAMPLES, TWO, Scores, data_of

from valueshare.analysis.comparison import performance_profile
from valueshare.analysis.run_values import run_auc
from valueshare.report.figures.variants import find_variants
from valueshare.report.findings import compare_all
from valueshare.report.notes import MAX_NAMES, merged_notes

WHO = find_variants(pl.DataFrame([("dqn", 0.0), ("ib-dqn", 1.0), ("ib-dqn", 16.0)], ["algorithm", "k"], orient="row"))


def test_the_same_of_several_algorithms_is_one_note() -> None:
    single = "2 rows without a finite score are left out"
    notes = [
        f"dqn k=0: {single}",
        "a note on all",
        f"ib-dqn k=1: {single}",
        f"ib-dqn k=16: {single}",
        "ib-dqn k=1 lacks 2 of 4 runs: Pong 2",
        "ib-dqn k=16 lacks 2 of 4 runs: Pong 2",
        "dqn k=0 has 3 of 4 points, up to step 30",  # of one alone: as it was
        "dqn k=0 env=Pong: 2 rows without a finite score are left out",
        f"dqn k=0: {single}",  # again, of another figure
    ]
    assert merged_notes(notes, WHO) == [
        f"DQN; IB-DQN(1); IB-DQN(16): {single}",
        "a note on all",
        "IB-DQN(1); IB-DQN(16): each lacks 2 of 4 runs: Pong 2",
        "dqn k=0 has 3 of 4 points, up to step 30",
        "dqn k=0 env=Pong: 2 rows without a finite score are left out",
    ]


def test_many_names_are_counted() -> None:
    many = find_variants(pl.DataFrame({"algorithm": "ib-dqn", "k": [float(k) for k in range(1, 21)]}))
    (note,) = merged_notes([f"ib-dqn k={k}: short" for k in range(1, 21)], many)
    assert note.count("IB-DQN(") == MAX_NAMES
    assert note.endswith(f"IB-DQN({MAX_NAMES}); and {20 - MAX_NAMES} more: short")


def test_one_seed_is_noted_once_and_not_beside_the_verdict() -> None:
    """A note of the analysis, of each algorithm; the warning of the verdict is about comparisons alone."""

    def noted(*scores: Scores) -> tuple[list[str], list[str]]:
        data = data_of({key: own for some in scores for key, own in some.items() if key[3] == 0})
        notes = performance_profile(run_auc(data.main).table, [0.0], resamples=RESAMPLES).notes
        verdict = compare_all(data)
        merged = merged_notes(notes, data.variants)
        return merged, merged_notes(notes, data.variants, one_seed=verdict.has_one_seed)

    assert noted(TWO) == (["one seed each of DQN and IB-DQN(4): no interval"], [])
    alone = {key: own for key, own in TWO.items() if key[1] == "dqn"}
    assert noted(alone) == (["dqn k=0: one seed, no interval"],) * 2
    eight = {("Here", "ib-dqn", 8.0, 0): [1.0, 2.0]}
    assert noted(TWO, eight)[0] == ["one seed each of DQN; IB-DQN(4); IB-DQN(8): no interval"]
