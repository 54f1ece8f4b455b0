"""The LunarLander studies: their scales, and the smoke scales from command to report."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest
from repeated import check_repeated
from undrawn import undrawn

from valueshare.cli import main
from valueshare.errors import InvalidInput
from valueshare.experiments.study import make_study


def test_the_papers_scale_is_the_papers() -> None:
    study = make_study("lunarlander", scale="paper")
    (plan,) = study.runs.values()
    settings = plan.settings["LunarLander-v3"]
    assert plan.agents.height == 2_040  # 17 k x 120 seeds
    assert plan.agents["k"].unique().sort().to_list() == [0.0, *(2.0**i for i in range(16))]
    assert plan.agents["step_size"].unique().to_list() == [1e-3]
    assert (settings.steps, settings.eval_interval, settings.eval_episodes) == (
        100_000,
        10_000,
        100,
    )
    assert (settings.hidden, settings.batch_size, settings.update_interval) == ((256, 256), 128, 1)
    assert not any("instead of" in sentence for sentence in study.deviations)
    assert len(study.deviations) == 3  # the engine's own: phases, overlap, and replacement


def test_every_deviation_from_the_paper_is_said() -> None:
    said = make_study("lunarlander", scale="paper", eval_episodes=10, seeds=8, tf32=True).deviations
    assert said[:3] == (
        "eval episodes 10 instead of 100",
        "tf32 on instead of off",
        "8 seeds instead of 120",
    )
    small = make_study("lunarlander", scale="small")
    assert "hidden 128-128 instead of 256-256" in small.deviations
    assert "steps 50,000 instead of 100,000" in small.deviations
    assert "k of ib-dqn: 0, 4, 32, 1024, 32768 instead of 17 values" in small.deviations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "huge"}, "unknown scale 'huge': write one of smoke, small, paper"),
        ({"eval_episodes": 0}, "eval_episodes = 0"),
        ({"seeds": 0}, "`seeds = 0`: write a number >= 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_study("lunarlander", **options)


def test_the_full_scale_is_the_papers_with_step_sizes() -> None:
    study, paper = make_study("lunarlander-step-size", "full"), make_study("lunarlander", scale="paper")
    plan, paper_plan = study.runs[""], paper.runs[""]
    assert plan.agents.height == 9 * 6 * 30
    assert plan.agents["k"].unique().sort().to_list() == [0, 1, 2, 4, 8, 16, 32, 64, 128]
    sizes = plan.agents["step_size"].unique().sort().to_list()
    assert len(sizes) == 6
    assert sizes[0] < 1e-3 < sizes[-1]
    assert 1e-3 in sizes  # the paper's
    ratios = [larger / smaller for smaller, larger in pairwise(sizes)]
    assert max(ratios) / min(ratios) < 1.2  # geometric, in round numbers
    assert plan.settings == paper_plan.settings
    others = ("agent", "k", "step_size", "seed")
    assert plan.agents.drop(others).unique().equals(paper_plan.agents.drop(others).unique())
    assert study.deviations[:3] == (
        "30 seeds instead of 120",
        "step size: 3e-05, 0.0001, 0.0003, 0.001, 0.003, 0.01 instead of 0.001",
        "k of ib-dqn: 9 values instead of 17 values",
    )
    assert study.deviations[3:] == paper.deviations


def test_options_replace_those_of_the_scale_and_bad_ones_are_refused() -> None:
    study = make_study("lunarlander-step-size", "full", eval_episodes=5, seeds=4, tf32=True)
    settings = study.runs[""].settings["LunarLander-v3"]
    assert (settings.eval_episodes, settings.eval_envs, settings.tf32) == (5, 5, True)
    assert study.runs[""].agents.height == 9 * 6 * 4
    assert "4 seeds instead of 120" in study.deviations
    with pytest.raises(InvalidInput, match="unknown scale 'paper': write one of smoke, small, full"):
        make_study("lunarlander-step-size", "paper")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The LunarLander study at smoke scale."""
    out = tmp_path_factory.mktemp("study") / "lunarlander"
    main(["reproduce", "lunarlander", "--scale", "smoke", "--out", str(out)])
    return out


def test_the_sweep_over_k_from_command_to_report(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads((sweep / "report" / "report.json").read_text())
    rows = report["numbers"]["by_k"]["score"]
    assert [row["k"] for row in rows] == [0.0, 16.0, 32_768.0]
    evaluations = pl.read_parquet(sweep / "report" / "tables" / "evaluations.parquet")
    assert evaluations["step"].unique().sort().to_list() == [0, 100, 200, 300]
    assert evaluations.height == 6 * 4
    by_hand = evaluations.filter(pl.col("k") == 0)["score"].mean()  # equally many evaluations per seed
    assert rows[0]["mean"] == pytest.approx(by_hand, rel=1e-6)
    assert {"sensitivity", "overestimation-against-k", "action-gap-against-k"} <= report["figures"].keys()
    assert "2 seeds instead of 120" in report["deviations"]
    provenance = json.loads((sweep / "provenance.json").read_text())
    assert provenance["command"] == "valueshare reproduce lunarlander --scale smoke"
    assert str(sweep.parent) not in (sweep / "report" / "report.html").read_text()
    check_repeated(["reproduce", "lunarlander", "--scale", "smoke", "--out", str(sweep)], sweep, capsys)


def test_k_with_its_step_size_from_command_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with undrawn():
        main(["reproduce", "lunarlander-step-size", "--scale", "smoke", "--out", str(out)])
    said = capsys.readouterr().out
    assert "24 agents" in said  # 3 k x 2 step sizes x 4 seeds
    caution, comparison = (said.index(text) for text in ("Too few seeds (4) for a conclusion", "k > 0, chosen with"))
    assert caution < comparison
    assert "To choose both" not in said
    report = json.loads((out / "report" / "report.json").read_text())
    assert [line for line in report["verdict"] if line not in said] == []
    assert "settings-map" in report["figures"]
    page = (out / "report" / "report.html").read_text()
    assert str(tmp_path) not in page
    assert "step size: 0.0001, 0.001 instead of 0.001" in page
    assert "the best step size of each k" in page
    (found,) = report["numbers"]["swept_settings"]
    _compare_with_plain_python(pl.read_parquet(out / "report" / "tables" / "evaluations.parquet"), found)


def _compare_with_plain_python(scores: pl.DataFrame, found: dict[str, Any]) -> None:
    """The AUC of an agent is the mean of its four evaluations; seeds 0 and 1 choose for 2 and 3, and vice versa."""
    auc: dict[tuple[float, float, int], list[float]] = {}
    for k, size, seed, score in scores.select("k", "step_size", "seed", "score").iter_rows():
        auc.setdefault((k, size, seed), []).append(score)
    assert {len(points) for points in auc.values()} == {4}  # at 0, 100, 200 and 300 steps
    value = {who: mean(points) for who, points in auc.items()}
    for cell in found["cells"]:
        own = [value[cell["k"], cell["step_size"], seed] for seed in range(4)]
        assert cell["mean"] == pytest.approx(mean(own), rel=1e-5)
    for row in found["chosen"]:
        k, held_out = row["k"], []
        for choosing, scoring, name in (((0, 1), (2, 3), "first"), ((2, 3), (0, 1), "second")):
            means = {size: mean(value[k, size, seed] for seed in choosing) for size in (1e-4, 1e-3)}
            best = max(means, key=lambda size: means[size])
            assert row[f"{name}_half_choice"] == best
            held_out += [value[k, best, seed] for seed in scoring]
        assert row["mean"] == pytest.approx(mean(held_out), rel=1e-5)
        assert row["ci95_low"] is row["ci95_high"] is None  # of halves of two seeds
