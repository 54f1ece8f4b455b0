"""The gain against the number of actions: by hand, in a report on any run, and the study from command to page."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from valueshare.analysis.importers.formats import read_run_folder
from valueshare.analysis.importers.results import read_results
from valueshare.cli import main
from valueshare.cli.report import report
from valueshare.errors import InvalidInput
from valueshare.experiments.study import make_study
from valueshare.population.presets import lunarlander_paper
from valueshare.report.action_sets import ENGINES, FIGURE, gains, sentences
from valueshare.report.data import report_data
from valueshare.report.figure_registry import draw_figures, unmet_needs

ENVS = {9: "LunarLanderContinuous-v3-bins3x3", 49: "LunarLanderContinuous-v3-bins7x7"}
LEARNERS = (("dqn", 0.0), ("ib-dqn", 1.0), ("ib-dqn", None), ("dueling-dqn", 0.0))  # None: k = n


def make_run(folder: Path, *, envs: dict[int, str] = ENVS, without: str = "") -> Path:
    """Six seeds of each learner with two step sizes.

    The AUC is 10 x the learner's number + n + seed. At the larger step size it is 100 higher for seeds 0 to 2 of
    IB-DQN(n), and 100 lower for all others: so the first half of its seeds chooses that one, and the second half the
    smaller one.
    """
    rows: list[dict[str, Any]] = []
    for n, env in envs.items():
        for number, (algorithm, k) in enumerate(LEARNERS):
            for step_size in (0.001, 0.01):
                for seed in range(6):
                    score = 10.0 * number + n + seed
                    if step_size == 0.01:
                        score += 100 if number == 2 and seed < 3 else -100
                    rows.append(
                        {"env": env, "algorithm": algorithm, "k": float(n) if k is None else k, "step_size": step_size}
                    )
                    rows[-1] |= {"seed": seed, "score": score}
    table = pl.DataFrame([row for row in rows if row["algorithm"] != without]).with_row_index("agent")
    agents = table.drop("score").with_columns(pl.col("agent").cast(pl.Int64))
    (folder / "records").mkdir(parents=True)
    agents.write_parquet(folder / "agents.parquet")
    for step, off in ((0, -5.0), (100, 5.0)):
        records = table.select(
            pl.col("agent").cast(pl.Int64), pl.lit(step).alias("step"), pl.col("score") + off, episodes=pl.lit(2)
        )
        records.write_parquet(folder / "records" / f"population-0-{step:06d}.parquet")
    return folder


def test_gains_by_hand(tmp_path: Path) -> None:
    """DQN: n + mean(0, 1, ..., 5) = n + 2.5. IB-DQN(1) is 10 above it, Dueling DQN 30.

    IB-DQN(n): seeds 3 to 5 are scored at 0.01, which seeds 0 to 2 chose: 20 + n + 4 - 100; seeds 0 to 2 at 0.001:
    20 + n + 1. Their mean is n + 22.5 - 50, which is 30 below DQN.
    """
    found = gains(read_run_folder(make_run(tmp_path / "run")).table, 500).table
    assert found["actions"].to_list() == [9] * 4 + [49] * 4
    for n in (9, 49):
        dqn, *others = found.filter(pl.col("actions") == n).rows(named=True)
        assert (dqn["algorithm"], dqn["mean"], dqn["difference"]) == ("dqn", n + 2.5, 0.0)
        by_learner = {(row["algorithm"], row["k"]): row for row in others}
        differences = {who: row["difference"] for who, row in by_learner.items()}
        assert differences == {("ib-dqn", 1.0): 10.0, ("ib-dqn", float(n)): -30.0, ("dueling-dqn", 0.0): 30.0}
        halves = by_learner["ib-dqn", float(n)]
        assert (halves["first_half_choice"], halves["second_half_choice"], halves["runs"]) == (0.01, 0.001, 6)
        assert by_learner["ib-dqn", 1.0]["difference_low"] < 10 < by_learner["ib-dqn", 1.0]["difference_high"]


def test_the_same_in_sentences_and_files(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    report((run,), figures=(FIGURE,), resamples=200)
    about = json.loads((run / "report" / "report.json").read_text())
    first, second = about["verdict"][:2]
    assert first.startswith("9 actions: mean score over training (AUC) of DQN 11.5 [")
    assert "IB-DQN(n) -30" in second
    assert len(about["numbers"]["action_sets"]) == 8  # learners and numbers of actions
    assert "49 actions: AUC of DQN 51.5 [" in re.sub(r"<[^>]*>", "", (run / "report" / "report.html").read_text())


def test_an_end_of_the_grid_is_said(tmp_path: Path) -> None:
    table = read_run_folder(make_run(tmp_path / "run")).table
    third = table.filter(pl.col("step_size") == 0.001).with_columns(step_size=pl.lit(0.1), score=pl.col("score") - 500)
    lines = sentences(gains(pl.concat([table, third]), 200).table)
    assert "The best step size of DQN with 9 actions is the smallest that was tried: search beyond it." in lines


def test_a_report_on_any_such_run_has_the_figure(tmp_path: Path) -> None:
    results = read_results([make_run(tmp_path / "run")])
    (drawn,) = draw_figures(report_data(results, 200), [FIGURE])
    lines = {str(line.get_label()): np.array(line.get_xydata()) for line in drawn.figure.axes[0].lines}
    assert {"Dueling DQN", "IB-DQN(1)", "IB-DQN(n)"} < lines.keys()  # and one at 0
    np.testing.assert_allclose(lines["IB-DQN(n)"], [[9, -30], [49, -30]])


@pytest.mark.parametrize(
    ("envs", "without"),
    [({9: ENVS[9]}, ""), (ENVS, "dqn"), ({9: "A-v0", 49: "B-v0"}, ""), ({9: ENVS[9], 49: "B-v0-bins7x7"}, "")],
)
def test_other_runs_have_none(tmp_path: Path, envs: dict[int, str], without: str) -> None:
    run = make_run(tmp_path / "run", envs=envs, without=without)
    assert "bins of their actions" in unmet_needs(report_data(read_results([run])))[FIGURE]


def as_csv(path: Path, table: pl.DataFrame) -> Path:
    """Results as others have them: no run folder."""
    table.select("env", "algorithm", "k", "step_size", "seed", "step", "score").write_csv(path)
    return path


def has_figure(file: Path) -> bool:
    return FIGURE not in unmet_needs(report_data(read_results([file])))


def changed(file: Path, **columns: pl.Expr) -> Path:
    pl.read_csv(file).with_columns(**columns).write_csv(file)
    return file


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return as_csv(tmp_path / "results.csv", read_run_folder(make_run(tmp_path / "run")).table)


def test_every_run_needs_a_step_size(results: Path) -> None:
    assert has_figure(results)
    changed(results, step_size=pl.when((pl.col("seed") < 3) | (pl.col("step_size") < 0.01)).then("step_size"))
    assert not has_figure(results)
    pl.read_csv(results).filter(pl.col("step_size") == 0.001).drop("step_size").write_csv(results)
    assert not has_figure(results)


@pytest.mark.parametrize("bins", ["1", "100x100", "x".join(["2"] * 13), "x".join(["9999"] * 190)])
def test_a_name_that_is_none_of_ours_has_no_bins(results: Path, bins: str) -> None:
    changed(results, env=pl.col("env").str.replace("bins3x3", f"bins{bins}"))
    assert not has_figure(results)
    drawn = draw_figures(report_data(read_results([results]), 200))  # all that can be drawn
    assert FIGURE not in {each.name for each in drawn}


@pytest.mark.parametrize("apart", [pl.col("seed"), pl.col("seed") + 100], ids=["same seeds", "other seeds"])
@pytest.mark.parametrize("setting", ["discount", "epsilon_end", "optimizer"])
def test_runs_that_differ_in_another_setting_are_no_such_results(results: Path, setting: str, apart: pl.Expr) -> None:
    values = ("adam", "sgd") if setting == "optimizer" else (0.9, 0.5)
    one = pl.read_csv(results).with_columns(pl.lit(values[0]).alias(setting))
    one.write_csv(results)
    assert has_figure(results)
    pl.concat([one, one.with_columns(pl.lit(values[1]).alias(setting), seed=apart)]).write_csv(results)
    assert not has_figure(results)


@pytest.mark.parametrize("env_id", ["LunarLanderContinuous-v3", "LunarLanderContinuous-v2", "Pendulum-v1"])
def test_the_engines_are_noted_for_their_environment_alone(tmp_path: Path, env_id: str) -> None:
    envs = {9: f"{env_id}-bins9", 49: f"{env_id}-bins49"}
    found = gains(read_run_folder(make_run(tmp_path / "run", envs=envs)).table, 100)
    assert (ENGINES in found.notes) == env_id.startswith("LunarLanderContinuous")


def test_the_full_study() -> None:
    study = make_study("lunarlander-actions", "full")
    (plan,) = study.runs.values()
    assert set(plan.settings.values()) == {lunarlander_paper().settings}
    learners = plan.agents.group_by("env", "algorithm", "k", maintain_order=True).len()
    assert learners.rows() == [
        (f"LunarLanderContinuous-v3-bins{bins}x{bins}", algorithm, k, 6 * 30)
        for bins in (3, 7, 15)
        for algorithm, k in (("dqn", 0.0), ("ib-dqn", 1.0), ("ib-dqn", float(bins**2)), ("dueling-dqn", 0.0))
    ]
    assert plan.agents["agent"].to_list() == list(range(2_160))
    assert (
        "LunarLander's two continuous engines in bins, 9, 49, 225 actions, instead of its 4 actions" in study.deviations
    )
    with pytest.raises(InvalidInput, match="unknown scale 'paper': write one of smoke, small, full"):
        make_study("lunarlander-actions", "paper")


@pytest.mark.slow
def test_smoke_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "actions"
    command = ["reproduce", "lunarlander-actions", "--scale", "smoke", "--eval-episodes", "1", "--out", str(out)]
    main(command)
    said = capsys.readouterr().out
    assert "32 agents" in said  # 2 numbers of actions x 4 learners x 2 step sizes x 2 seeds
    assert f"{out / 'report' / 'figures'}: " in said
    assert FIGURE in said
    learners = json.loads((out / "report" / "report.json").read_text())["numbers"]["action_sets"]
    assert [(row["actions"], row["algorithm"], row["k"]) for row in learners[:4]] == [
        (9, "dqn", 0.0), (9, "dueling-dqn", 0.0), (9, "ib-dqn", 1.0), (9, "ib-dqn", 9.0),
    ]  # fmt: skip
    page = (out / "report" / "report.html").read_text()
    assert "9, 49 actions, instead of its 4 actions" in page
    assert str(tmp_path) not in page
