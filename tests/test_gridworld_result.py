"""The gridworld result: every file, the numbers in them, and the paper's claims."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from valueshare import InvalidInput, gridworld, sweep
from valueshare.benchmarks.numpy_learner import completed_episodes
from valueshare.cli import main
from valueshare.experiments.tabular import TabularResult, summarize, sweep_studies
from valueshare.experiments.tabular_designs import TabularStudy, gridworld_studies, step_size_grid
from valueshare.runs.launcher_options import LauncherOptions

FIGURE_KEYS = [
    "step_reward", "regime", "k", "increase_percent", "ci95_low", "ci95_high", "best_step_size",
    "mean_episodes",
]  # fmt: skip
SMOKE_KS, REGIMES = [0.0, 0.4, 1.6, 6.4], [500, 1_000, 2_500, 5_000]
FORMATS = ("png", "svg", "pdf")
USER, SECRET = "somebody-9f3a1c", "sentinel-77ab02"
WITHOUT_PYTORCH = """
import runpy, sys
sys.modules["torch"] = None
runpy.run_module("valueshare", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smoke-scale result, written by the command line into a path with spaces, where PyTorch cannot be imported."""
    folder = tmp_path_factory.mktemp("made here") / "the gridworld"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYTORCH, "reproduce", "gridworld", "--scale", "smoke", "--out", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"USER": USER, "LOGNAME": USER, "SECRET_TOKEN": SECRET},
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0] == "448 runs, 2,240,000 timesteps"  # 2 x 4 k x 7 step sizes x 8 seeds x 5,000
    assert [line.partition(",")[0] for line in said[2:4]] == ["-1 per step", "0 per step"]  # after the speed
    assert said[4:] == [
        f"{folder}/report/figures: gridworld, norms",
        f"{folder}/report/report.html: all of it as one page, with notes on how to read it",
    ]
    return folder


@pytest.fixture(scope="module")
def summary(result: Path) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    read = json.loads((result / "report" / "report.json").read_text(), parse_constant=refuse)["numbers"]
    assert isinstance(read, dict)
    return read


def run_studies(studies: Sequence[TabularStudy]) -> TabularResult:
    return summarize(studies, *sweep_studies(studies, progress=False, launcher=LauncherOptions()))


@pytest.fixture(scope="module")
def runs(result: Path) -> pl.DataFrame:
    return pl.read_parquet(result / "records" / "runs.parquet")


# Smoke scale.


def test_every_file_is_there(result: Path) -> None:
    found = {str(path.relative_to(result)) for path in result.rglob("*") if path.is_file()}
    assert found == {
        "config.json",
        "provenance.json",
        "records/runs.parquet",
        "report/report.html",
        "report/report.json",
        "report/tables/norms.parquet",
        *(f"report/figures/{name}.{kind}" for name in ("gridworld", "norms") for kind in FORMATS),
    }
    assert list(result.parent.iterdir()) == [result]  # and nothing beside it


def test_nothing_written_tells_of_the_machine_s_folders_or_variables(result: Path) -> None:
    private = (str(result.parent), str(Path.home()) + "/", USER, SECRET, str(Path.cwd()))
    for path in result.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for text in private:
            assert text.encode() not in content, f"{path.name} holds {text}"


def test_the_summary_has_the_promised_keys(summary: dict[str, Any]) -> None:
    for name in ("figure", "figure_held_out"):
        rows = summary[name]
        assert [list(row) for row in rows] == [FIGURE_KEYS] * (2 * 4 * 4)
        assert [(row["step_reward"], row["regime"], row["k"]) for row in rows] == [
            (reward, regime, k) for reward in (-1.0, 0.0) for regime in REGIMES for k in SMOKE_KS
        ]
    assert summary["timesteps"] == 2_240_000
    assert summary["timesteps_per_second"] == pytest.approx(2_240_000 / summary["seconds"], rel=0.1)
    assert summary["timesteps_per_second"] > 100_000


def test_records_are_tidy(runs: pl.DataFrame) -> None:
    run = ["step_reward", "k", "step_size", "seed", "step"]
    assert len(runs) == runs.unique(run).height == 2 * 4 * 7 * 8 * 4
    assert runs["step"].unique().sort().to_list() == REGIMES
    assert runs["k"].unique().sort().to_list() == SMOKE_KS
    floats = runs.select(pl.col(pl.Float64))
    assert floats.width == 10
    assert floats.select(pl.all().drop_nulls().is_finite().all()).row(0) == (True,) * 10
    assert runs.filter("diverged")["episodes"].null_count() == runs["diverged"].sum()


@pytest.mark.parametrize("step_reward", [-1.0, 0.0])
def test_records_are_those_of_sweep(runs: pl.DataFrame, step_reward: float) -> None:
    mdp = gridworld(step_reward=step_reward)
    sizes = np.exp(np.linspace(-6, 0, 7))
    table = sweep(mdp, "q-learning", SMOKE_KS, sizes.tolist(), 8, 5_000, record_at=REGIMES)
    own = runs.filter(pl.col("step_reward") == step_reward).drop("step_reward")
    assert_frame_equal(own, table, check_exact=True)


def test_the_summary_is_that_of_the_records(summary: dict[str, Any], runs: pl.DataFrame) -> None:
    """Means, best step sizes and increases again, by loops over arrays."""
    for row in summary["figure"]:
        means = {}
        for k in (0.0, row["k"]):
            own = runs.filter(
                (pl.col("step_reward") == row["step_reward"]) & (pl.col("step") == row["regime"]) & (pl.col("k") == k)
            )
            at: dict[float, list[Any]] = {}
            for size, episodes in own.select("step_size", "episodes").iter_rows():
                at.setdefault(size, []).append(episodes)
            means[k] = max(
                (float(np.mean(episodes)), -size) for size, episodes in at.items()
                if None not in episodes
            )  # fmt: skip
        best, size = means[row["k"]]
        assert row["mean_episodes"] == pytest.approx(best)
        assert row["best_step_size"] == -size
        assert row["increase_percent"] == pytest.approx(100 * (best / means[0.0][0] - 1), abs=1e-9)
        assert row["ci95_low"] <= row["increase_percent"] <= row["ci95_high"]


def test_norms_are_those_of_the_best_step_size_at_the_end(result: Path, summary: dict[str, Any]) -> None:
    norms = pl.read_parquet(result / "report" / "tables" / "norms.parquet")
    ends = [row for row in summary["figure"] if row["regime"] == 5_000]
    chosen = norms.select("step_reward", "k", "step_size").unique(maintain_order=True).rows()
    assert chosen == [(row["step_reward"], row["k"], row["best_step_size"]) for row in ends]
    assert norms.group_by("step_reward", "k").len()["len"].to_list() == [61] * 8
    reward, k, size = chosen[2]
    table = sweep(gridworld(step_reward=reward), k=k, step_size=size, seeds=8, steps=5_000, record_at=[2_500])
    at = norms.filter((pl.col("step_reward") == reward) & (pl.col("k") == k) & (pl.col("step") == 2_500))
    for name in ("norm_q", "norm_u", "norm_z"):
        values = table[name].to_numpy()
        assert at[name].item() == pytest.approx(values.mean())
        means = values[np.random.default_rng(0).integers(0, 8, (20_000, 8))].mean(1)
        for end, bound in zip(("low", "high"), np.quantile(means, (0.025, 0.975)), strict=True):
            assert at[f"{name}_ci95_{end}"].item() == pytest.approx(bound, abs=0.1 * means.std())
    shared = norms.filter((pl.col("k") > 0) & (pl.col("step") > 0))
    assert (shared["norm_z"] < shared["norm_u"]).all()  # |z| < |u| < |q|: Proposition 3.3
    assert (shared["norm_u"] < shared["norm_q"]).all()


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"  # cells of a table apart


def test_the_page_stands_alone(result: Path) -> None:
    page = Page((result / "report" / "report.html").read_text(encoding="utf-8"))
    assert not page.tags & {"script", "link", "iframe", "object"}
    drawings = [unquote(source.removeprefix("data:image/svg+xml,")) for source in page.sources]
    figures = [(result / "report" / "figures" / f"{name}.svg").read_text() for name in ("gridworld", "norms")]
    assert drawings == [svg.replace("\n", " ") for svg in figures]
    assert "url(" not in page.text


def test_the_page_says_what_it_shows(result: Path, summary: dict[str, Any]) -> None:
    text = Page((result / "report" / "report.html").read_text(encoding="utf-8")).text
    for line in (
        "valueshare reproduce gridworld --scale smoke",
        "With that reward, no increase stands out here",
        "did best on the very seeds that are shown, as in the paper",
        "2,240,000 timesteps of q-learning",
    ):
        assert line in text
    numbers = {f"{row['increase_percent']:.4g}" for row in summary["figure"]}
    cells = set(re.findall(r"[-\d.e+]+", text.replace("−", "-")))
    assert numbers <= cells


def test_settings_and_origin_are_kept(result: Path) -> None:
    config = json.loads((result / "config.json").read_text())
    assert [study["step_reward"] for study in config["studies"]] == [-1.0, 0.0]
    assert config["studies"][0]["regimes"] == REGIMES
    origin = json.loads((result / "provenance.json").read_text())
    assert origin["command"] == "valueshare reproduce gridworld --scale smoke"
    assert origin["libraries"]["numpy"] == np.__version__
    assert set(origin) == {
        "command", "valueshare", "commit", "finished", "python", "machine", "libraries", "seconds"
    }  # fmt: skip


# Studies as data.


def test_the_paper_s_settings() -> None:
    with_penalty, without = gridworld_studies("paper")
    assert (with_penalty.step_reward, without.step_reward) == (-1.0, 0.0)
    for study in (with_penalty, without):
        assert study.k == (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
        assert study.timesteps == 9 * 61 * 128 * 5_000 == 351_360_000
        assert study.record_steps == (500, 1_000, 2_500, 5_000)
        assert (study.epsilon, study.discount, study.seeds) == (0.1, 0.95, 128)
        np.testing.assert_allclose(study.step_size, np.exp(np.arange(-60, 1) / 10))
    with pytest.raises(InvalidInput, match="unknown scale 'big': write one of paper, smoke"):
        gridworld_studies("big")  # type: ignore[arg-type]


def test_the_step_size_grid_ends_at_one() -> None:
    grid = step_size_grid(2.0)
    np.testing.assert_allclose(grid, [math.exp(-6), math.exp(-4), math.exp(-2), 1.0])
    assert step_size_grid(0.1)[-1] == 1.0


@pytest.mark.parametrize(
    ("study", "record_steps", "measured", "case"),
    [
        (TabularStudy(steps=1_000), (100, 200, 500, 1_000), "episodes", 0.0),
        (TabularStudy(steps=1_000, regimes=(700, 30)), (30, 700), "episodes", 0.0),
        (TabularStudy(steps=3), (1, 3), "episodes", 0.0),
        (
            TabularStudy(measure="reward", step_reward=-1.0),
            (500, 1_000, 2_500, 5_000),
            "reward",
            -1,
        ),
        (TabularStudy(env="Taxi-v4", steps=10), (1, 2, 5, 10), "reward", None),
    ],
)
def test_what_a_study_measures_and_when(
    study: TabularStudy, record_steps: tuple[int, ...], measured: str, case: float | None
) -> None:
    assert (study.record_steps, study.measured, study.gridworld_reward) == (record_steps, measured, case)
    assert study.settings()["measure"] == measured


def test_every_run_diverging_is_said() -> None:
    study = TabularStudy(k=(1e5,), step_size=(1.0,), seeds=2, steps=2_000)
    with pytest.raises(InvalidInput, match="every run diverged within 2,000 timesteps"):
        run_studies([study])


def test_a_k_that_diverges_leaves_the_others_be() -> None:
    study = TabularStudy(k=(0.0, 1.6, 1e5), step_size=(0.1, 1.0), seeds=4, steps=2_000)
    result = run_studies([study])
    at_the_end = result.figure.filter(pl.col("regime") == 2_000)
    assert at_the_end["best_step_size"].is_null().to_list() == [False, False, True]
    assert at_the_end["diverged_step_sizes"].to_list()[::2] == [0, 2]
    assert result.norms["k"].unique().sort().to_list() == [0.0, 1.6]


# An independent learner, and the paper.


@pytest.mark.parametrize(("k", "step_size"), [pytest.param(0.0, 0.3, marks=pytest.mark.slow), (3.2, 0.1)])
def test_a_numpy_learner_has_the_same_statistics(k: float, step_size: float) -> None:
    """Mean episodes within 1,500 steps of 40 plain runs and of 400 compiled ones."""
    plain = np.array([completed_episodes(k, step_size, seed, 1_500, -1.0) for seed in range(40)])
    mdp = gridworld(step_reward=-1.0)
    ours = sweep(mdp, k=k, step_size=step_size, seeds=400, steps=1_500)["episodes"].to_numpy()
    error = math.sqrt(plain.var(ddof=1) / len(plain) + ours.var(ddof=1) / len(ours))
    assert abs(plain.mean() - ours.mean()) < 4 * error
    assert 3 * error < 0.1 * ours.mean()  # and that says something


@pytest.mark.slow
def test_the_paper_s_claims_at_the_paper_s_scale() -> None:
    """More episodes than Q-learning with every k >= 1.6, less so the longer it learns."""
    result = run_studies(gridworld_studies("paper"))
    assert len(result.runs) == 2 * 9 * 61 * 128 * 4
    table = {
        (reward, regime, k): increase
        for reward, regime, k, increase in result.figure.select(
            "step_reward", "regime", "k", "increase_percent"
        ).iter_rows()
    }
    for k in (1.6, 3.2, 6.4, 12.8):
        assert table[-1.0, 1_000, k] >= 17.0
        assert table[-1.0, 500, k] > table[-1.0, 2_500, k] > table[-1.0, 5_000, k] > 0
    for k in result.studies[0].k:
        assert abs(table[0.0, 1_000, k]) <= 5.0  # without a step reward the effect is absent
    floats = result.runs.select(pl.col(pl.Float64))
    assert all(floats.select(pl.all().drop_nulls().is_finite().all()).row(0))
    chosen = result.held_out.filter(pl.col("step_reward") == -1.0, pl.col("regime") == 1_000)
    assert chosen.filter(pl.col("k") >= 1.6)["ci95_low"].min() > 10  # type: ignore[operator]


@pytest.mark.parametrize("study", ["gridworld", "gridworld-actions"])
def test_a_smoke_test_has_a_folder_beside_that_of_the_whole_study(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole study is there, and stays: it takes a minute and more."""
    written: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys.modules["valueshare.cli.tabular"], "_run", lambda studies, folder, *_, **__: written.append(folder)
    )
    for scale in ((), ("--scale", "smoke")):
        main(["reproduce", study, *scale])
    assert written == [f"results/{study}", f"results/{study}-smoke"]
