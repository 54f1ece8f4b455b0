"""A tabular study that is drawn again from its files."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from undrawn import undrawn

from valueshare import __version__, host_memory
from valueshare.cli import main
from valueshare.cli.report import report
from valueshare.errors import InvalidInput
from valueshare.report.tabular import headlines
from valueshare.report.tabular_files import find_tabular, stored_result
from valueshare.tabular.rules import ROW_BYTES

STUDY = ["tabular", "--env", "CliffWalking-v1", "--k", "0", "1", "--step-size", "0.1", "0.3"]
STUDY += ["--seeds", "4", "--steps", "200"]


BEYOND = ", the largest k tried: larger ones may be better"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tabular") / "study"
    with undrawn():
        main([*STUDY, "--out", str(folder)])
    return folder


@pytest.fixture
def study(written: Path, tmp_path: Path) -> Path:
    """A copy of the study, for a test to change."""
    return Path(shutil.copytree(written, tmp_path / "study"))


def test_a_tabular_study_is_drawn_again(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with undrawn():
        main([*STUDY, "--out", str(study), "--overwrite"])
    said = capsys.readouterr().out
    main([*STUDY, "--out", str(study)])
    again = capsys.readouterr().out
    assert "these results are there already" in again
    (line,) = (line for line in again.splitlines() if line.startswith("40 timesteps: mean total reward at best "))
    assert " over that of k = 0 (" in line
    assert line.endswith("), with k = 1")
    assert [line for line in again.splitlines()[1:] if line not in said] == []  # the same, from its files
    first = (study / "report" / "figures" / "increase.svg").read_bytes()
    assert '<figure id="figure-increase" class="wide">' in (study / "report" / "report.html").read_text()
    shutil.rmtree(study / "report")
    report((study,), figures=("increase",))
    assert "Left: the step size of each k" not in capsys.readouterr().out
    assert "Left: the step size of each k" in (study / "report" / "report.html").read_text()
    drawn = {path.name for path in (study / "report" / "figures").iterdir()}
    assert drawn == {"increase.png", "increase.svg", "increase.pdf"}
    assert (study / "report" / "figures" / "increase.svg").read_bytes() == first
    for name in ("iqm", "iqn"):
        with pytest.raises(InvalidInput, match="this study has increase, norms"):
            report((study,), figures=(name,))
    with pytest.raises(InvalidInput, match="report it alone"):
        report((study, study))
    with pytest.raises(InvalidInput, match="it has no verdict for `compare`"):
        report((study,), compare=("a,b",))


@pytest.mark.parametrize(
    ("means", "said"),
    [
        # 100 x (-60 + 100) / |-100|
        ({0: -100, 1: -80, 4: -60}, ("+40.0 % [39.0, 41.0]", "-60.0 against -100.0", f"k = 4{BEYOND}")),
        ({0: -100, 1: -60, 4: -80}, ("+40.0 % [39.0, 41.0]", "-60.0 against -100.0", "k = 1")),
        ({0: -50, 1: -80, 4: -60}, ("-20.0 % [-21.0, -19.0]", "-60.0 against -50.0", "k = 4")),
        ({0: -100, 1: -80, 4: -60, 16: None}, ("+40.0 % [39.0, 41.0]", "-60.0 against -100.0", "k = 4")),  # 16 diverged
    ],
)
def test_the_headline_says_what_grew_and_whether_a_larger_k_may_be_better(
    written: Path, means: dict[int, Any], said: tuple[str, str, str]
) -> None:
    rows = []
    for k, mean in means.items():
        increase = None if mean is None else 100 * (mean - means[0]) / abs(means[0])
        low, high = (None if increase is None else increase + sign * bool(k) for sign in (-1, 1))
        row = {"step_reward": None, "regime": 40, "k": float(k), "mean_score": mean}
        rows.append(row | {"increase_percent": increase, "ci95_low": low, "ci95_high": high})
    made_up = replace(stored_result(find_tabular([written]))[0], figure=pl.DataFrame(rows))
    increased, scores, best = said
    expected = f"40 timesteps: mean total reward at best {increased} over that of k = 0 ({scores}), with {best}"
    assert headlines(made_up) == [expected]


DAMAGES: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "a row is missing": lambda runs: runs.head(-1),
    "a row is there twice": lambda runs: pl.concat([runs.head(-1), runs.head(1)]),
    "a regime is missing": lambda runs: runs.with_columns(step=pl.col("step").replace(200, 199)),
    "k is a name": lambda runs: runs.with_columns(k=pl.lit("one")),
    "no divergence": lambda runs: runs.drop("diverged"),
    "no score": lambda runs: runs.drop("reward_sum"),
    "another case": lambda runs: runs.with_columns(step_reward=pl.lit(-1.0)),
    "no row": lambda runs: runs.clear(),
}


def test_records_that_do_not_fit_are_refused(study: Path) -> None:
    """No checksum covers the records: those that cannot be of the study are refused, by `tabular` as well."""
    file, origin = study / "records" / "runs.parquet", study / "provenance.json"
    runs, stored = pl.read_parquet(file), json.loads(origin.read_text())

    def check_refused() -> None:
        for read in (lambda: report((study,)), lambda: stored_result(find_tabular([study]))):
            with pytest.raises(InvalidInput, match=r"study is damaged \(.*\): run its study again"):
                read()

    for change in DAMAGES.values():
        change(runs).write_parquet(file)
        check_refused()
    file.write_bytes(b"no table")
    check_refused()
    file.unlink()
    check_refused()
    runs.write_parquet(file)
    for seconds in ("soon", "", None, "0", "-1"):
        origin.write_text(json.dumps(stored | {"seconds": seconds}))
        check_refused()
    origin.write_text(json.dumps(stored))
    config = json.loads((study / "config.json").read_text())
    (own,) = config["studies"]
    for studies in (5, ["x"], [{"k": "x"}], [own | {"env": 10**40}], [own | {"seeds": 10**400}], [], [own] * 2):
        (study / "config.json").write_text(json.dumps(config | {"studies": studies}))
        check_refused()


def test_a_study_of_an_earlier_version_is_not_called_damaged(study: Path) -> None:
    file = study / "config.json"
    config = json.loads(file.read_text())
    (own,) = config["studies"]
    own["step_sizes"] = own.pop("step_size")
    file.write_text(json.dumps(config | {"valueshare": "0.1.0", "studies": [own]}))
    with pytest.raises(
        InvalidInput, match=r"another version \(valueshare 0\.1\.0\), with the setting step_sizes: read"
    ):
        report((study,))


@pytest.mark.parametrize("version", [__version__, "\x1b[2J", "x" * 1_000, 7, None])
def test_an_unknown_setting_of_this_version_is_damage(version: object, study: Path) -> None:
    file = study / "config.json"
    config = json.loads(file.read_text())
    config["studies"][0]["hook"] = "rm"
    file.write_text(json.dumps(config | {"valueshare": version}))
    with pytest.raises(InvalidInput, match=r"study is damaged \(unknown setting hook\): run its study again"):
        report((study,))


def test_a_study_that_does_not_fit_into_memory_is_not_called_damaged(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One study takes two thirds of the free memory, and two do not fit."""
    file = study / "config.json"
    config = json.loads(file.read_text())
    (stored,) = find_tabular([study])
    monkeypatch.setattr(host_memory, "free_bytes", lambda: stored.studies[0].rows * ROW_BYTES * 3 // 2)
    file.write_text(json.dumps(config | {"studies": config["studies"] * 2}))
    with pytest.raises(InvalidInput, match=r"rows of results need .* read .*study on a machine with more memory") as no:
        report((study,))
    assert "overwrite" not in str(no.value)


@pytest.mark.parametrize("shard", [7, "x/y", "3/2", "0/0", "", ["1/2"], {}])
def test_a_shard_that_cannot_be_is_refused(shard: object, study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = study / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"shard": shard}))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(study)])
    line = capsys.readouterr().err
    assert (ended.value.code, line.count("\n")) == (2, 1)
    assert f"{study} is damaged (" in line
    assert "): run this shard again with --overwrite" in line


def test_shards_without_their_studies_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        (tmp_path / f"shard-{number}-of-2").mkdir()
        config = {"kind": "tabular", "shard": f"{number}/2"}
        (tmp_path / f"shard-{number}-of-2" / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path)])
    line = capsys.readouterr().err
    assert (ended.value.code, line.count("\n")) == (2, 1)
    assert f"{tmp_path / 'shard-1-of-2'} is damaged (Object missing required field 'studies')" in line


@pytest.mark.parametrize("steps", [10**10, 10**12])
def test_norms_that_take_hours_are_not_computed(steps: int, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four records a run fit any number of steps: their norms would be computed by running all of them again."""
    file = study / "config.json"
    config = json.loads(file.read_text())
    config["studies"][0]["steps"] = steps
    file.write_text(json.dumps(config))
    monkeypatch.setattr("valueshare.experiments.tabular.sweep", lambda *_, **__: pytest.fail("it computes"))
    with pytest.raises(InvalidInput, match=r"its norms take more than 1e\+10 timesteps .* which a report does not"):
        report((study,))
