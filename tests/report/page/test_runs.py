"""Several runs in one page: their curves are drawn together, each labelled with the name of its run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from run_configs import write_config

from valueshare.analysis.importers.results import read_results
from valueshare.errors import InvalidInput
from valueshare.report.data import report_data
from valueshare.report.page.live import PageUpdater
from valueshare.report.page.results import results_page

Visiting = Callable[..., Any]
ENV = "Here"


def make_run(folder: Path, gain: float, first_seed: int = 0, env: str = ENV, **config: Any) -> Path:
    """A run of DQN and IB-DQN(4), two seeds each: scores are gain * (seed + step), of IB-DQN(4) twice that."""
    (folder / "records").mkdir(parents=True)
    agents = pl.DataFrame(
        [(2 * i + seed, env, "ib-dqn", k, first_seed + seed) for i, k in enumerate((0.0, 4.0)) for seed in (0, 1)],
        ["agent", "env", "algorithm", "k", "seed"], orient="row",
    )  # fmt: skip
    agents.write_parquet(folder / "agents.parquet")
    for phase, step in enumerate((10, 20)):
        scores = (pl.col("seed") + step) * gain * pl.when(pl.col("k") == 0).then(1.0).otherwise(2.0)
        records = agents.select("agent", step=pl.lit(step, pl.Int64), score=scores)
        records.write_parquet(folder / "records" / f"p-{phase}.parquet")
    write_config(folder, {env: {"steps": 20}}, **config)
    (folder / "progress").mkdir()
    (folder / "progress" / "p.json").write_text(json.dumps({"evaluations": [[10, gain], [20, 3 * gain]]}))
    return folder


def write_page(folder: Path, *runs: Path) -> Path:
    (folder / "x.html").write_text(results_page(read_results(runs, repeated=True), resamples=100))
    return folder / "x.html"


def labels(seen: Any) -> list[str]:
    found: list[str] = seen.chart("mean.map((i) => u.series[i].label.textContent)")
    return found


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 390])
def test_runs_of_the_same_agents_are_drawn_together_and_named(tmp_path: Path, visit: Visiting, width: int) -> None:
    file = write_page(tmp_path, make_run(tmp_path / "old", 1.0), make_run(tmp_path / "new code", 2.0))
    seen = visit(viewport={"width": width, "height": 800}).open(file)
    page, runs = seen.page, seen.page.get_by_role("group", name="Runs")
    assert runs.get_by_role("checkbox").count() == 2
    page.get_by_role("group", name="IB-DQN").get_by_role("checkbox", name="k = 4").uncheck(force=True)
    # The mean of seeds 0 and 1 is 0.5: (0.5 + 10) * 2 and (0.5 + 20) * 2 of the new run.
    assert dict(zip(labels(seen), seen.curves(), strict=True)) == {
        "DQN, run new_code2 seeds": pytest.approx([21, 41]),
        "DQN, run old2 seeds": pytest.approx([10.5, 20.5]),
    }
    page.locator("#panel-clock").check()  # every run has its own time
    assert seen.chart("[...u.data[0]]") == pytest.approx([1, 2, 3, 6])
    page.locator("#panel-clock").uncheck()
    runs.get_by_role("checkbox", name="old").uncheck(force=True)
    assert labels(seen) == ["DQN, run new_code2 seeds"]
    again = visit(viewport={"width": width, "height": 800})
    again.page.goto(page.url)
    assert labels(again) == labels(seen)
    runs.get_by_role("checkbox", name="new_code").uncheck(force=True)
    assert seen.curves() == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert (seen.said, again.said) == ([], [])


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 390])
def test_runs_of_other_seeds_are_one_curve_until_they_are_ticked(tmp_path: Path, visit: Visiting, width: int) -> None:
    one, other = make_run(tmp_path / "one", 1.0), make_run(tmp_path / "other", 1.0, first_seed=10)
    third = make_run(tmp_path / "third", 1.0, env="There")
    file = write_page(tmp_path, one, other, third)
    seen = visit(viewport={"width": width, "height": 800}).open(file)
    seen.page.get_by_role("checkbox", name="k = 4").uncheck(force=True)
    assert (labels(seen), seen.curves()) == (["DQN4 seeds"], [pytest.approx([15.5, 25.5])])  # seeds 0, 1, 10, 11
    runs = seen.page.get_by_role("group", name="Single runs")
    runs.get_by_role("checkbox", name="other").check(force=True)
    assert (labels(seen), seen.curves()) == (["DQN, run other2 seeds"], [pytest.approx([20.5, 30.5])])
    runs.get_by_role("checkbox", name="one").check(force=True)
    assert labels(seen) == ["DQN, run one2 seeds", "DQN, run other2 seeds"]
    inks = seen.chart("mean.map((i) => u.series[i].stroke(u, i))")
    assert len(set(inks)) == 2
    again = visit(viewport={"width": width, "height": 800})
    again.page.goto(seen.page.url)
    assert labels(again) == labels(seen)
    seen.page.select_option("#panel-view", label="There")  # where there is one run
    assert runs.count() == 0
    assert labels(seen) == ["DQN2 seeds"]
    assert seen.said == []


def test_agents_in_two_runs_are_compared_by_run(tmp_path: Path) -> None:
    old, new = make_run(tmp_path / "old", 1.0), make_run(tmp_path / "new", 2.0)
    with pytest.raises(InvalidInput, match="occurs twice; give one of the two"):
        read_results([old, new])
    data = report_data(read_results([old, new], repeated=True), 100)
    assert [v.style.label for v in data.variants] == [
        *("DQN, run new", "IB-DQN(4), run new", "DQN, run old", "IB-DQN(4), run old")
    ]
    assert data.runs == ("old", "new")
    records = old / "records" / "p-0.parquet"
    pl.concat([pl.read_parquet(records)] * 2).write_parquet(records)
    with pytest.raises(InvalidInput, match="occurs twice; give each run once"):
        read_results([old, new], repeated=True)


def test_shards_and_files_of_other_programs_are_one_run_each(tmp_path: Path) -> None:
    for number in (1, 2):
        shard = make_run(tmp_path / "study" / f"shard-{number}", 1.0, 2 * (number - 1), shard=f"{number}/3")
        agents = pl.read_parquet(shard / "agents.parquet")
        agents.with_columns(pl.col("agent") + 4 * (number - 1)).write_parquet(shard / "agents.parquet")
        write_config(shard, {ENV: {"steps": 20}}, shard=f"{number}/3")
        for file in (shard / "records").iterdir():
            pl.read_parquet(file).with_columns(pl.col("agent") + 4 * (number - 1)).write_parquet(file)
    assert report_data(read_results(tmp_path / "study")).runs == ()
    alone = make_run(tmp_path / "alone", 1.0, 8)
    for seed in (0, 1):
        scores = tmp_path / "rainbow" / ENV / str(seed) / "scores.txt"
        scores.parent.mkdir(parents=True)
        scores.write_text("steps\tmean\n10\t1.0\n20\t2.0\n")
    data = report_data(read_results([tmp_path / "study", alone, tmp_path / "rainbow"]))
    assert (data.runs, data.names_include_run) == (("study", "alone", "other_results"), False)


def test_a_watched_folder_shows_a_run_that_begins_later(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "old", 1.0)
    follower = PageUpdater([tmp_path / "runs"], resamples=50)
    follower.refresh()
    assert b"run old" not in follower.view.content
    make_run(tmp_path / "runs" / "new", 2.0)
    assert follower.refresh()
    assert b"DQN, run old" in follower.view.content
    assert b"DQN, run new" in follower.view.content
