"""Which runs make a map of two settings, and what is said of it."""

from collections.abc import Callable

import polars as pl
import pytest

from valueshare.analysis.importers.results import Results
from valueshare.report import action_sets, tabular
from valueshare.report.data import report_data
from valueshare.report.figure_registry import FIGURES, draw_figures, unmet_needs
from valueshare.report.findings import compare_all
from valueshare.report.page.results import headline_variants, results_page, verdict_sentences
from valueshare.report.swept_settings import HeldOutChoice, at_best_setting, find_grids, find_tuned, settings_map
from valueshare.report.tuned_text import reading, sentences, verdict

FEW = 200  # resamples
Level = Callable[[float, float], float]  # of k and step size


def table(level: Level, ks: tuple[float, ...], sizes: tuple[float, ...], seeds: int = 10) -> pl.DataFrame:
    """Two evaluations per run, 10 below and 10 above its level; seed s is s above the level of seed 0."""
    rows = [
        {"env": "LunarLander-v3", "algorithm": "ib-dqn", "k": k, "step_size": size, "seed": seed, "step": step}
        | {"score": level(k, size) + seed + (10.0 if step else -10.0), "diverged_at": None}
        for k in ks
        for size in sizes
        for seed in range(seeds)
        for step in (0, 100)
    ]
    return pl.DataFrame(rows, schema_overrides={"diverged_at": pl.Int64})


KS, SIZES = (0.0, 1.0, 4.0), (0.001, 0.01, 0.1)


def falling(k: float, size: float) -> float:
    """Best at 0.1 for k = 0, at 0.01 for k = 1, at 0.001 for k = 4; 100 lower for each step from there."""
    best = {0.0: 2, 1.0: 1, 4.0: 0}[k]
    return 50.0 * (k > 0) + 5.0 * (k == 1) - 100.0 * abs(SIZES.index(size) - best)


def tuned_of(rows: pl.DataFrame) -> HeldOutChoice:
    (found,) = find_tuned(report_data(Results(rows, (), ()), FEW))
    return found


def test_a_run_with_two_swept_settings_is_a_grid() -> None:
    (grid,) = find_grids(report_data(Results(table(falling, KS, SIZES), (), ()), FEW))
    assert (grid.env, grid.algorithm, grid.settings, grid.score) == (
        "LunarLander-v3", "ib-dqn", ("k", "step_size"), "AUC",
    )  # fmt: skip
    assert grid.runs.height == 3 * 3 * 10
    # The AUC of a seed is its level: the mean of 10 below and 10 above.
    one = grid.runs.filter(k=4.0, step_size=0.01, seed=3)
    assert one["score"].to_list() == [50.0 - 100.0 + 3]
    cells = settings_map(grid).cells
    assert cells.filter("best").select("k", "step_size").rows() == [(0.0, 0.1), (1.0, 0.01), (4.0, 0.001)]
    assert cells.filter(k=4.0, step_size=0.01)["mean"].to_list() == [50.0 - 100.0 + 4.5]


def test_a_report_draws_the_map_by_itself() -> None:
    results = Results(table(falling, KS, SIZES, seeds=1), (), ())
    drawn = {one.name: one for one in draw_figures(report_data(results, FEW))}
    assert list(drawn) == ["sensitivity", "settings-map", "learning-curves", "geometry"]
    assert drawn["sensitivity"].caption.startswith("LunarLander-v3, step size 0.001: AUC against k")


@pytest.mark.parametrize("swept", [1, 3])
def test_one_or_three_swept_settings_are_none(swept: int) -> None:
    rows = table(falling, KS, SIZES)
    if swept == 1:
        rows = rows.filter(pl.col("step_size") == 0.01)
    else:
        rows = pl.concat([rows.with_columns(epsilon_end=pl.lit(epsilon)) for epsilon in (0.01, 0.1)])
    found = report_data(Results(rows, (), ()), FEW)
    assert find_grids(found) == []
    assert unmet_needs(found)["settings-map"].startswith("an algorithm with exactly two swept settings")


def test_settings_other_than_k_and_the_step_size() -> None:
    renamed = table(falling, KS, SIZES).rename({"step_size": "epsilon_end"})
    assert tuned_of(renamed).grid.settings == ("k", "epsilon_end")
    two = table(falling, KS, SIZES).rename({"k": "discount"}).with_columns(k=pl.lit(4.0))
    found = tuned_of(two)
    assert found.grid.settings == ("step_size", "discount")
    assert found.pair is None  # of k alone
    assert sentences(found)[0].startswith("To choose both: step size = ")


def test_dqn_is_the_k_0_of_ib_dqn() -> None:
    plain = pl.when(pl.col("k") == 0).then(pl.lit("dqn")).otherwise("algorithm")
    (grid,) = find_grids(report_data(Results(table(falling, KS, SIZES).with_columns(algorithm=plain), (), ()), FEW))
    assert grid.algorithm == "ib-dqn"
    assert grid.runs["k"].unique().sort().to_list() == [0.0, 1.0, 4.0]


def test_scores_of_atari_games_are_normalized() -> None:
    """Pong: random -20.7, human 14.6; so a score of 14.6 is 1."""
    rows = table(lambda k, size: 14.6, KS, SIZES, seeds=1).with_columns(env=pl.lit("Pong"))
    (grid,) = find_grids(report_data(Results(rows, (), ()), FEW))
    # Only the evaluation after training counts there: 14.6 + 10.
    assert grid.runs["score"][0] == pytest.approx(1 + 10 / (14.6 + 20.7))
    assert grid.score == "human-normalized AUC"


def test_settings_that_are_no_grid() -> None:
    """A random search of 41 step sizes, and settings that are not numbers."""
    many = tuple(0.001 * (i + 1) for i in range(41))
    assert find_grids(report_data(Results(table(lambda k, size: k, KS, many, seeds=1), (), ()), FEW)) == []
    unknown = pl.when(pl.col("step_size") == 0.1).then(None).otherwise("step_size")
    for rows in (table(falling, KS, SIZES).with_columns(step_size=unknown),
                 table(falling, KS, SIZES).with_columns(step_size=unknown.fill_null(float("nan")))):  # fmt: skip
        (grid,) = find_grids(report_data(Results(rows, (), ()), FEW))
        assert grid.runs["step_size"].unique().sort().to_list() == [0.001, 0.01]
    optimizers = [table(falling, KS, SIZES).with_columns(optimizer=pl.lit(name)) for name in ("adam", "sgd")]
    assert find_grids(report_data(Results(pl.concat(optimizers), (), ()), FEW)) == []


def test_runs_that_are_missing_or_have_no_score_are_noted() -> None:
    rows = table(falling, KS, SIZES).filter(~((pl.col("k") == 0) & (pl.col("step_size") == 0.1) & (pl.col("seed") > 1)))
    nothing = (pl.col("k") == 4) & (pl.col("step_size") == 0.001) & (pl.col("seed") == 0) & (pl.col("step") == 100)
    rows = rows.with_columns(score=pl.when(~nothing).then("score"))
    (drawn,) = draw_figures(report_data(Results(rows, (), ()), FEW), ["settings-map"])
    assert drawn.notes == (
        "LunarLander-v3, IB-DQN: combinations of settings have 2 to 10 runs",
        "LunarLander-v3, IB-DQN: 1 run without a score, whose settings are not chosen",
    )
    assert tuned_of(rows).table["best"].to_list() == [0.1, 0.01, 0.01]


def test_several_environments_have_a_map_each() -> None:
    one = table(falling, KS, SIZES)
    both = pl.concat([one, one.with_columns(env=pl.lit("Acrobot-v1"))])
    found = report_data(Results(both, (), ()), FEW)
    drawn = {each.name: each for each in draw_figures(found, ["settings-map"])}
    titles = [axes.get_title(loc="left") for axes in drawn["settings-map"].figure.axes]
    assert [title for title in titles if title] == ["Acrobot-v1, IB-DQN", "LunarLander-v3, IB-DQN"]
    assert all(
        line.startswith(("Acrobot-v1, IB-DQN: ", "LunarLander-v3, IB-DQN: ")) for line in verdict(find_tuned(found))
    )


def test_a_diverged_agent_takes_its_cell_out_of_the_choice() -> None:
    worse = pl.col("k").eq(4.0) & pl.col("step_size").eq(0.001) & pl.col("seed").eq(0) & pl.col("step").eq(100)
    rows = table(falling, KS, SIZES).with_columns(diverged_at=pl.when(worse).then(pl.lit(7)))
    found = tuned_of(rows)
    assert found.table["best"].to_list() == [0.1, 0.01, 0.01]
    assert settings_map(found.grid).cells.filter(pl.col("diverged") > 0).select("k", "step_size").rows() == [(4, 0.001)]


def test_divergence_on_the_scored_half_takes_part_in_the_choice() -> None:
    """Seed 7 diverged: the first half, seeds 0 to 4, does not choose 0.1 for k = 0 either. The notes say so."""
    last = pl.col("k").eq(0.0) & pl.col("step_size").eq(0.1) & pl.col("seed").eq(7) & pl.col("step").eq(100)
    found = tuned_of(table(falling, KS, SIZES).with_columns(diverged_at=pl.when(last).then(pl.lit(7))))
    assert found.table["first_half_choice"][0] == 0.01
    said = "apart from divergence, which is judged on all seeds: a step size at which any run diverged "
    for notes in (reading(found), action_sets.NOTES, tabular.HOW_TO_READ):
        claims = [note for note in notes if "no run has a part in choosing its own" in note]
        assert len(claims) == 1
        assert said in claims[0]


def test_curves_are_those_of_the_best_step_sizes() -> None:
    tuned, notes = at_best_setting(report_data(Results(table(falling, KS, SIZES), (), ()), FEW))
    assert tuned.main.select("algorithm", "k", "step_size").unique().sort("k").rows() == [
        ("ib-dqn", 0.0, 0.1), ("ib-dqn", 1.0, 0.01), ("ib-dqn", 4.0, 0.001),
    ]  # fmt: skip
    assert notes == ("figures of LunarLander-v3, IB-DQN show each k at its best step size over all seeds",)


def test_figures_of_many_settings_show_the_best_ones() -> None:
    """12 learners on two games: lines and bars of all of them could not be read."""
    rows = table(lambda k, size: k + size, KS, MANY, seeds=2).with_columns(overestimation=pl.col("k") + 1)
    results = two_games(rows)
    data = report_data(results, FEW)
    drawn = {one.name: one for one in draw_figures(data)}
    note = "figures of Asterix-MinAtar, IB-DQN show each k at its best step size over all seeds"
    assert {name for name, one in drawn.items() if note not in one.notes} == {"settings-map", "geometry"}
    texts = [text.get_text() for text in drawn["iqm"].figure.legends[0].get_texts()]
    assert {"DQN", "IB-DQN(1)", "IB-DQN(4)"} <= set(texts)
    assert not any("step size" in text for text in texts)
    tuned, _ = at_best_setting(data)
    assert tuned.scale == data.scale
    compared = [(one.x.style.label, one.y.style.label) for one in compare_all(data).comparisons]
    assert len(compared) == 8  # k = 1 and k = 4 with k = 0 at each step size, and no step size with another
    assert all(x.partition(" with ")[2] == y.partition(" with ")[2] for x, y in compared)


MANY = (0.001, 0.01, 0.1, 1.0)


def two_games(rows: pl.DataFrame) -> Results:
    return Results(
        pl.concat([rows.with_columns(env=pl.lit(f"{game}-MinAtar")) for game in ("Asterix", "Breakout")]), (), ()
    )


@pytest.mark.parametrize("diverged", [(0.0,), (1.0,), (0.0, 1.0, 4.0)])
def test_figures_of_many_settings_where_runs_diverged(diverged: tuple[float, ...]) -> None:
    """A k without a setting at which no run diverged is left out, with a note; a figure that needs it has all."""
    one_seed = (pl.col("seed") == 0) & pl.col("k").is_in(diverged)
    rows = table(lambda k, size: k + size, KS, MANY, seeds=2).with_columns(
        overestimation=pl.col("k") + 1, diverged_at=pl.when(one_seed).then(pl.lit(7))
    )
    results = two_games(rows)
    drawn = {one.name: one for one in draw_figures(report_data(results, FEW))}
    data = report_data(results, FEW)
    assert set(drawn) == {name for name in FIGURES if name not in unmet_needs(data)}
    _, notes = at_best_setting(data)
    values = ", ".join(str(int(k)) for k in diverged)
    left_out = (
        f"figures of Asterix-MinAtar, IB-DQN leave out k = {values}: at every step size a run diverged or has no score"
    )
    assert left_out in notes
    assert (left_out in drawn["learning-curves"].notes) == (len(diverged) == 1)
    assert left_out not in drawn["auc-change"].notes or 0.0 not in diverged


def test_an_algorithm_that_is_no_part_of_a_grid_stays() -> None:
    """DQN beside a grid that has k = 0 itself: as it is, and compared with no other step size of its own."""
    grid = table(lambda k, size: k + size, KS, MANY, seeds=2)
    dqn = table(lambda k, size: k + size, (0.0,), (0.001,), seeds=2).with_columns(algorithm=pl.lit("dqn"))
    data = report_data(Results(pl.concat([grid, dqn]), (), ()), FEW)
    tuned, _ = at_best_setting(data)
    assert {v.name.algorithm for v in tuned.variants} == {"dqn", "ib-dqn"}
    labels = {(one.x.algorithm, one.x.k) for one in compare_all(data).comparisons}
    assert all(k > 0 for _, k in labels), labels


def test_step_sizes_of_an_algorithm_without_a_map_are_compared() -> None:
    grid = table(lambda k, size: k + size, KS, MANY, seeds=2).with_columns(algorithm=pl.lit("ib-double-dqn"))
    dqn = table(lambda k, size: k + size, (0.0,), SIZES, seeds=2).with_columns(algorithm=pl.lit("dqn"))
    data = report_data(Results(pl.concat([grid, dqn]), (), ()), FEW)
    of_dqn = [one for one in compare_all(data).comparisons if one.x.name.algorithm == "dqn"]
    assert len(of_dqn) == 2


def test_curves_of_another_algorithm_are_not_left_out() -> None:
    """Of ten k, nine are drawn; the other algorithm's are others."""
    many = table(lambda k, size: k, tuple(map(float, range(10))), (0.001,), seeds=2)
    other = table(lambda k, size: k, (20.0, 30.0), (0.001,), seeds=2).with_columns(algorithm=pl.lit("ib-double-dqn"))
    (drawn,) = draw_figures(report_data(Results(pl.concat([many, other]), (), ()), FEW), ["learning-curves"])
    labels = {text.get_text() for legend in drawn.figure.legends for text in legend.get_texts()}
    assert {"IB-Double DQN(20)", "IB-Double DQN(30)"} <= labels, labels
    assert "1 of 10 k are not drawn here: too many lines" in drawn.notes


# The sentences.


def test_k_with_settings_of_its_own_is_better() -> None:
    """k = 1 is 55 better than k = 0, each at its best; k = 4 is 50 better."""
    lines = sentences(tuned_of(table(falling, KS, SIZES)))
    assert lines[0].startswith(
        "k > 0, chosen with its step size on half of the seeds and scored on the other half, scores higher than k = 0 "
        "at its own best step size: a difference of the mean AUC of +55"
    )
    assert lines[0].endswith("(both halves chose k = 1 with 0.01).")
    assert "higher: k = 1 and 4." in lines[1]
    assert lines[2].startswith("To choose both: k = 1 with step size 0.01 has the highest mean over all seeds; ")
    assert lines[2].endswith("falls from 0.1 at k = 0 to 0.001 at k = 4: make it smaller when k grows.")
    assert lines[3] == "The halves of the seeds chose the same step size for 3 of 3 values of k."
    assert lines[4:] == [
        "The best step size of k = 4 is the smallest that was tried: search beyond it.",
        "The best step size of k = 0 is the largest that was tried: search beyond it.",
    ]


def test_what_is_said_follows_the_data() -> None:
    def worse(k: float, size: float) -> float:
        return -10.0 * k - abs(SIZES.index(size) - 1)

    lines = sentences(tuned_of(table(worse, KS, SIZES)))
    assert "scores lower than k = 0" in lines[0]
    assert "lower: k = 1 and 4." in lines[1]
    assert lines[2] == (
        "To choose both: k = 0 with step size 0.01 has the highest mean over all seeds; the best step size is 0.01 for "
        "every k: keep it when k changes."
    )
    same = sentences(tuned_of(table(lambda k, size: float(size == 0.01), KS, SIZES)))
    assert "shows no clear difference from k = 0" in same[0]
    assert "no clear difference: k = 1 and 4." in same[1]
    assert "; no clear difference from it, each at its own best step size: k = 1 and 4; " in same[2]
    up_and_down = sentences(tuned_of(table(lambda k, size: float(size == (0.1 if k == 1 else 0.01)), KS, SIZES)))
    assert "lies between 0.01 and 0.1 without a clear trend: search it for each k." in up_and_down[2]


@pytest.mark.parametrize("best", [(1, 9, 8, 7, 6, 5, 1), (9, 8, 7, 6, 7, 5, 4), (2, 9, 8, 7, 6, 5, 4, 3)])
def test_a_trend_with_an_exception_is_none(best: tuple[int, ...]) -> None:
    """Most pairs fall, or most grow: but one moves the other way, or the first and the last are equal."""
    ks, sizes = tuple(map(float, range(len(best)))), tuple(map(float, range(1, 10)))
    lines = sentences(tuned_of(table(lambda k, size: float(size == best[int(k)]), ks, sizes, seeds=10)))
    (line,) = (line for line in lines if line.startswith("To choose both"))
    assert line.endswith(f"lies between {min(best)} and {max(best)} without a clear trend: search it for each k.")


def test_overlapping_intervals_do_not_contradict_the_difference() -> None:
    """k = 4 is 3.5 better than k = 0: their intervals overlap, but the interval of the difference lies above 0."""
    found = tuned_of(table(lambda k, size: 3.5 * (k == 4) - (size != 0.01), (0.0, 4.0), SIZES, seeds=10))
    plain, best = found.table.to_dicts()
    assert plain["ci95_high"] > best["ci95_low"]
    lines = sentences(found)
    assert "higher: k = 4." in lines[1]
    assert "k = 0" not in lines[2]


def test_the_best_of_all_seeds_may_be_beaten_on_the_other_halves() -> None:
    """k = 0 has the highest mean with 0.001, 6: but each half of the seeds chooses what is bad for the other one."""
    scores = {(0.0, 0.001): (12, 0), (0.0, 0.01): (0, 11), (4.0, 0.001): (5, 5), (4.0, 0.01): (1, 1)}
    rows = table(lambda k, size: 0.0, (0.0, 4.0), SIZES[:2])
    halves = [
        pl.when(pl.col("k") == k, pl.col("step_size") == size, (pl.col("seed") < 5) == lower).then(pl.lit(score))
        for (k, size), own in scores.items()
        for lower, score in zip((True, False), own, strict=True)
    ]
    lines = sentences(tuned_of(rows.with_columns(score=pl.coalesce(halves).cast(pl.Float64))))
    assert "k = 0 with step size 0.001 has the highest mean over all seeds; " in lines[2]
    assert "; higher than it on the other halves, each at its own best step size: k = 4; " in lines[2]


def test_one_seed_has_a_map_and_no_comparison() -> None:
    lines = sentences(tuned_of(table(falling, KS, SIZES, seeds=1)))
    assert lines == [
        "Too few seeds (1) for a conclusion: run at least 10.",
        "No step size has seeds in both halves, to choose on one and to score on the other.",
        "k = 1 with step size 0.01 has the highest mean over all seeds.",
    ]


def test_a_trend_that_one_half_alone_chooses_is_not_advised() -> None:
    """The upper half of the seeds prefers 0.01 for every k, the lower half and all seeds smaller ones for larger k."""
    rows = table(falling, KS, SIZES)
    upper = (pl.col("seed") >= 5) & (pl.col("step_size") == 0.01)
    line = sentences(tuned_of(rows.with_columns(score=pl.col("score") + pl.when(upper).then(120.0).otherwise(0.0))))[2]
    assert line.endswith("lies between 0.001 and 0.1 without a clear trend: search it for each k.")


def test_few_seeds_give_no_advice() -> None:
    """Nine seeds are too few, ten are not; it is said before any comparison."""
    few, enough = (sentences(tuned_of(table(falling, KS, SIZES, seeds=seeds))) for seeds in (9, 10))
    assert few[0] == "Too few seeds (9) for a conclusion: run at least 10."
    assert few[1].startswith("k > 0, chosen with its step size")
    assert few[3] == "k = 1 with step size 0.01 has the highest mean over all seeds."
    assert not [line for line in few if "To choose" in line or "search" in line or "when k" in line]
    assert enough[2].startswith("To choose both: ")


def test_nothing_is_concluded_from_few_seeds_in_any_sentence() -> None:
    """The comparisons at one step size come after the sentences on the sweep, unless the seeds are few."""

    def said(seeds: int, *asked: str) -> tuple[str, ...]:
        data = report_data(Results(table(falling, KS, SIZES, seeds=seeds), (), ()), FEW)
        return verdict_sentences(data, compare_all(data, asked))

    few, enough = said(9), said(10)
    of_sweep = sentences(tuned_of(table(falling, KS, SIZES, seeds=9)))
    assert few[:-1] == (of_sweep[0], of_sweep[1].replace("mean AUC", "mean score over training (AUC)"), *of_sweep[2:])
    assert few[-1] == "6 comparisons are left out, because there are too few seeds: --compare shows them."
    assert not any("left out" in line for line in (*enough, *said(9, "ib-dqn step_size=0.1:4,ib-dqn step_size=0.1:1")))
    assert any(line.startswith("The largest gain: ") for line in enough)
    assert "scored lower than" in said(9, "IB-DQN(4) with step size 0.1,IB-DQN(1) with step size 0.1")[-1]
    pages = [results_page(Results(table(falling, KS, SIZES, seeds=seeds), (), ()), resamples=FEW) for seeds in (9, 10)]
    assert [">Findings</caption>" in page for page in pages] == [False, True]


def test_a_comparison_with_enough_seeds_is_shown_beside_a_sweep_with_few() -> None:
    """IQN has ten seeds, and the sweep of IB-DQN nine."""
    sweep = table(falling, KS, SIZES, seeds=9)
    iqn = table(lambda k, _: 10.0 * k, (0.0, 4.0), SIZES[:1], seeds=10).with_columns(algorithm=pl.lit("ib-iqn"))
    both = Results(pl.concat([sweep, iqn]), (), ())
    data = report_data(both, FEW)
    said = verdict_sentences(data, compare_all(data))
    assert said[-2].startswith("IB-IQN(4) with step size 0.001 scores higher than IQN with step size 0.001: ")
    assert said[-1].endswith(" comparisons are left out, because there are too few seeds: --compare shows them.")
    assert ">Findings</caption>" in results_page(both, resamples=FEW)


@pytest.mark.parametrize("seeds", [2, 10])
def test_the_curves_shown_first_are_those_of_the_first_sentence(seeds: int) -> None:
    """The best k > 0 and k = 0, each at its own best step size; comparisons at one step size are not the headline."""
    data = report_data(Results(table(falling, KS, SIZES, seeds=seeds), (), ()), FEW)

    def first(*asked: str) -> list[str]:
        return [variant.style.label for variant in headline_variants(data, compare_all(data, asked))]

    assert first() == ["IB-DQN(1) with step size 0.01", "DQN with step size 0.1"]
    asked = ["IB-DQN(4) with step size 0.1", "DQN with step size 0.001"]
    assert first(",".join(asked)) == asked


def test_the_best_may_have_seeds_of_one_half_alone() -> None:
    """k = 1 is the best, with seeds 0 to 4 of 0 to 9: it cannot be compared, and the others can."""
    lines = sentences(tuned_of(table(falling, KS, SIZES).filter((pl.col("k") != 1) | (pl.col("seed") < 5))))
    assert "(both halves chose k = 4 with 0.001)" in lines[0]
    assert lines[1].endswith(": higher: k = 4.")
    assert lines[2].startswith(
        "To choose both: k = 1 with step size 0.01 has the highest mean over all seeds, but no step size with seeds in "
        "both halves; the best step size falls from 0.1 "
    )
    assert lines[3] == "The halves of the seeds chose the same step size for 2 of 2 values of k."


def test_where_all_diverged_nothing_is_chosen() -> None:
    rows = table(falling, KS, SIZES).with_columns(diverged_at=pl.lit(5, pl.Int64))
    (line,) = sentences(tuned_of(rows))
    assert line.startswith("Every step size has agents that diverged")
