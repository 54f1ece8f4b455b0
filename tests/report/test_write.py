"""The report of results in its folder: figures, tables and page, and what is refused."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import (
    ALGORITHMS,
    synthetic_results,
    write_synthetic_run,
)
from undrawn import undrawn

from valueshare.analysis.importers.results import read_results
from valueshare.cli import main
from valueshare.cli.report import report
from valueshare.errors import InvalidInput
from valueshare.report.data import report_data
from valueshare.report.figure_registry import FIGURES

FEW = 200  # resamples


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_synthetic_run(tmp_path / "run", synthetic_results(2, 2, 4))


def test_a_report_of_a_run_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report((run,), figures=("iqm", "auc-change"), resamples=FEW)
    folder = run / "report"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == [
        *(f"figures/auc-change.{kind}" for kind in ("pdf", "png", "svg")),
        *(f"figures/iqm.{kind}" for kind in ("pdf", "png", "svg")),
        *("report.html", "report.json"),
        *(f"tables/beside-published.{kind}" for kind in ("csv", "md")),
        "tables/evaluations.parquet",
        *(f"tables/scores.{kind}" for kind in ("csv", "md", "tex")),
    ]
    about: dict[str, Any] = json.loads((folder / "report.json").read_text())
    assert set(about["figures"]) == {"iqm", "auc-change"}
    assert "2 games with 2 seeds" in about["figures"]["iqm"]["caption"]
    (source,) = about["sources"]
    assert sorted(about["tables"]) == sorted(file.name for file in (folder / "tables").iterdir())
    assert source["path"] == "run"  # and not where it lies on this machine
    assert str(run) not in (folder / "report.json").read_text()
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[:4] == about["verdict"]  # before the files and the notes
    assert [line.partition(":")[0] for line in lines[4:7]] == [
        str(folder / name) for name in ("figures", "tables", "report.html")
    ]
    assert about["verdict"][0] == "these are synthetic records: no agent was trained"
    assert about["verdict"][3].startswith("Of 6 comparisons")
    assert about["verdict"][1] == "Too few seeds (2) for a conclusion: run at least 5."
    assert "figures: iqm, auc-change" in said
    assert "not from sticky-action runs" in "".join(line for line in lines[7:] if line.startswith("note: "))
    read = read_results(run)
    assert read.table.height == 2 * len(ALGORITHMS) * 2 * 4
    assert report_data(read).is_synthetic  # the mark travels with the folder


def test_the_page_from_the_command_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--figures", "auc-change", "--resamples", str(FEW)]
    main(["report", str(run), *quick])
    page = run / "report" / "report.html"
    assert f"{page}: all of it as one page" in capsys.readouterr().out
    text = page.read_text()
    assert "Of 6 comparisons" in text  # each of seven algorithms but the first
    assert 'id="figure-auc-change"' in text
    main(["report", str(run), *quick, "--compare", "ib-dqn:18,rdq"])
    chosen = page.read_text()
    assert re.search(r"IB-DQN\(n\)</span> is not clearly different from RDQ", chosen)
    assert not re.search(r"Of \d+ comparisons", chosen)


def test_runs_far_below_a_folder_need_a_folder_for_their_report(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--figures", "auc-change", "--resamples", str(FEW)]
    far = tmp_path / "source" / "runs" / "first"
    shutil.copytree(run, far, ignore=shutil.ignore_patterns("report"))
    with pytest.raises(SystemExit):
        main(["report", str(far.parents[1]), *quick])
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"valueshare: {far.parents[1]} is neither a run nor a folder of runs, and has 1 result further below: write "
        "the folder of the report as --out\n"
    )
    assert not (far.parents[1] / "report").exists()
    with undrawn():
        main(["report", str(far.parents[1]), *quick, "--out", str(tmp_path / "report")])
        main(["report", str(far.parent), *quick])
        shard = far.parent / "study" / "shard-1-of-1"
        shutil.move(far, shard)
        main(["report", str(far.parent), *quick])
        main(["report", str(shard), *quick])  # a run folder too


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("ib-dqn:18", "--compare ib-dqn:18: write two, like ib-dqn:4,dqn"),
        ("ib-dqn:7,dqn", "ib-dqn:7 is not in these results: write one of dqn:0, dueling-dqn:0"),
        ("dqn,DQN", "--compare dqn,DQN: both names are of the same algorithm; write two different ones"),
        ("ib-dqn,dqn", "ib-dqn matches several algorithms: write one of dqn:0"),
    ],
)
def test_a_comparison_that_is_not_there_is_refused_before_anything_is_written(
    run: Path, capsys: pytest.CaptureFixture[str], asked: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "--compare", asked])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (run / "report").exists()


@pytest.mark.parametrize(("option", "value"), [("--out", ""), ("--figures", "iqm")])
def test_a_folder_without_a_name_is_none(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(tmp_path)] if option == "--out" else [""]
    with pytest.raises(SystemExit) as ended:
        main(["report", *runs, option, value])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == "valueshare: '' is not a folder: write its name, like runs/first\n"


def test_a_report_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "others.csv"
    whole = pl.DataFrame(
        [("Catch", name, seed, step, seed + step / 10) for name in ("PPO", "A2C")
         for seed in (0, 1) for step in (0, 10, 20, 30)],
        ["environment", "algorithm", "seed", "step", "score"], orient="row",
    )  # fmt: skip
    whole.head(-2).write_csv(file)  # one run ends early
    report((file,), out=tmp_path / "out", resamples=FEW)
    said = capsys.readouterr().out
    assert "figures: learning-curves, geometry" in said
    needs = json.loads((tmp_path / "out" / "report.json").read_text())["not_drawn"]
    assert {*needs, "learning-curves", "geometry"} == set(FIGURES)
    assert all(needs.values())
    assert said.splitlines()[-1].startswith("note: ")  # and not how many figures need other results
    assert needs["iqm"].startswith("normalized scores (Atari games only")
    assert "1 of 4 runs lack evaluations" in said
    # Of steps 10, 20, 30: seed 0 has 1, 2, 3, seed 1 one more each. A2C's seed 1 ended before them.
    row = (tmp_path / "out" / "tables" / "scores.md").read_text().splitlines()[2]
    assert row == "| Catch | 2.0 | **2.5** |"


def test_bad_places_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere does not exist"):
        report((tmp_path / "nowhere",))
    with pytest.raises(InvalidInput, match="no results are given"):
        report(())
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InvalidInput, match=r"file is a file: choose another `out`"):
        report((run,), out=file)
    with pytest.raises(InvalidInput, match=r"cannot write to .*: file name too long; choose another `out`"):
        report((run,), out=tmp_path.joinpath(*["a"] * 3_000))
    assert not (tmp_path / "a").exists()
    for resamples in (0, 10**30):  # the second would be an array too large for any memory
        with pytest.raises(InvalidInput, match=f"`resamples = {resamples}`: write a number from 1 to 1,000,000"):
            report((run,), resamples=resamples)


def test_every_figure_that_cannot_be_drawn_is_named(run: Path) -> None:
    asked = ("iqm", "settings-map", "iqm-rmsprop")
    reasons = "settings-map needs an algorithm with exactly two .*; iqm-rmsprop needs runs with RMSprop beside others"
    with pytest.raises(InvalidInput, match=f"^these results do not allow all of these figures: {reasons}$"):
        report((run,), figures=asked)
    with pytest.raises(InvalidInput, match="there is no figure 'one' or 'two': choose one of iqm, "):
        report((run,), figures=("one", "iqm", "two"))
