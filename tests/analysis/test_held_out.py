"""The settings that win, chosen and scored on different seeds: against a few lines of plain Python."""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest

from valueshare.analysis.held_out import check_halves, winning_settings
from valueshare.cli.report import best
from valueshare.errors import InvalidInput
from valueshare.report.winners_text import winner_lines
from valueshare.runs.run import Run

STEPS = (0, 100, 200, 300)
SETTINGS = [("dqn", 0.0, 0.1), ("dqn", 0.0, 0.2), ("ib-dqn", 2.0, 0.1), ("ib-dqn", 2.0, 0.2), ("ib-dqn", 4.0, 0.1)]
NAMES = ["dqn step_size=0.1", "dqn step_size=0.2"]
NAMES += ["ib-dqn k=2 step_size=0.1", "ib-dqn k=2 step_size=0.2", "ib-dqn k=4 step_size=0.1"]
FEW = 500  # resamples


def tidy(seeds: int = 8, noise: float = 10.0) -> pl.DataFrame:
    rng = np.random.default_rng(2)
    rows = [
        {"env": "E-v0", "algorithm": algorithm, "k": k, "step_size": size, "seed": seed, "step": step}
        | {"score": float(rng.normal(100 + k + 10 * size, noise)), "diverged_at": None}
        for algorithm, k, size in SETTINGS
        for seed in range(seeds)
        for step in STEPS
    ]
    return pl.DataFrame(rows, schema_overrides={"diverged_at": pl.Int64})


def scores(table: pl.DataFrame, last: int) -> dict[str, list[float]]:
    """By the setting's name: one score per seed."""
    found: dict[str, list[float]] = {}
    for name, (algorithm, k, size) in zip(NAMES, SETTINGS, strict=True):
        own = table.filter(algorithm=algorithm, k=k, step_size=size)
        found[name] = [mean(own.filter(seed=s).sort("step")["score"].to_list()[-last:]) for s in range(8)]
    return found


@pytest.mark.parametrize(("metric", "last"), [("auc", 4), ("final", 3)])
def test_against_plain_python(metric: Any, last: int) -> None:
    table = tidy()
    values = scores(table, last)
    found = {row["algorithm"]: row for row in winning_settings(table, metric, resamples=FEW).to_dicts()}
    assert list(found) == [None, "dqn", "ib-dqn"]
    for algorithm, row in found.items():
        own = {name: value for name, value in values.items() if algorithm in (None, name.split()[0])}
        lower = max(own, key=lambda name: mean(own[name][:4]))
        upper = max(own, key=lambda name: mean(own[name][4:]))
        assert (row["first_half_choice"], row["second_half_choice"]) == (lower, upper)
        held_out = [*own[lower][4:], *own[upper][:4]]
        assert row["mean"] == pytest.approx(mean(held_out))
        assert row["ci95_low"] < row["mean"] < row["ci95_high"]
        assert row["best"] == max(own, key=lambda name: mean(own[name]))
        assert row["mean_at_best"] == pytest.approx(max(map(mean, own.values())))
        assert (row["seeds"], row["settings"], row["failed"]) == (8, len(own), 0)


def test_a_winner_by_luck_is_not_scored_by_its_luck() -> None:
    """All settings are equal: the best over all seeds is above the truth, the held-out score on average is not."""
    rng, naive, held_out = np.random.default_rng(0), [], []
    for _ in range(60):
        table = tidy(8, 0.0).with_columns(score=pl.Series(rng.normal(0, 1, size=len(SETTINGS) * 8 * len(STEPS))))
        row = winning_settings(table, resamples=100).row(0, named=True)
        naive.append(row["mean_at_best"])
        held_out.append(row["mean"])
    error = np.std(held_out) / np.sqrt(60)
    assert mean(naive) > 4 * error
    assert abs(mean(held_out)) < 3 * error


def test_settings_of_which_an_agent_diverged_are_no_candidates() -> None:
    best = (pl.col("algorithm") == "ib-dqn") & (pl.col("k") == 4)
    table = tidy().with_columns(score=pl.col("score") + 1_000 * best)
    assert winning_settings(table, resamples=FEW)["best"][0] == NAMES[4]
    one = best & (pl.col("seed") == 3) & (pl.col("step") == 300)
    bad = table.with_columns(diverged_at=pl.when(one).then(250))
    winners = winning_settings(bad, resamples=FEW)
    assert winners["best"][0] != NAMES[4]
    assert winners["failed"].to_list() == [1, 0, 1]
    assert check_halves(winners)[-1].startswith("E-v0: 1 of 5 settings are not candidates")


def test_settings_with_fewer_seeds_are_noted() -> None:
    """k = 4 has two seeds of four, and the highest mean."""
    few = tidy(4).filter((pl.col("k") < 4) | (pl.col("seed") % 2 == 0))
    winners = winning_settings(few.with_columns(pl.col("score") + 50 * pl.col("k")), resamples=FEW)
    assert winners["best"][0] == NAMES[4]
    assert winners["fewest_seeds"].to_list() == [2, 4, 2]
    note = "E-v0: settings have 2 to 4 seeds, and are compared by the mean of those that each has"
    assert note in check_halves(winners)
    assert not any("compared by" in line for line in check_halves(winning_settings(tidy(4), resamples=FEW)))


def test_a_final_score_of_fewer_evaluations_says_of_how_many() -> None:
    """Two evaluations after training began; the one before it is none of them."""
    winners = winning_settings(tidy().filter(pl.col("step") < 300), "final", resamples=FEW)
    assert winners["evaluations"].to_list() == [2, 2, 2]
    assert winner_lines(winners, "final")[0].startswith("E-v0: mean score of 2 evaluations, as there are no more; 5 ")
    assert winner_lines(winning_settings(tidy(), "final", resamples=FEW), "final")[0].startswith(
        "E-v0: mean score of the last three evaluations; 5 "
    )


def test_beta_is_named_of_every_algorithm_that_may_use_it() -> None:
    """RDQ and a learner of another library do; DQN does not, whatever its column says."""
    rows = [
        {"env": "E-v0", "algorithm": name, "k": 0.0, "beta": beta, "seed": seed, "step": 1, "score": beta + seed}
        for name in ("dqn", "rdq", "other")
        for beta in (0.25, 0.5)
        for seed in range(4)
    ]
    winners = winning_settings(pl.DataFrame(rows), resamples=FEW)
    assert winners.sort("algorithm", nulls_last=True)["best"].to_list()[:3] == ["dqn", "other beta=0.5", "rdq beta=0.5"]


@pytest.mark.parametrize(
    ("name", "kind", "advice"),
    [
        ("score", pl.String, "convert it to numbers, like pl.Float64"),
        ("step", pl.List(pl.Int64), "convert it to numbers, like pl.Float64"),
        ("env", pl.Date, "convert it to pl.String"),
        ("algorithm", pl.Binary, "convert it to pl.String"),
    ],
)
def test_columns_of_wrong_types_are_refused(name: str, kind: Any, advice: str) -> None:
    values = pl.Series([None] * tidy(2).height, dtype=kind)
    with pytest.raises(InvalidInput, match=rf"^the column '{name}' is of type .*: {re.escape(advice)}$"):
        winning_settings(tidy(2).with_columns(values.alias(name)), resamples=FEW)


def test_too_few_seeds_and_too_few_settings() -> None:
    with pytest.raises(InvalidInput, match=r"there is one seed: .* needs at least 2, and 10 for advice"):
        check_halves(winning_settings(tidy(1), resamples=FEW))
    assert check_halves(winning_settings(tidy(4), resamples=FEW)) == ["4 seeds are too few for advice: run at least 10"]
    assert check_halves(winning_settings(tidy(10), resamples=FEW)) == []
    several = [tidy(count).with_columns(env=pl.lit(env)) for env, count in (("A-v0", 10), ("B-v0", 4), ("C-v0", 1))]
    assert check_halves(winning_settings(pl.concat(several), resamples=FEW)) == [
        "B-v0: 4 seeds are too few for advice: run at least 10",
        "C-v0: 1 seed is too few for advice: run at least 10",
    ]
    with pytest.raises(InvalidInput, match="one combination of settings, so nothing to choose"):
        check_halves(winning_settings(tidy().filter(k=4.0), resamples=FEW))
    with pytest.raises(InvalidInput, match="`metric = 'max'`: write one of auc, final"):
        winning_settings(tidy(), "max")  # type: ignore[arg-type]


def test_the_command_prints_a_table(tmp_path: Path, cli: Callable[..., Any]) -> None:
    file = tmp_path / "results.csv"
    tidy().drop("diverged_at").write_csv(file)
    code, out, err = cli("best", file, "--resamples", FEW)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "E-v0: AUC (the mean score over all evaluations); 5 settings, 8 seeds"
    row = winning_settings(tidy(), resamples=FEW).row(2, named=True)
    assert lines[4].split("  ")[0] == "ib-dqn"
    assert row["first_half_choice"] in lines[4]
    assert f"{row['mean']:.0f}" in lines[4]
    assert lines[5].startswith("best over all seeds: ib-dqn")
    assert lines[-1] == "note: 8 seeds are too few for advice: run at least 10"
    tidy(1).drop("diverged_at").write_csv(file)
    code, out, err = cli("best", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    code, out, err = cli("best", file, "--metric", "max")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_same_agents_in_two_runs_are_compared(tmp_path: Path, cli: Callable[..., Any]) -> None:
    table = tidy(10, noise=0.1).drop("diverged_at").filter(algorithm="ib-dqn", k=2.0)
    table.write_csv(tmp_path / "low.csv")
    table.with_columns(pl.col("score") + 50).write_csv(tmp_path / "high.csv")
    code, out, err = cli("best", tmp_path / "low.csv", tmp_path / "high.csv", "--resamples", FEW)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "E-v0: AUC (the mean score over all evaluations); 4 settings, 10 seeds"  # 2 runs x 2 step sizes
    assert lines[2].split()[2:6] == ["ib-dqn", "run=high.csv", "k=2", "step_size=0.2"]
    assert [" ".join(line.split()[:2]) for line in lines[3:5]] == ["ib-dqn run=high.csv", "ib-dqn run=low.csv"]
    means = [float(line.split("  ")[-1].split()[0]) for line in lines[2:5]]
    assert means == pytest.approx([154, 154, 104], abs=0.2)  # 100 + k + 10 x step size; 50 more


def test_the_table_names_the_seeds_that_choose(tmp_path: Path, cli: Callable[..., Any]) -> None:
    """The lower half of the seeds is 0 to 3 of 8, 0 to 1 of 4 and 0 of 2; two scores of a half make no interval."""
    heads, scores = {}, {}
    for seeds in (2, 4, 6, 8):
        tidy(seeds).drop("diverged_at").write_csv(tmp_path / "results.csv")
        _, out, _ = cli("best", tmp_path / "results.csv", "--resamples", FEW)
        heads[seeds], row = (re.split("  +", line.strip()) for line in out.splitlines()[1:3])
        scores[seeds] = row[-1]
    last = "score on the other seeds"
    assert heads[8] == ["chosen on seeds 0-3", "chosen on seeds 4-7", last]
    assert heads[4] == ["chosen on seeds 0-1", "chosen on seeds 2-3", last]
    assert heads[2] == ["chosen on seed 0", "chosen on seed 1", last]
    assert ["[" in scores[seeds] for seeds in (2, 4, 6, 8)] == [False, False, True, True]
    assert scores[4].endswith(" (no interval)")
    some = tidy(8).filter(~pl.col("seed").is_in([1, 6]) | (pl.col("algorithm") == "dqn"))
    halves = winning_settings(some, resamples=FEW).select("first_half_seeds", "second_half_seeds").rows()
    assert halves == [("0-3", "4-7"), ("0-3", "4-7"), ("0, 2, 3", "4, 5, 7")]
    some.drop("diverged_at").write_csv(tmp_path / "results.csv")
    _, out, _ = cli("best", tmp_path / "results.csv", "--resamples", FEW)
    assert "chosen on seeds of the lower half  chosen on seeds of the upper half" in " ".join(out.split(" "))


def test_python_logs_the_notes_that_the_command_prints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = tidy(4).with_columns(agent=pl.struct("algorithm", "k", "step_size", "seed").rank("dense").cast(pl.Int64))
    table = table.with_columns(diverged_at=pl.when(pl.col("k") == 4).then(1).otherwise(None))
    agents = table.select("agent", "env", "algorithm", "k", "step_size", "seed").unique()
    run = Run(tmp_path, agents, table.select("agent", "step", "score", "diverged_at"), finished=False)
    run.best_settings()
    assert caplog.messages == [
        "this run is not finished: settings are compared by its scores so far",
        "4 seeds are too few for advice: run at least 10",
        "E-v0: 1 of 5 settings are not candidates, because an agent diverged or lacks a score",
    ]


def test_environments_are_in_order() -> None:
    """A join without an order would put them in another order in every call."""
    names = [f"E{number:02d}-v0" for number in range(20)]
    table = pl.concat([tidy(seeds=2).with_columns(env=pl.lit(name)) for name in reversed(names)])
    winners = winning_settings(table, resamples=10)
    assert winners["env"].unique(maintain_order=True).to_list() == names


def test_the_command_prints_a_table_per_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores without noise: 100 + k + 10·step_size, so that both halves choose k = 4, and 0.2 of DQN's step sizes."""
    table = pl.concat([tidy(10, 0.0).with_columns(env=pl.lit(env)) for env in ("A-v0", "B-v0")])
    table.drop("diverged_at").write_csv(tmp_path / "results.csv")
    best((tmp_path / "results.csv",), resamples=FEW)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for env in ("A-v0", "B-v0"):
        first = lines.index(f"{env}: AUC (the mean score over all evaluations); 5 settings, 10 seeds")
        assert lines[first + 2] == f"all algorithms {NAMES[4]} {NAMES[4]} 105.00 [105.00, 105.00]"
        assert lines[first + 3] == f"dqn {NAMES[1]} {NAMES[1]} 102.00 [102.00, 102.00]"
        assert lines[first + 5] == (
            f"best over all seeds: {NAMES[4]}, mean 105.0 (optimistic: selected on the same seeds)"
        )
