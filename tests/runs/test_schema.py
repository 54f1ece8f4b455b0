"""config.json, manifests, progress and the table of agents of a run folder are untrusted input."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from valueshare.errors import InvalidInput
from valueshare.population.checkpoints.loading import read_newest_state
from valueshare.records import CheckpointPaths, read_progress, read_tables
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.plan import from_config, to_config
from valueshare.runs.planning import make_plan
from valueshare.runs.run_folder import UsedOptions, open_plan, record_resume
from valueshare.runs.shards import shard_plan
from valueshare.schema import FORMAT, Invalid, Progress, body_checksum, read_object

Cli = Callable[..., tuple[int, str, str]]
DEEP = "[" * 100_000 + "]" * 100_000

# A key of config.json, what is written there, and words of the one line that says so.
CONFIGS: dict[str, tuple[str, Any, str]] = {
    "no chunk": ("chunks", {"population-0": 0}, ">= 1"),
    "chunks in words": ("chunks", {"population-0": "x"}, "Expected 'int', got 'str'"),
    "a negative chunk": ("chunks", {"population-0": -1}, ">= 1"),
    "more chunks than agents": ("chunks", {"population-0": 10**9}, "it has 4 agents"),
    "more chunks than agents of the population": ("chunks", {"population-0": 5}, "it has 4 agents"),
    "chunks of no population": ("chunks", {"population-7": 2}, "it has 0 agents"),
    "chunks by a path": ("chunks", {"../../x": 2}, "'$.chunks'"),
    "a family of no environment": ("families", {"Pong": "CartPole-v1"}, "families must name"),
    "families in a list": ("families", ["CartPole-v1"], "Expected 'object'"),
    "compile in words": ("compile", "yes", "Expected 'bool', got 'str'"),
    "an unknown backend": ("backends", {"CartPole-v1": "mine"}, "Invalid enum value 'mine'"),
    "a backend of another": ("backends", {"Pong": "ale"}, "must name the same environments"),
    "no settings": ("settings", {}, "must name the same environments"),
    "settings in a list": ("settings", {"CartPole-v1": []}, "Expected 'object'"),
    "a device by a path": ("device", "../cuda", "'$.device'"),
    "another kind": ("kind", 5, "there is no training run"),
    "format in words": ("format", "1", "its format is '1'"),
    "format as a switch": ("format", True, "its format is True"),
    "a shard that is none": ("shard", "1 of 2", "'$.shard'"),
    "a digest that is none": ("agents", "x", "'$.agents'"),
    "a key that nobody knows": ("hook", "rm", "unknown field 'hook'"),
}
SETTINGS: dict[str, tuple[str, Any]] = {
    "hidden in words": ("hidden", "x"),
    "hidden of lists": ("hidden", [[1], [2]]),
    "steps below one": ("steps", 0),
    "infinite steps": ("steps", 1e400),
    "batch_size NaN": ("batch_size", float("nan")),
    "a protocol that is not a name": ("atari_protocol", {"name": 1}),
    "an unknown loss": ("loss", ["huber"]),
    "tf32 in words": ("tf32", "yes"),
    "a replay device that is none": ("replay_device", ["cpu"]),
}


@pytest.fixture
def folder(uninterrupted: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(uninterrupted, copy)
    return copy


def change(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def refused(cli: Cli, *words: object) -> str:
    """The one line with which a command was refused."""
    code, _, text = cli(*words)
    assert code == 2, text
    assert text.count("\n") == 1, text
    return text


@pytest.mark.parametrize("case", CONFIGS)
def test_a_configuration_that_does_not_fit(case: str, folder: Path, cli: Cli) -> None:
    key, value, words = CONFIGS[case]
    change(folder / "config.json", **{key: value})
    assert words in refused(cli, "resume", folder)
    if key not in ("format", "kind"):
        with pytest.raises(InvalidInput, match=r"config\.json (is damaged|and agents\.parquet are not of one run)"):
            open_plan(folder)


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_that_do_not_fit(case: str, folder: Path, cli: Cli) -> None:
    name, value = SETTINGS[case]
    file = folder / "config.json"
    settings = json.loads(file.read_text())["settings"]
    settings["CartPole-v1"][name] = value
    change(file, settings=settings)
    # NaN and infinity are not numbers of JSON, whatever they are of.
    finite = not isinstance(value, float) or math.isfinite(value)
    why = f"{name} = " if finite else "it is not valid JSON: "
    assert f"{file} is damaged ({why}" in refused(cli, "resume", folder)


@pytest.mark.parametrize("text", [DEEP, "[]", "5", "", '{"format": 1', '{"a": ' * 50_000])
@pytest.mark.parametrize("command", [["resume"], ["report"], ["play", "--agent", "0", "--video", "x.mp4"]])
def test_a_configuration_that_is_no_object(text: str, command: list[str], folder: Path, cli: Cli) -> None:
    (folder / "config.json").write_text(text)
    words = refused(cli, command[0], folder, *command[1:])
    assert "config.json is damaged" in words


@pytest.mark.parametrize("command", ["resume", "report"])
def test_another_file_of_the_run_as_its_configuration(command: str, folder: Path, cli: Cli) -> None:
    """A manifest has a format too: without a kind, the records would be taken for results of another program."""
    (folder / "config.json").write_text(json.dumps({"format": FORMAT, "phase": 1, "records": {}}))
    assert "config.json is damaged: it has no kind of results" in refused(cli, command, folder)


def test_a_huge_configuration_is_not_read_to_its_end(folder: Path, cli: Cli) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(10**12)  # a hole: it takes no disk
    assert "larger than 16 MiB" in refused(cli, "resume", folder)


@pytest.mark.parametrize("name", ["config.json", "provenance.json"])
def test_a_pipe_is_not_waited_for(name: str, folder: Path, cli: Cli) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    code, _, text = cli("resume", folder)
    if name == "config.json":
        assert (code, "not a regular file" in text) == (2, True)


def test_provenance_that_is_nested_too_deeply_begins_anew(folder: Path) -> None:
    (folder / "provenance.json").write_text(DEEP)
    record_resume(folder, "valueshare resume", UsedOptions({"device": "cpu"}))
    stored = json.loads((folder / "provenance.json").read_text())
    assert [origin["command"] for origin in stored["resumed"]] == ["valueshare resume"]


@pytest.mark.parametrize("device", ["cpu", "cpu:0", "cuda", "cuda:12"])
def test_every_device_that_can_be_written_can_be_read(device: str, folder: Path) -> None:
    change(folder / "config.json", device=device)
    assert open_plan(folder).device == device


@pytest.mark.parametrize("shard", ["1/2", "2/2"])
def test_a_shard_without_the_game_that_its_family_is_named_after(shard: str) -> None:
    plan = make_plan(["Pong", "Boxing"], "dqn", seeds=1)
    assert set(plan.families.values()) == {"ALE/Pong-v5"}
    own = shard_plan(plan, LauncherOptions(shard=shard).selected_shard)
    assert from_config(to_config(own), own.agents).families == own.families


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("k", -1.0, "k = -1"),
        ("k", float("nan"), "k = nan"),
        ("step_size", 0.0, "step_size = 0:"),
        ("discount", 2.0, "discount = 2:"),
        ("algorithm", "ppo", "algorithm = 'ppo'"),
        ("env", "Pong", "no settings of Pong"),
        ("agent", 0, "names an agent twice"),
        ("seed", None, "or missing values"),
    ],
)
def test_a_table_that_does_not_fit(column: str, value: Any, words: str, folder: Path) -> None:
    """Its checksum is right: whoever wrote the folder wrote that too."""
    from valueshare.population.agents import table_digest

    table = pl.read_parquet(folder / "agents.parquet")
    kind = table.schema[column]
    table = table.with_columns(pl.lit(value, dtype=kind).alias(column))
    table.write_parquet(folder / "agents.parquet")
    change(folder / "config.json", agents=table_digest(table))
    with pytest.raises(InvalidInput, match=words):
        open_plan(folder)


MANIFESTS: dict[str, dict[str, Any]] = {
    "a path to records": {"records": {"../../secret": "0" * 32}},
    "an absolute path": {"state": {"/etc/passwd": "0" * 32}},
    "a hidden file": {"state": {".bashrc": "0" * 32}},
    "a segment outside the folder": {"segments": [{"file": "../x", "digest": "0" * 32, "end": 1}]},
    "a phase below zero": {"phase": -1},
    "a phase in words": {"phase": "3"},
    "another phase": {"phase": 2},
    "no segments": {"segments": None},
    "a key that nobody knows": {"hook": "rm"},
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_does_not_fit(case: str, folder: Path) -> None:
    """Its checksum is right: whoever wrote the folder wrote that too."""
    path = folder / "checkpoints" / "population-0" / "checkpoint-000003.json"
    body = json.loads(path.read_text()) | MANIFESTS[case]
    del body["checksum"]
    path.write_text(json.dumps({"checksum": body_checksum(body), **body}))
    with pytest.raises(InvalidInput, match=r"checkpoint-000003\.json is "):
        read_newest_state(CheckpointPaths(folder, "population-0"), lambda file: file)


def test_records_are_read_by_plain_names_alone(folder: Path, tmp_path: Path) -> None:
    pl.DataFrame({"secret": [1]}).write_parquet(tmp_path / "secret.parquet")
    expected = len(read_tables(folder))
    for path in (folder / "checkpoints").glob("*/checkpoint-000003.json"):
        change(path, records={"../../secret.parquet": "0" * 32})
    tables = read_tables(folder)  # by the manifests before: without the last phase
    assert len(tables) == expected - 2
    assert all("secret" not in table.columns for table in tables)


@pytest.mark.parametrize(
    "text",
    [
        '{"step": -1}',
        '{"seconds": "x"}',
        '{"seconds": NaN}',
        '{"phases": 1e400}',
        "[]",
        DEEP,
        '{"evaluations": [[1, -1.0]]}',
    ],
)
def test_progress_that_does_not_fit_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "a.json").write_text(text)
    assert read_progress(tmp_path, "a") == Progress()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_in_json_is_refused(tmp_path: Path, number: str) -> None:
    """Python reads them, and could not write them again as JSON: provenance.json is."""
    (tmp_path / "provenance.json").write_text(f'{{"resumed": [], "machine": {{"cores": {number}}}}}')
    with pytest.raises(Invalid, match="is not a number"):
        read_object(tmp_path / "provenance.json")
    record_resume(tmp_path, "valueshare resume run", UsedOptions({"device": "cpu"}))  # begins anew
    assert len(read_object(tmp_path / "provenance.json")["resumed"]) == 1
