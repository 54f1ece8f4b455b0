"""The LunarLander study: its scales, its verdict, and the smoke scale from command to page."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from repeated import check_repeated

from valueshare.analysis.importers.formats import read_agents, read_run_folder
from valueshare.cli import main
from valueshare.errors import InvalidInput
from valueshare.experiments.lunarlander import lunarlander_study
from valueshare.report.sensitivity import compared, summarise, tabulate, write_sweep_report

K = (0.0, 16.0, 4_096.0)


def make_run(folder: Path, *, seeds: int = 4, k: tuple[float, ...] = K, **extra: Any) -> Path:
    """A run with made-up scores: k = 0 around 100, k = 16 around 200, k = 4,096 around -200.

    Seed s is off by s, at two evaluations, the first of them 50 lower; so the AUC of a seed is its
    level + s - 25.
    """
    level = {0.0: 100.0, 16.0: 200.0, 4_096.0: -200.0}
    agents = (
        pl.DataFrame([{"k": value, "seed": seed} for value in k for seed in range(seeds)])
        .with_row_index("agent")
        .with_columns(env=pl.lit("LunarLander-v3"), algorithm=pl.lit("ib-dqn"))
    )
    records = [
        {
            "agent": row["agent"],
            "step": step,
            "score": level[row["k"]] + row["seed"] - (50.0 if step == 0 else 0.0),
            "episodes": 2,
            "overestimation": 1e6 if step == 0 else row["k"],
            "relative_action_gap": None if step == 0 else 0.5,
            "diverged_at": 7 if row["k"] == 4_096 and row["seed"] == 1 and step else None,
            **extra,
        }
        for row in agents.to_dicts()
        for step in (0, 100)
    ]
    (folder / "records").mkdir(parents=True)
    agents.with_columns(pl.col("agent").cast(pl.Int64)).write_parquet(folder / "agents.parquet")
    schema = {"diverged_at": pl.Int64, "relative_action_gap": pl.Float64, "score": pl.Float64}
    table = pl.DataFrame(records, schema_overrides=schema).with_columns(pl.col("agent").cast(pl.Int64))
    for step, part in table.partition_by("step", as_dict=True).items():
        part.write_parquet(folder / "records" / f"population-0-{step[0]:06d}.parquet")
    return folder


def summary_of(run: Path) -> dict[str, Any]:
    """The text of the report, without its figures."""
    return summarise(tabulate(read_agents(run), read_run_folder(run).table))


def test_the_papers_scale_is_the_papers() -> None:
    study = lunarlander_study("paper")
    settings = study.settings
    assert study.agents.height == 2_040  # 17 k x 120 seeds
    assert study.agents["k"].unique().sort().to_list() == [0.0, *(2.0**i for i in range(16))]
    assert study.agents["step_size"].unique().to_list() == [1e-3]
    assert (settings.steps, settings.eval_interval, settings.eval_episodes) == (
        100_000,
        10_000,
        100,
    )
    assert (settings.hidden, settings.batch_size, settings.update_interval) == ((256, 256), 128, 1)
    assert not any("instead of" in sentence for sentence in study.deviations)
    assert len(study.deviations) == 3  # the engine's own: phases, overlap, and replacement


def test_every_departure_from_the_paper_is_said() -> None:
    said = lunarlander_study("paper", eval_episodes=10, seeds=8, tf32=True).deviations
    assert said[:3] == (
        "eval episodes 10 instead of 100",
        "tf32 True instead of False",
        "8 seeds instead of 120",
    )
    small = lunarlander_study("small")
    assert "hidden 128-128 instead of 256-256" in small.deviations
    assert "steps 50,000 instead of 100,000" in small.deviations
    assert "5 values of k instead of 17" in small.deviations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "huge"}, "unknown scale 'huge': write one of smoke, small, paper"),
        ({"eval_episodes": 0}, "eval-episodes = 0"),
        ({"seeds": 1}, "seeds = 1: an interval needs at least 2"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        lunarlander_study(**options)


def test_verdict_and_numbers_of_a_made_up_run(tmp_path: Path) -> None:
    summary = summary_of(make_run(tmp_path / "run"))
    auc = {row["k"]: row for row in summary["auc"]}
    # Seeds 0..3: level - 25 + mean(0, 1, 2, 3) = level - 23.5.
    assert {k: row["mean"] for k, row in auc.items()} == {0.0: 76.5, 16.0: 176.5, 4_096.0: -223.5}
    assert 75 <= auc[0.0]["ci95_low"] < 76.5 < auc[0.0]["ci95_high"] <= 78
    assert summary["k_1_to_32_above_plain"] == [16.0]
    assert summary["k_from_4096_below_plain"] == [4_096.0]
    # Before training nothing is overestimated yet: the million of step 0 is not in here.
    over = {row["k"]: row["mean"] for row in summary["overestimation"]}
    assert over == {0.0: 0.0, 16.0: 16.0, 4_096.0: 4_096.0}
    assert [row["mean"] for row in summary["relative_action_gap"]] == [0.5] * 3
    assert summary["left_out"] == {
        "agents": 12,
        "agents_without_auc": 0,
        "agents_diverged": 1,
        "evaluations": 24,
        "evaluations_without_finished_episode": 0,
    }
    assert "; 1 agent diverged (" in summary["verdict"][-1]


def test_the_same_run_gives_the_same_files(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_sweep_report(run, tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*")]
    assert len(files) == 5 * 3 + 3  # figures in three formats; summary, scores, page
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_missing_evaluations_are_left_out_and_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    path = run / "records" / "population-0-000100.parquet"
    last = pl.read_parquet(path)
    nothing = pl.when(pl.col("agent") == 0).then(None).otherwise(pl.col("score"))
    last.with_columns(score=nothing).filter(pl.col("agent") != 5).write_parquet(path)
    summary = summary_of(run)
    # Agent 0 (k = 0, seed 0) finished no episode at the end; agent 5 (k = 16, seed 1) has no
    # record of it.
    auc = {row["k"]: row for row in summary["auc"]}
    assert auc[0.0]["mean"] == pytest.approx(100 - 25 + (1 + 2 + 3) / 3)
    assert auc[16.0]["mean"] == pytest.approx(200 - 25 + (0 + 2 + 3) / 3)
    assert [auc[k]["left_out"] for k in K] == [1, 1, 0]
    assert summary["left_out"]["agents_without_auc"] == 2
    assert summary["left_out"]["evaluations_without_finished_episode"] == 1
    assert summary["verdict"][-1].startswith("2 of 12 agents have no AUC")


def test_overlapping_intervals_are_no_difference() -> None:
    table = pl.DataFrame(
        {
            "k": [0.0, 1.0, 2.0, 4.0],
            "ci95_low": [10.0, 19.0, 21.0, 1.0],
            "ci95_high": [20.0, 30.0, 40.0, 9.0],
        }
    )
    assert compared(table) == ([2.0], [4.0])
    assert compared(table.filter(pl.col("k") > 0)) == ([], [])


def test_a_run_without_k_0_says_that_nothing_can_be_compared(tmp_path: Path) -> None:
    summary = summary_of(make_run(tmp_path / "run", k=(16.0, 4_096.0)))
    assert summary["verdict"][0].startswith("There is no interval for k = 0")


def test_names_from_data_stay_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "provenance.json").write_text(json.dumps({"command": "<script>alert(1)</script>"}))
    write_sweep_report(run)
    html = (run / "report.html").read_text()
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html


def test_folders_that_are_no_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"agents\.parquet cannot be read"):
        write_sweep_report(tmp_path)
    run = make_run(tmp_path / "run")
    pl.read_parquet(run / "agents.parquet").head(3).write_parquet(run / "agents.parquet")
    with pytest.raises(InvalidInput, match="18 records are of agents not in"):
        write_sweep_report(run)
    for file in (run / "records").iterdir():
        file.unlink()
    with pytest.raises(InvalidInput, match="holds no records"):
        write_sweep_report(run)


def test_an_agent_without_any_record_is_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    agents = pl.read_parquet(run / "agents.parquet")
    evaluations = read_run_folder(run).table
    tables = tabulate(agents, evaluations.filter(pl.col("agent") != 0))
    assert tables["auc"]["agents"].to_list() == [3, 4, 4]
    assert tables["auc"]["left_out"].to_list() == [1, 0, 0]


def test_smoke_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lunarlander"
    command = ["reproduce", "lunarlander", "--scale", "smoke", "--out", str(out)]
    main(command)
    said = capsys.readouterr().out
    assert "6 agents" in said
    assert f"page:   {out / 'report.html'}" in said
    summary = json.loads((out / "summary.json").read_text())
    assert [row["k"] for row in summary["auc"]] == [0.0, 16.0, 32_768.0]
    assert summary["evaluation_points"] == 4  # at 0, 100, 200 and 300 steps
    scores = pl.read_parquet(out / "scores.parquet")
    assert scores.height == 6 * 4
    by_hand = scores.filter(pl.col("k") == 0)["score"].mean()  # equally many points a seed
    assert summary["auc"][0]["mean"] == pytest.approx(by_hand, rel=1e-6)
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["command"] == "valueshare reproduce lunarlander --scale smoke"
    assert str(tmp_path) not in (out / "report.html").read_text()

    check_repeated(command, out, capsys)
