"""The study of k with its step size: its scales, its report, and the smoke scale from command to page."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean

import polars as pl
import pytest
from repeated import check_repeated

from valueshare.cli import main
from valueshare.errors import InvalidInput
from valueshare.experiments.lunarlander import lunarlander_step_size_study, lunarlander_study
from valueshare.report.step_size import write_step_size_report


def test_the_full_scale_is_the_papers_with_step_sizes() -> None:
    study, paper = lunarlander_step_size_study("full"), lunarlander_study("paper")
    assert study.agents.height == 9 * 6 * 30
    assert study.agents["k"].unique().sort().to_list() == [0, 1, 2, 4, 8, 16, 32, 64, 128]
    sizes = study.agents["step_size"].unique().sort().to_list()
    assert len(sizes) == 6
    assert sizes[0] < 1e-3 < sizes[-1]
    assert 1e-3 in sizes  # the paper's
    ratios = [larger / smaller for smaller, larger in pairwise(sizes)]
    assert max(ratios) / min(ratios) < 1.2  # geometric, in round numbers
    assert study.settings == paper.settings
    others = ("agent", "k", "step_size", "seed")
    assert study.agents.drop(others).unique().equals(paper.agents.drop(others).unique())
    assert study.deviations[:3] == (
        "9 values of k instead of 17",
        "6 step sizes instead of 0.001 alone",
        "30 seeds instead of 120",
    )
    assert study.deviations[3:] == paper.deviations


def test_options_replace_those_of_the_scale_and_bad_ones_are_refused() -> None:
    study = lunarlander_step_size_study("full", eval_episodes=5, seeds=4, tf32=True)
    assert (study.settings.eval_episodes, study.settings.eval_envs, study.settings.tf32) == (5, 5, True)
    assert study.agents.height == 9 * 6 * 4
    assert "4 seeds instead of 120" in study.deviations
    with pytest.raises(InvalidInput, match="unknown scale 'paper': write one of smoke, small, full"):
        lunarlander_step_size_study("paper")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="seeds = 1: an interval needs at least 2"):
        lunarlander_step_size_study(seeds=1)


def test_smoke_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    command = ["reproduce", "lunarlander-step-size", "--scale", "smoke", "--out", str(out)]
    main(command)
    said = capsys.readouterr().out
    assert "24 agents" in said  # 3 k x 2 step sizes x 4 seeds
    assert f"figure: {out / 'figures' / 'settings-map.png'}" in said
    assert "but 4 seeds are too few for advice: run at least 10." in said
    assert "To choose both" not in said
    assert {path.stem for path in (out / "figures").iterdir()} == {"settings-map", "auc", "learning-curves"}
    summary = json.loads((out / "summary.json").read_text())
    assert [line for line in summary["verdict"] if line not in said] == []
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["command"] == "valueshare reproduce lunarlander-step-size --scale smoke"
    page = (out / "report.html").read_text()
    assert str(tmp_path) not in page
    assert "2 step sizes instead of 0.001 alone" in page
    _compare_with_plain_python(out, summary)

    check_repeated(command, out, capsys)

    main(["report", str(out), "--resamples", "200", "--figures", "settings-map"])
    said = capsys.readouterr().out
    assert "settings-map" in said
    assert "4 seeds are too few for advice" in said
    page = (out / "report" / "report.html").read_text()
    assert 'id="figure-settings-map"' in page
    assert "the best step size of each k" in page


def _compare_with_plain_python(out: Path, summary: dict) -> None:  # type: ignore[type-arg]
    """The AUC of an agent is the mean of its four evaluations; seeds 0 and 1 choose for 2 and 3, and vice versa."""
    auc: dict[tuple[float, float, int], list[float]] = {}
    scores = pl.read_parquet(out / "scores.parquet")
    for k, size, seed, score in scores.select("k", "step_size", "seed", "score").iter_rows():
        auc.setdefault((k, size, seed), []).append(score)
    assert {len(points) for points in auc.values()} == {4}  # at 0, 100, 200 and 300 steps
    value = {who: mean(points) for who, points in auc.items()}
    (found,) = summary["maps"]
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
        assert row["ci95_low"] <= row["mean"] <= row["ci95_high"]


def test_a_run_without_step_sizes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    agents = pl.DataFrame({"agent": [0, 1], "env": "E", "algorithm": "ib-dqn", "k": [0.0, 1.0], "seed": 0})
    agents.write_parquet(tmp_path / "agents.parquet")
    records = pl.DataFrame({"agent": [0, 1], "step": 0, "score": 1.0})
    records.write_parquet(tmp_path / "records" / "population-0-000000.parquet")
    with pytest.raises(InvalidInput, match="no sweep of k and the step size"):
        write_step_size_report(tmp_path)
