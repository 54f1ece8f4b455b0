"""The gridworld with more and more actions: from command to page, again from its files, and in shards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from valueshare.cli import main
from valueshare.errors import InvalidInput
from valueshare.report.tabular import headlines
from valueshare.report.tabular import summary as merged_summary
from valueshare.report.tabular_files import find_tabular, stored_result
from valueshare.report.write import write_report

COMMAND = ["reproduce", "gridworld-actions", "--scale", "smoke"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "actions"
    main([*COMMAND, "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def summary(result: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((result / "report" / "report.json").read_text())["numbers"]
    return read


def test_files_and_page(result: Path) -> None:
    found = {str(path.relative_to(result)) for path in result.rglob("*") if path.is_file()}
    figures = (f"report/figures/gain-against-actions.{kind}" for kind in ("png", "svg", "pdf"))
    report = ("report/report.html", "report/report.json", "report/tables/norms.parquet")
    assert found == {"config.json", "provenance.json", "records/runs.parquet", *report, *figures}
    page = (result / "report" / "report.html").read_text()
    for words in ("Gridworld: value-sharing with more and more actions", "valueshare " + " ".join(COMMAND), "0, 1, 4"):
        assert words in page


def test_increases_by_loops_over_the_records(result: Path, summary: dict[str, Any]) -> None:
    """Each half of the seeds at the step size that is best on the other half, with arrays of NumPy alone."""
    runs = pl.read_parquet(result / "records" / "runs.parquet")
    rows = summary["figure_held_out"]
    assert [(row["step_reward"], row["actions"], row["regime"], row["k"]) for row in rows] == [
        (reward, n, regime, k)
        for reward in (-1.0, 0.0)
        for n in (4, 32)
        for regime in (500, 1_000, 2_500, 5_000)
        for k in (0.0, 1.0, float(n))
    ]
    for row in rows:
        own = runs.filter(pl.col("step_reward") == row["step_reward"], pl.col("actions") == row["actions"])
        means = []
        for k in (0.0, row["k"]):
            scores: dict[float, list[float | None]] = {}
            cell = own.filter(pl.col("k") == k, pl.col("step") == row["regime"]).sort("step_size", "seed")
            for size, episodes in cell.select("step_size", "episodes").iter_rows():
                scores.setdefault(size, []).append(episodes)
            kept = [np.array(each, float) for each in scores.values() if None not in each]  # a row per step size
            halves = np.array(kept).reshape(len(kept), 2, 2)  # step sizes, halves, seeds of a half
            best = halves.mean(axis=2).argmax(axis=0)  # of each half
            means.append(np.mean([halves[best[0], 1], halves[best[1], 0]]))
        assert row["increase_percent"] == pytest.approx(100 * (means[1] / means[0] - 1), abs=1e-9)
        assert row["mean_episodes"] == pytest.approx(means[1])


@pytest.mark.slow
def test_it_is_drawn_again_from_its_files(result: Path, tmp_path: Path) -> None:
    written = write_report([result], tmp_path / "again")
    assert written.figures == ("gain-against-actions",)
    name = "figures/gain-against-actions.svg"
    assert (tmp_path / "again" / name).read_bytes() == (result / "report" / name).read_bytes()
    with pytest.raises(InvalidInput, match="of other results: this study has gain-against-actions"):
        write_report([result], tmp_path / "other", ["iqm"])


def test_shards_are_the_whole(result: Path, summary: dict[str, Any], tmp_path: Path) -> None:
    for shard in ("1/2", "2/2"):
        main([*COMMAND, "--shard", shard, "--out", str(tmp_path)])
    whole, _ = stored_result(find_tabular([tmp_path]))
    assert_frame_equal(whole.runs, pl.read_parquet(result / "records" / "runs.parquet"), check_exact=True)
    assert merged_summary(whole)["figure_held_out"] == summary["figure_held_out"]


def test_headlines_name_the_fewest_and_the_most_actions(result: Path) -> None:
    """Of n = 4, 8 and 16, with an increase of n + k; 16 has no interval."""
    rows: list[dict[str, Any]] = [
        {"step_reward": -1.0, "actions": n, "regime": regime, "k": k, "increase_percent": n + k}
        | {"ci95_low": None if n == 16 else 0.0, "ci95_high": 99.0}
        for n in (4, 8, 16)
        for regime in (500, 1_000)
        for k in (0.0, 1.0, float(n))
    ]
    made_up = replace(stored_result(find_tabular([result]))[0], held_out=pl.DataFrame(rows))
    (line,) = headlines(made_up)
    words = "mean episodes, k = n over k = 0: +8.0 % [0.0, 99.0] with 4 actions, +16.0 % [0.0, 99.0] with 8 actions"
    assert line == f"-1 per step, 1,000 timesteps: {words}"
