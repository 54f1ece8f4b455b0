"""A run that is stopped and resumed is the run that was never stopped, to the bit."""

import dataclasses
import errno
import json
import logging
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from five_phases import FIVE_PHASES, SHORT_EXPLORATION

from valueshare.errors import InvalidInput
from valueshare.files import DiskFull, atomic_write, write_json
from valueshare.population.agents import agent_table
from valueshare.population.checkpoints import files, saving
from valueshare.population.checkpoints.files import is_intact, read_manifest
from valueshare.population.checkpoints.fingerprint import ENVIRONMENT_KEYS, check_fingerprint
from valueshare.population.checkpoints.loading import finished_phase_count, read_newest_state
from valueshare.population.state import state_dict
from valueshare.population.train import PhaseReport, TrainingResult, train_population
from valueshare.records import CheckpointPaths
from valueshare.replay import transitions
from valueshare.schema import FORMAT, body_checksum

AGENTS = agent_table("CartPole-v1", "ib-dqn", seeds=[0, 1], k=[0.0, 2.0], agent_settings=SHORT_EXPLORATION)


def train(directory: Path | None, stop_after: int | None = None) -> TrainingResult:
    """Train; with `stop_after`, until that many ticks (of training and evaluation) are over."""
    ticks = iter(range(10**9))
    last = 10**9 if stop_after is None else stop_after
    return train_population(AGENTS, FIVE_PHASES, directory=directory, should_stop=lambda: next(ticks) >= last)


def assert_same(one: TrainingResult, other: TrainingResult) -> None:
    assert one.finished
    assert other.finished
    assert one.records.equals(other.records)
    tensors = state_dict(other.state)
    for name, value in state_dict(one.state).items():
        assert torch.equal(value, tensors[name]), name


@pytest.fixture(scope="module")
def uninterrupted() -> TrainingResult:
    return train(None)


def test_records_have_every_agent_at_every_evaluation(uninterrupted: TrainingResult) -> None:
    records = uninterrupted.records
    assert records["step"].unique().sort().to_list() == [0, 30, 60, 90, 120, 150]
    assert records.height == 6 * 4
    assert records["score"].null_count() == 0
    first, rest = records.filter(pl.col("step") == 0), records.filter(pl.col("step") > 0)
    assert first["action_gap"].null_count() == 4  # nothing has been measured yet
    assert rest["action_gap"].null_count() == 0
    assert rest["train_episodes"].sum() > 0


@pytest.mark.parametrize("stop_after", [0, 25, 70, 120, 190])
def test_resumed_is_uninterrupted(tmp_path: Path, uninterrupted: TrainingResult, stop_after: int) -> None:
    stopped = train(tmp_path, stop_after)
    assert not stopped.finished
    assert stopped.records.height < uninterrupted.records.height
    assert_same(train(tmp_path), uninterrupted)
    assert_same(train(tmp_path), uninterrupted)  # nothing left to do: the end is loaded


def test_stopping_again_and_again(tmp_path: Path, uninterrupted: TrainingResult) -> None:
    while not (trained := train(tmp_path, stop_after=110)).finished:
        pass
    assert_same(trained, uninterrupted)


def test_an_extended_run_of_short_episodes_is_a_run_of_that_length(tmp_path: Path) -> None:
    # Episodes of five steps fill six rows of replay, and every phase begins with one more: by step 140, 182 rows.
    table = agent_table("tests/Clock-v0", "dqn", seeds=[0, 1], agent_settings=SHORT_EXPLORATION)
    short = dataclasses.replace(FIVE_PHASES, checkpoint_interval=10, replay_capacity=1_000)
    long = dataclasses.replace(short, steps=300)
    assert train_population(table, short, directory=tmp_path).finished
    extended = train_population(table, long, directory=tmp_path, extended_from=[short.steps])
    at_once = train_population(table, long)
    assert_same(extended, at_once)
    assert transitions.size(at_once.state.replay).tolist() == [300, 300]  # less than the capacity: all are kept


def train_until(directory: Path, last: int) -> TrainingResult:
    """Train until a phase is finished."""
    done: list[int] = []
    return train_population(
        AGENTS,
        FIVE_PHASES,
        directory=directory,
        on_phase=lambda report: done.append(report.phase),
        should_stop=lambda: last in done,
    )


@pytest.mark.parametrize(
    ("newest", "replays"),
    [
        # After phase 3 (steps 90..120) live transitions begin at 120 - 70 = 50, in phase 1; after
        # phase 2 at 90 - 70 = 20, in phase 0.
        (3, (0, 1, 2, 3)),
        # Phase 4 is the last, and nothing is resumed from it; should it have to be run again, it
        # starts where phase 3 ended.
        (4, (1, 2, 3)),
    ],
)
def test_only_what_two_checkpoints_need_is_kept(tmp_path: Path, newest: int, replays: tuple[int, ...]) -> None:
    train_until(tmp_path, newest)
    names = sorted(path.name for path in (tmp_path / "checkpoints/population-0").iterdir())
    assert names == [
        *(f"checkpoint-{phase:06d}.json" for phase in (newest - 1, newest)),
        *(f"replay-{phase:06d}.safetensors" for phase in replays),
        *(f"state-{phase:06d}.safetensors" for phase in (newest - 1, newest)),
    ]


def test_whether_a_finished_run_is_intact_is_known_without_its_replay(tmp_path: Path) -> None:
    train(tmp_path)
    folder = CheckpointPaths(tmp_path, "population-0")
    for phase in (1, 2, 3):
        folder.replay(phase).unlink()
    assert is_intact(folder, 4)
    assert not is_intact(folder, 3)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.fixture(scope="module")
def trained_until(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Folders of runs that were stopped after a phase: they are for copying."""

    @cache
    def folder(last: int) -> Path:
        made = tmp_path_factory.mktemp(f"until-{last}")
        train_until(made, last)
        return made

    return folder


@pytest.mark.parametrize("damage", [cut, flip_a_bit, Path.unlink])
@pytest.mark.parametrize(
    ("file", "last"),
    [
        *((file, 3) for file in ("state", "replay", "checkpoint", "records")),
        *((file, 4) for file in ("state", "checkpoint", "records")),  # the last: without replay
    ],
)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_used(
    tmp_path: Path,
    trained_until: Callable[[int], Path],
    uninterrupted: TrainingResult,
    caplog: pytest.LogCaptureFixture,
    file: str,
    last: int,
    damage: Callable[[Path], None],
) -> None:
    shutil.copytree(trained_until(last), tmp_path, dirs_exist_ok=True)
    newest = (
        tmp_path / f"records/population-0-{last:06d}.parquet"
        if file == "records"
        else next((tmp_path / "checkpoints/population-0").glob(f"{file}-{last:06d}.*"))
    )
    damage(newest)
    phases: list[int] = []
    with caplog.at_level(logging.WARNING):
        resumed = train_population(
            AGENTS,
            FIVE_PHASES,
            directory=tmp_path,
            on_phase=lambda report: phases.append(report.phase),
        )
    assert phases == list(range(last, 5))  # the damaged one was run again
    assert ("is damaged" in caplog.text) == (damage is not Path.unlink or file != "checkpoint")
    assert_same(resumed, uninterrupted)


def test_other_seeds_of_the_same_environments_are_refused(tmp_path: Path) -> None:
    """Earlier versions gave environments of Gymnasium seeds of 64 bits, and stored nothing about it."""
    table = agent_table("tests/Clock-v0", "dqn", seeds=[0], agent_settings=SHORT_EXPLORATION)
    train_population(table, FIVE_PHASES, directory=tmp_path)
    for path in (tmp_path / "checkpoints/population-0").glob("checkpoint-*.json"):
        body = {name: value for name, value in json.loads(path.read_text()).items() if name != "checksum"}
        del body["fingerprint"]["environment_seeds"]
        write_json(path, {**body, "checksum": body_checksum(body)})
    with pytest.raises(InvalidInput, match="an earlier version began this run, with other seeds of its environments"):
        train_population(table, FIVE_PHASES, directory=tmp_path)


def test_a_phase_with_more_digits_is_newer(tmp_path: Path) -> None:
    paths = CheckpointPaths(tmp_path, "population-0")
    paths.checkpoints.mkdir(parents=True)
    for phase in (999_999, 1_000_000):
        digest = atomic_write(paths.state(phase), [b"state"])
        body: dict[str, Any] = {"format": FORMAT, "phase": phase, "fingerprint": {}, "segments": [], "records": {}}
        body["state"] = {paths.state(phase).name: digest}
        write_json(paths.manifest(phase), {**body, "checksum": body_checksum(body)})
    assert read_newest_state(paths, lambda file: file.name) == "state-1000000.safetensors"
    assert finished_phase_count(paths, 100) == 1_000_001
    paths.manifest(1_000_000).write_text("{}")  # damaged
    assert finished_phase_count(paths, 100) == 1_000_000


def test_without_an_intact_checkpoint_the_run_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(tmp_path)
    for path in (tmp_path / "checkpoints/population-0").glob("state-*"):
        cut(path)
    with pytest.raises(InvalidInput, match=r"no checkpoint in .* is intact \(checkpoint-\d+\.json: state-"):
        train(tmp_path)
    assert caplog.messages == []  # the error alone says it


def test_a_manifest_that_is_damaged_meanwhile_is_said_in_one_line(
    tmp_path: Path, uninterrupted: TrainingResult
) -> None:
    def damage(report: PhaseReport) -> None:
        if report.phase == 2:
            cut(CheckpointPaths(folder, "population-0").manifest(2))

    folder = tmp_path / "my run"
    with pytest.raises(InvalidInput, match=f"valueshare resume '{folder}' resumes from") as caught:
        train_population(AGENTS, FIVE_PHASES, directory=folder, on_phase=damage)
    assert "\n" not in str(caught.value)
    assert_same(train(folder), uninterrupted)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    train(tmp_path, stop_after=120)
    other = dataclasses.replace(FIVE_PHASES, batch_size=16)
    with pytest.raises(InvalidInput, match="batch_size was 8 and is now 16"):
        train_population(AGENTS, other, directory=tmp_path)
    with pytest.raises(InvalidInput, match="agents"):
        train_population(AGENTS[:2], FIVE_PHASES, directory=tmp_path)
    stored = read_manifest(CheckpointPaths(tmp_path, "population-0").manifest(1)).fingerprint
    with pytest.raises(InvalidInput, match="other shapes than in training: restore the code of the environment"):
        check_fingerprint(stored, {**stored, "network": {"weight": [2, 1]}})
    of_earlier_version = {name: stored[name] for name in stored if name not in ENVIRONMENT_KEYS}
    check_fingerprint(of_earlier_version, stored)


@pytest.mark.parametrize(("change", "version"), [(-1, "earlier"), (1, "newer")])
def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: int, version: str) -> None:
    other = FORMAT + change
    for module in (files, saving):
        monkeypatch.setattr(module, "FORMAT", other)
    train(tmp_path, stop_after=120)
    monkeypatch.undo()
    with pytest.raises(InvalidInput, match=f"{version} version"):
        train(tmp_path)


def test_a_full_disk_loses_nothing(
    tmp_path: Path, uninterrupted: TrainingResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, sync = tmp_path / "checkpoints/population-0", os.fsync

    def full_for_phase_2(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().name.startswith("state-000002"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full_for_phase_2)
    with pytest.raises(DiskFull, match="checkpoints are intact") as caught:
        train_population(AGENTS, FIVE_PHASES, directory=tmp_path)
    monkeypatch.undo()
    assert caught.value.errno == errno.ENOSPC
    assert not list(folder.glob("*-000002*"))
    assert json.loads((folder / "checkpoint-000001.json").read_text())["phase"] == 1
    assert not (folder / "checkpoint-000002.json").exists()
    assert_same(train(tmp_path), uninterrupted)
