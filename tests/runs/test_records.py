"""Records are read of finished phases alone: those that a manifest names."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from valueshare import open_run, records
from valueshare.errors import InvalidInput
from valueshare.files import file_digest
from valueshare.records import read_tables
from valueshare.runs.policies import read_policy
from valueshare.schema import Progress, body_checksum


def record(folder: Path, phase: int) -> Path:
    """The records of a phase, before its manifest: one row, whose step is the phase."""
    path = folder / "records" / f"population-0-{phase:06d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"agent": [0], "step": [phase]}).write_parquet(path)
    return path


def manifest(folder: Path, *phases: int) -> Path:
    """The manifest of the last of these phases, which names the records of all of them."""
    paths = [folder / "records" / f"population-0-{phase:06d}.parquet" for phase in phases]
    manifest = folder / "checkpoints" / "population-0" / f"checkpoint-{phases[-1]:06d}.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    named = {path.name: file_digest(path) for path in paths}
    body = {"phase": phases[-1], "records": named}
    manifest.write_text(json.dumps({"checksum": body_checksum(body), **body}))
    return manifest


def steps(folder: Path, *, skip_damaged: bool = False) -> list[int]:
    return [table["step"][0] for table in read_tables(folder, skip_damaged=skip_damaged)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Phases 0 to 2 are finished; phase 3 was cut off before its manifest."""
    for phase in range(4):
        record(tmp_path, phase)
    manifest(tmp_path, 0, 1)
    manifest(tmp_path, 0, 1, 2)
    return tmp_path


def test_a_phase_without_a_manifest_is_not_read(folder: Path) -> None:
    assert steps(folder) == [0, 1, 2]
    manifest(folder, 0, 1, 2, 3)
    assert steps(folder) == [0, 1, 2, 3]


def test_before_the_first_manifest_there_are_none(tmp_path: Path) -> None:
    record(tmp_path, 0)
    (tmp_path / "checkpoints" / "population-0").mkdir(parents=True)
    assert steps(tmp_path) == []


def test_a_damaged_manifest_leaves_it_to_the_one_before_and_that_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = folder / "checkpoints" / "population-0" / "checkpoint-000002.json"
    whole = json.loads(newest.read_text())
    fewer = whole | {"records": {}}  # valid, and not what was written
    of_before = newest.with_name("checkpoint-000001.json").read_text()
    other = {"phase": 2, "records": {"population-1-000000.parquet": "0" * 64}}
    signed = json.dumps({"checksum": body_checksum(other), **other})
    for text in ("", "[1, 2]", '{"records": 3}', "{}", json.dumps(fewer), of_before, signed):
        newest.write_text(text)
        caplog.clear()
        assert steps(folder) == [0, 1]
        (said,) = caplog.messages
        assert said.startswith(f"{newest} is damaged (")
        assert said.endswith("): the phases before it are read")


def test_without_an_intact_manifest_every_command_says_the_same(
    uninterrupted: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    checkpoints = folder / "checkpoints" / "population-0"
    for path in checkpoints.glob("checkpoint-*.json"):
        path.write_text(path.read_text().replace('"phase": ', '"phase": 1'))
    why = "(checkpoint-000003.json: its checksum does not match): start the run again in a new folder"
    said = f"valueshare: no checkpoint in {checkpoints} is intact {why}"
    reportable = f"; a copy of {folder} without checkpoints can still be reported"
    for command in ("report", "best"):
        assert cli(command, folder) == (2, "", f"{said}{reportable}\n")
    for command in ("resume", "evaluate"):
        code, _, err = cli(command, folder)
        assert (code, err.splitlines()[-1]) == (2, said)
    shutil.rmtree(folder / "checkpoints")
    assert len(read_tables(folder)) == len(read_tables(uninterrupted))


def test_phases_with_more_digits_are_newer(tmp_path: Path) -> None:
    for phase in (999_999, 1_000_000):
        record(tmp_path, phase)
    manifest(tmp_path, 999_999)
    manifest(tmp_path, 999_999, 1_000_000)
    assert steps(tmp_path) == [999_999, 1_000_000]


def test_progress_is_read_once_per_population(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "progress").mkdir()
    (folder / "progress" / "population-0.json").write_text('{"evaluations": [[1, 2.5]]}')
    names, read = [], records.read_progress

    def noted(folder: Path, population: str) -> Progress:
        names.append(population)
        return read(folder, population)

    monkeypatch.setattr(records, "read_progress", noted)
    seconds = [table["seconds"].to_list() for table in read_tables(folder, seconds=True)]
    assert (seconds, names) == ([[0.0], [2.5], [None]], ["population-0"])


def test_a_copy_without_checkpoints_has_all_its_records(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints")
    assert steps(folder) == [0, 1, 2, 3]


def test_damage_is_found_by_the_checksum_and_said(folder: Path) -> None:
    # Whole as a Parquet file, with another number in it: no reader but ours would notice.
    path = folder / "records" / "population-0-000001.parquet"
    pl.DataFrame({"agent": [0], "step": [77]}).write_parquet(path)
    manifest(folder, 0)
    moved = folder.rename(folder.with_name("my run"))
    with pytest.raises(InvalidInput, match=rf"000001\.parquet is damaged: valueshare resume '{moved}' makes"):
        steps(moved)
    moved.rename(folder)
    assert steps(folder, skip_damaged=True) == [0, 2]
    path.unlink()
    with pytest.raises(InvalidInput, match="is damaged"):
        steps(folder)


def test_damage_from_before_every_checkpoint_is_refused_before_anything_starts(
    uninterrupted: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    damaged = folder / "records" / "population-0-000000.parquet"
    damaged.write_bytes(b"damaged")
    said = f"valueshare: {damaged} is damaged, and no checkpoint is from before it: start the run again in a new folder"
    code, out, err = cli("resume", folder)
    assert (code, out) == (2, "")
    assert err == cli("best", folder)[2] == f"{said}; its agents can still be played\n"
    assert read_policy(folder, 0).steps == 200
    shutil.copy(uninterrupted / "records" / damaged.name, damaged)
    last = folder / "records" / "population-0-000003.parquet"
    last.write_bytes(b"damaged")
    assert cli("best", folder)[2] == f"valueshare: {last} is damaged: valueshare resume {folder} makes it again\n"
    assert cli("resume", folder)[0] == cli("best", folder)[0] == 0


def test_a_real_run_does_not_show_what_it_will_run_again(uninterrupted: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    whole = open_run(folder).records
    assert whole.height == 30  # 6 agents x 5 evaluations
    # As after a kill between the last records of a population and their manifest.
    (folder / "checkpoints" / "population-1" / "checkpoint-000003.json").unlink()
    cut = open_run(folder)
    assert not cut.finished
    assert cut.records.height == 28  # without step 200 of the two agents of population 1
    assert cut.records.equals(whole.filter((pl.col("agent") < 4) | (pl.col("step") < 200)))


def test_reading_needs_no_pytorch() -> None:
    script = "import valueshare.records, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
