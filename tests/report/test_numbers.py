"""The numbers in report.json, by hand."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from valueshare.analysis.importers.results import read_results
from valueshare.cli.report import report
from valueshare.report.data import report_data
from valueshare.report.numbers import evaluations, numbers

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


def test_means_by_k(tmp_path: Path) -> None:
    results = read_results(make_run(tmp_path / "run"))
    found = numbers(report_data(results, 500))
    assert found.keys() == {"by_k"}
    scores = {row["k"]: row for row in found["by_k"]["score"]}
    # Seeds 0..3: level - 25 + mean(0, 1, 2, 3) = level - 23.5.
    assert {k: row["mean"] for k, row in scores.items()} == {0.0: 76.5, 16.0: 176.5, 4_096.0: -223.5}
    assert 75 <= scores[0.0]["ci95_low"] < 76.5 < scores[0.0]["ci95_high"] <= 78
    # Before training nothing is overestimated yet: the million of step 0 is not in here.
    assert [row["mean"] for row in found["by_k"]["overestimation"]] == [*K]
    assert [row["mean"] for row in found["by_k"]["relative_action_gap"]] == [0.5] * 3


def test_what_json_cannot_say_is_null(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", overestimation=float("inf"))
    report((run,), figures=("learning-curves",), resamples=50)
    found = json.loads((run / "report" / "report.json").read_text())["numbers"]["by_k"]
    assert [row["mean"] for row in found["overestimation"]] == [None] * 3


def test_a_row_per_evaluation(tmp_path: Path) -> None:
    table = evaluations(read_results(make_run(tmp_path / "run")).table)
    assert table.height == 24
    assert table.columns[:5] == ["env", "algorithm", "k", "optimizer", "seed"]
    assert table.filter(pl.col("diverged_at") == 7).select("k", "seed", "step").rows() == [(4_096.0, 1, 100)]


@pytest.mark.parametrize("k", [(0.0, 16.0), (0.0,)])
def test_few_k_have_no_sweep(tmp_path: Path, k: tuple[float, ...]) -> None:
    assert numbers(report_data(read_results(make_run(tmp_path / "run", k=k)), 50)) == {}


def test_names_from_data_stay_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "provenance.json").write_text(json.dumps({"command": "<script>alert(1)</script>"}))
    report((run,), figures=("learning-curves",), resamples=50)
    html = (run / "report" / "report.html").read_text()
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
