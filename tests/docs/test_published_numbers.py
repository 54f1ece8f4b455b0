"""Tables of the result pages agree with the published scores, recomputed here with Polars and NumPy alone."""

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from page_snippets import ROOT

RESULTS = ROOT / "docs" / "reproduction"
NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+")

Value = Callable[[str, str], float]
Floats = NDArray[np.float64]


@cache
def scores(study: str) -> pl.DataFrame:
    return pl.read_parquet(RESULTS / f"{study}-scores.parquet")


def table(page: str, first_cell: str, nth: int = 0) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the nth table whose header begins with `first_cell`."""
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(rf"^(\| *{re.escape(first_cell)} *\|.*\n)\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    header, body = found[nth]
    return cells(header), [cells(line) for line in body.splitlines()]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def assert_shows(cell: str, value: float | None, where: object) -> None:
    """The first number of the cell is the value, rounded as printed."""
    if value is None:
        assert cell == "none", where
        return
    found = NUMBER.search(cell)
    assert found is not None, where
    digits = len(found[0].partition(".")[2])
    printed = float(found[0].replace(",", ""))
    assert abs(printed - value) <= 0.5001 * 10**-digits, (where, cell, value)


def algorithm_and_k(name: str) -> pl.Expr:
    """The agents that a column is about, from its name: "IB-DQN(6)", "Dueling DQN"."""
    label, _, k = name.partition("(")
    algorithm = label.lower().replace(" ", "-")
    return (pl.col("algorithm") == algorithm) & (pl.col("k") == float(k.rstrip(")") or 0))


# ------------------------------------------------------------------------------------------------------------- Atari


def test_sixteen_atari_games() -> None:
    header, rows = table("atari", "At 500,000 timesteps")
    assert len(header) == 10
    assert len(rows) == 16
    last = scores("atari-sixteen-games").filter(pl.col("step") == 500_000)
    columns = ("overestimation", "mean_action_value", "relative_action_gap", "score")
    for game, *shown in rows:
        of_game = last.filter(pl.col("env") == f"ALE/{game}-v5")
        dqn, ours = (of_game.row(by_predicate=algorithm_and_k(name), named=True) for name in ("DQN", "IB-DQN(18)"))
        difference = shown.pop(2)
        for i, column in enumerate(columns):
            scale = 1000 if column == "relative_action_gap" else 1
            for cell, row in zip(shown[2 * i : 2 * i + 2], (dqn, ours), strict=True):
                assert_shows(cell, None if row[column] is None else scale * row[column], (game, column))
        if difference:
            assert_shows(difference, ours["overestimation"] - dqn["overestimation"], game)


def test_pong() -> None:
    header, rows = table("atari", "")
    assert header == ["", "DQN", "IB-DQN(18)", "Difference"]
    last = scores("atari").filter(pl.col("step") == 500_000)
    columns = ("score", "overestimation", "relative_action_gap", "mean_action_value")
    for column, (_, dqn, ours, difference) in zip(columns, rows[:4], strict=True):
        means = [last.filter(algorithm_and_k(name))[column].to_numpy().mean() for name in ("DQN", "IB-DQN(18)")]
        assert_shows(dqn, means[0], column)
        assert_shows(ours, means[1], column)
        assert_shows(difference, means[1] - means[0], column)


# ----------------------------------------------------------------------------------------------------------- MinAtar

TRAINING = pl.col("step") > 0


def minatar_mean(column: str, evaluations: pl.Expr, scale: float = 1, study: str = "minatar", seeds: int = 10) -> Value:
    """Mean over seeds of a column's mean over these evaluations."""
    runs = scores(study).filter(evaluations).group_by("env", "algorithm", "k", "seed").agg(pl.col(column).mean())

    def value(game: str, name: str) -> float:
        env = pl.col("env") == f"{game.replace(' ', '')}-MinAtar"
        of_name = runs.filter(env & algorithm_and_k(name))[column]
        assert len(of_name) == seeds
        return scale * float(of_name.to_numpy().mean())

    return value


@pytest.mark.parametrize(
    ("first_cell", "column", "evaluations", "scale"),
    [
        ("Game", "score", pl.lit(True), 1),
        ("Final scores (mean of the last three evaluations)", "score", pl.col("step") >= 800_000, 1),
        ("Overestimation", "overestimation", TRAINING, 1),
        ("Relative action gap, in 1/1000", "relative_action_gap", TRAINING, 1000),
    ],
)
def test_minatar(first_cell: str, column: str, evaluations: pl.Expr, scale: float) -> None:
    value = minatar_mean(column, evaluations, scale)
    for nth in range(1 if first_cell.startswith("Final") else 2):  # all agents, then IB-IQN against IQN
        (_, *names), rows = table("minatar", first_cell, nth)
        assert len(rows) == 5
        for game, *shown in rows:
            for name, cell in zip(names, shown, strict=True):
                first, _, second = name.partition(" - ")
                base = value(game, second) if second else 0.0
                assert_shows(cell, value(game, first) - base, (game, name))


def test_minatar_with_the_same_seeds_again() -> None:
    (_, *groups), rows = table("minatar", "To 800,000 steps")
    assert groups == ["Seeds 0 to 4", "Seeds 5 to 9", "Seeds 5 to 9, earlier run", "All three"]
    early = pl.col("step") <= 800_000
    first = minatar_mean("score", early & (pl.col("seed") < 5), seeds=5)
    second = minatar_mean("score", early & (pl.col("seed") >= 5), seeds=5)
    earlier = minatar_mean("score", early, study="minatar-iqn-earlier", seeds=5)
    for game, *shown in rows[:5]:
        differences = [value(game, "IB-IQN(6)") - value(game, "IQN") for value in (first, second, earlier)]
        for cell, difference in zip(shown, (*differences, sum(differences) / 3), strict=True):
            assert_shows(cell, difference, game)


# ------------------------------------------------------------------------------------------------------- LunarLander


def test_lunarlander_and_its_intervals() -> None:
    rows = table("lunarlander", "k")[1]
    assert len(rows) == 17
    runs = lunarlander_auc("lunarlander")
    for k, auc, interval, difference in rows:
        of_k = runs[float(k.split()[0].replace(",", ""))]
        assert_shows_mean(f"{auc} {interval}", of_k)
        if not k.startswith("0"):
            assert_shows_mean(difference, of_k, runs[0.0])


def test_lunarlander_and_the_run_before() -> None:
    header, rows = table("lunarlander", "k", 1)
    assert [name.partition(",")[0] for name in header] == ["k", "AUC", "AUC", "minus DQN", "minus DQN"]
    assert len(rows) == 10
    before, now = lunarlander_auc("lunarlander-earlier"), lunarlander_auc("lunarlander")
    for k, *shown in rows:
        for cell, difference, runs in zip(shown[:2], shown[2:], (before, now), strict=True):
            of_k = runs[float(k.split()[0])]
            assert_shows_mean(cell, of_k)
            if not k.startswith("0"):
                assert_shows_mean(difference, of_k, runs[0.0])


def lunarlander_auc(study: str) -> dict[float, Floats]:
    """The AUC of each seed, by k."""
    runs = scores(study).group_by("k", "seed").agg(pl.col("score").mean()).sort("k", "seed")
    found = {float(k): of_k["score"].to_numpy() for (k,), of_k in runs.partition_by("k", as_dict=True).items()}
    assert {len(of_k) for of_k in found.values()} == {120}
    return found


def assert_shows_mean(cell: str, scores: Floats, reference: Floats | None = None) -> None:
    """A cell like +36 [15, 56]: a mean or a difference of two, and its bootstrap interval."""
    rng, n = np.random.default_rng(0), len(scores)
    mean, drawn = scores.mean(), scores[rng.integers(n, size=(4_000, n))].mean(axis=1)
    if reference is not None:
        mean, drawn = mean - reference.mean(), drawn - reference[rng.integers(n, size=(4_000, n))].mean(axis=1)
    assert_shows(cell, float(mean), cell)
    shown = [float(number) for number in NUMBER.findall(cell)[1:]]
    assert np.abs(np.percentile(drawn, (2.5, 97.5)) - shown).max() < 0.1 * (shown[1] - shown[0]), cell


def test_k_against_zero_at_each_step_size() -> None:
    (_, *names), rows = table("step-size", "step size")
    runs = scores("step-size").group_by("k", "step_size", "seed").agg(pl.col("score").mean())

    def mean(k: float, step_size: str) -> float:
        cell = runs.filter((pl.col("k") == k) & (pl.col("step_size").round(8) == float(step_size)))["score"]
        assert len(cell) == 30
        return float(cell.to_numpy().mean())

    for step_size, *shown in rows:
        for name, cell in zip(names, shown, strict=True):
            k = float(name.split()[2])
            assert_shows(cell, mean(k, step_size) - mean(0.0, step_size), (step_size, name))


# --------------------------------------------------------------------------- step sizes chosen on half of the seeds


def held_out(runs: pl.DataFrame) -> tuple[list[float], Floats]:
    """The step sizes that the halves of the seeds chose, and the scores of each half at the choice of the other."""
    cells = runs.sort("step_size", "seed").partition_by("step_size", as_dict=True)
    scores = {size: cell["score"].to_numpy() for (size,), cell in cells.items()}
    half = len(next(iter(scores.values()))) // 2
    first = max(scores, key=lambda size: scores[size][:half].mean())
    second = max(scores, key=lambda size: scores[size][half:].mean())
    return [first, second], np.concatenate([scores[first][half:], scores[second][:half]])


def assert_shows_interval(cell: str, scores: Floats, reference: Floats | None = None) -> None:
    """A cell like **+77** [31, 123]: a mean or a difference of two, and a bootstrap interval, 1.17 times as wide.

    It is bold where it is a difference and its interval excludes 0. Bounds differ by Monte-Carlo error.
    """
    rng, n = np.random.default_rng(0), len(scores)
    mean, drawn = scores.mean(), scores[rng.integers(n, size=(20_000, n))].mean(axis=1)
    if reference is not None:
        mean, drawn = mean - reference.mean(), drawn - reference[rng.integers(n, size=(20_000, n))].mean(axis=1)
    low, high = mean + 1.36**0.5 * (np.percentile(drawn, (2.5, 97.5)) - mean)
    assert_shows(cell, mean, cell)
    bounds = [float(number) for number in NUMBER.findall(cell)[1:]]
    digits = max(len(number.partition(".")[2]) for number in NUMBER.findall(cell))
    assert bounds == pytest.approx([low, high], abs=0.03 * (high - low) + 0.5 * 10**-digits), cell
    assert cell.startswith("**") == (reference is not None and bounds[0] * bounds[1] > 0), cell


def test_each_k_at_its_own_step_size() -> None:
    rows = table("step-size", "k")[1]
    runs = scores("step-size").group_by("k", "step_size", "seed").agg(pl.col("score").mean())
    found = {k: held_out(of_k) for (k,), of_k in runs.partition_by("k", as_dict=True).items()}
    assert len(rows) == len(found) == 9
    for k, step_sizes, auc, difference in rows:
        chosen, values = found[float(k.split()[0])]
        assert sorted(map(float, step_sizes.split(" and "))) == pytest.approx(sorted(set(chosen))), k
        assert_shows_interval(auc, values)
        if float(k.split()[0]):
            assert_shows_interval(difference, values, found[0.0][1])


def test_learners_with_more_actions() -> None:
    (_, _, *names), rows = table("large-action-sets", "n", 1)
    runs = scores("lunarlander-actions").group_by("env", "algorithm", "k", "step_size", "seed").agg(pl.mean("score"))
    bins = {9: "3x3", 49: "7x7", 225: "15x15"}
    for n, dqn, *differences in rows:
        of_n = runs.filter(pl.col("env").str.ends_with(f"-bins{bins[int(n)]}"))
        reference = held_out(of_n.filter(algorithm_and_k("DQN")))[1]
        assert_shows_interval(dqn, reference)
        for name, cell in zip(names, differences, strict=True):
            learner = name.removesuffix(" minus DQN").replace("(n)", f"({n})")
            assert_shows_interval(cell, held_out(of_n.filter(algorithm_and_k(learner)))[1], reference)
