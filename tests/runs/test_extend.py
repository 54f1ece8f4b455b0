"""Runs that are trained on: equal, to the bit, to runs of that length from the start."""

import inspect
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import valueshare
from valueshare import InvalidInput
from valueshare.analysis import read_results
from valueshare.files import write_json
from valueshare.population.checkpoints import files
from valueshare.records import read_progress
from valueshare.runs import run_folder
from valueshare.runs.locks import lock_run
from valueshare.runs.progress import reset_progress
from valueshare.runs.run import Run
from valueshare.runs.storage.stores import Store

CONSTANT: dict[str, Any] = {
    "eval_interval": 25,
    "eval_episodes": 1,
    "eval_episode_limit": 10,
    "hidden": [8],
    "batch_size": 4,
    "learning_starts": 10,
    "replay_capacity": 1_000,  # more than steps: the replay of a longer run is larger
    "target_update_interval": 10,
    "step_size_schedule": "constant",
    "epsilon_start": 0.2,
    "epsilon_end": 0.2,
    "progress": False,
}


def train(out: Path, steps: int, **more: Any) -> Path:
    options = {**CONSTANT, **more}
    valueshare.train("CartPole-v1", ["ib-dqn", "double-dqn"], k=[0, 4], seeds=1, steps=steps, out=out, **options)
    return out


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("long") / "run", 120)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("short") / "run", 65)


@pytest.fixture
def own(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run of 65 steps, for a test to extend."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.parametrize("first", [[20], [50], [112], [30, 55]])
def test_it_ends_as_a_run_of_that_length(
    tmp_path: Path, long: Path, first: list[int], assert_same_end: Callable[[Path, Path], None]
) -> None:
    """Ends in the first phase, at the end of a phase, within one, within the last; and two extensions."""
    began = time.monotonic()
    own = train(tmp_path / "run", first[0])
    for steps in (*first[1:], 120):
        run = valueshare.extend(own, steps=steps, progress=False)
        assert run.finished
        assert run.records["step"].max() == steps
    assert_same_end(own, long)
    config = json.loads((own / "config.json").read_text())
    assert config["settings"]["CartPole-v1"]["steps"] == 120
    assert config["extended_from"] == {"CartPole-v1": first}
    listed = json.loads((own / "provenance.json").read_text())["extended"]
    starts = [one["steps"]["CartPole-v1"] for one in listed]
    assert starts == [{"from": a, "to": b} for a, b in zip(first, [*first[1:], 120], strict=True)]
    assert listed[-1]["command"] == "valueshare extend --steps 120"
    for agent in read_results(own).table.partition_by("agent"):  # times are known, of every evaluation
        evaluated, seconds = agent["step"].to_list(), agent["seconds"].to_list()
        assert (evaluated, seconds[0]) == ([0, 25, 50, 75, 100, 120], 0.0)
        assert seconds == sorted(set(seconds))
        assert seconds[-1] < time.monotonic() - began


@pytest.mark.parametrize("stop_at", [0, 60])
def test_an_extended_run_resumes_after_it_was_stopped(
    own: Path, long: Path, stop_at: int, assert_same_end: Callable[[Path, Path], None]
) -> None:
    left = [stop_at]

    def should_stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    stopped = valueshare.extend(own, steps=120, progress=False, should_stop=should_stop)
    assert not stopped.finished
    assert valueshare.open_run(own).agent(0).steps >= 65  # the weights are there all the time
    with pytest.raises(InvalidInput, match="is not finished: wait for it to finish, or if it was stopped"):
        valueshare.extend(own, steps=150, progress=False)
    assert valueshare.resume(own, progress=False).finished
    assert_same_end(own, long)


class Killed(BaseException):
    """As the end of the process."""


@pytest.mark.parametrize("at_address", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("missing", ["config.json", "population-0", "population-1", "provenance.json"])
def test_killed_between_the_writes_of_an_extension(
    own: Path, monkeypatch: pytest.MonkeyPatch, missing: str, at_address: bool
) -> None:
    """The run is either as it was, or an unfinished one of 120 steps whose third phase, 50 to 75, runs again."""
    location = f"local://{own}" if at_address else own
    put = Store.put

    def write(path: Path, values: Any) -> str:
        if path.name == missing and not at_address:
            raise Killed
        return write_json(path, values)

    def reset(folder: Path, population: str, step: int, phases: int) -> None:
        if population == missing and not at_address:
            raise Killed
        reset_progress(folder, population, step, phases)

    def put_file(self: Store, path: Path, name: str) -> None:
        if path.stem == missing or path.name == missing:
            raise Killed
        put(self, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_json", write)
        patch.setattr(run_folder, "reset_progress", reset)
        patch.setattr(Store, "put", put_file)
        with pytest.raises(Killed):
            valueshare.extend(location, steps=120, progress=False)
    stored, config = (json.loads((own / name).read_text()) for name in ("provenance.json", "config.json"))
    assert "extended" not in stored
    if missing == "config.json":
        assert "extended_from" not in config
        assert valueshare.open_run(own).finished
        assert [read_progress(own, f"population-{i}").phases for i in range(2)] == [3, 3]
        return
    assert config["extended_from"] == {"CartPole-v1": [65]}
    run = valueshare.resume(location, progress=False, should_stop=lambda: True)
    assert not run.finished
    assert [read_progress(own, f"population-{i}").phases for i in range(2)] == [2, 2]


def test_an_extension_is_listed_once(tmp_path: Path) -> None:
    """Also if the file has an entry of it from a process that was killed before it wrote `config.json`."""
    own = train(tmp_path / "run", 50)
    file = own / "provenance.json"
    left = [{"steps": {"CartPole-v1": {"from": 50, "to": 100}}, "command": "killed"}, "no entry"]
    file.write_text(json.dumps({**json.loads(file.read_text()), "extended": left}))
    valueshare.extend(own, steps=100, progress=False)
    other, entry = json.loads(file.read_text())["extended"]
    assert (other, entry["command"]) == ("no entry", "valueshare extend --steps 100")


def test_epsilon_and_a_linear_step_size_stay_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedules = {"step_size_schedule": "linear", "epsilon_start": 1.0, "epsilon_steps": 20}
    own = train(tmp_path / "run", 50, **schedules)
    before, weights = valueshare.open_run(own), valueshare.open_run(own).weights(0)
    run = valueshare.extend(own, steps=100)
    assert "the step size of CartPole-v1 has fallen linearly to 0" in capsys.readouterr().out
    settings = json.loads((own / "config.json").read_text())["settings"]["CartPole-v1"]
    assert (settings["steps"], settings["step_size_steps"]) == (100, 50)
    assert run.agents.equals(before.agents)
    for name, tensor in run.weights(0).items():
        assert tensor.equal(weights[name])  # nothing was learned at step size 0
    assert run.records.filter(run.records["step"] <= 50).equals(before.records)


def test_a_run_at_an_address(own: Path, long: Path, assert_same_end: Callable[[Path, Path], None]) -> None:
    run = valueshare.extend(f"local://{own}", steps=120, progress=False)
    assert run.finished
    assert_same_end(own, long)


def test_callbacks_do_not_see_the_evaluation_at_the_old_end(own: Path) -> None:
    """It is none of the longer run's: its evaluations are at multiples of 25, and at its end."""
    seen = []

    def note(records: pl.DataFrame, run: Run) -> None:
        seen.append((records["step"].unique().to_list(), run.records["step"].unique().sort().to_list()))

    valueshare.extend(own, steps=120, progress=False, callbacks=[note])
    first, second = [0, 25, 50, 75], [0, 25, 50, 75, 100, 120]  # of the first population, then of the second
    assert seen[0] == ([75], first)
    assert seen[-1] == ([120], second)


def test_the_other_arguments_are_those_of_resume() -> None:
    of_extend, of_resume = (dict(inspect.signature(each).parameters) for each in (valueshare.extend, valueshare.resume))
    assert of_extend.pop("steps").default is inspect.Parameter.empty
    assert of_extend == of_resume


def shorten(folder: Path, pattern: str) -> None:
    for file in folder.glob(pattern):
        file.write_bytes(file.read_bytes()[:20])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda run: shorten(run, "checkpoints/population-1/state-000002.*"),
            r"^the run in {run} is damaged \(checkpoint-000002.json: state-000002.*\): valueshare resume {run}",
        ),
        (
            lambda run: (run / "records" / "population-0-000002.parquet").unlink(),
            r"^the run in {run} is damaged \(.*: population-0-000002.parquet: no such .*\): valueshare resume {run}",
        ),
        (
            lambda run: shutil.rmtree(run / "checkpoints"),
            r"^the run in {run} is damaged \(there are records of population-0 and no checkpoint\): valueshare resume",
        ),
        (lambda run: shutil.rmtree(run / "records"), "is damaged, and no checkpoint is from before it: start the run"),
        (lambda run: shorten(run, "checkpoints/population-0/check*"), "^no checkpoint in .* start the run again"),
        (lambda run: shorten(run, "checkpoints/population-1/state*"), "^no checkpoint in .* start the run again"),
    ],
)
def test_a_finished_run_that_is_damaged_is_not_called_unfinished(
    own: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(own)
    with pytest.raises(InvalidInput, match=message.format(run=re.escape(str(own)))):
        valueshare.extend(own, steps=120, progress=False)
    if "resume" not in message:
        with pytest.raises(InvalidInput, match="start the run again"):  # as `resume` says
            valueshare.resume(own, progress=False)


def test_an_unfinished_run_is_refused_before_its_checkpoints_are_read(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first population is finished, and the second one is before its last phase."""
    (own / "checkpoints" / "population-1" / "checkpoint-000002.json").unlink()
    verified = list[str]()
    monkeypatch.setattr(files, "verify", lambda path, digest: verified.append(path.name))
    with pytest.raises(InvalidInput, match="is not finished: wait for it to finish, or if it was stopped"):
        valueshare.extend(own, steps=120, progress=False)
    assert verified == []


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_that_is_being_trained_cannot_be_extended(
    own: Path, finished: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if not finished:
        shutil.rmtree(own / "checkpoints" / "population-1")
    with lock_run(own), pytest.raises(InvalidInput, match="is being trained by another process: wait for it to fin"):
        valueshare.extend(own, steps=120)
    assert capsys.readouterr().out == ""


def test_what_cannot_be_extended(tmp_path: Path, long: Path, cli: Callable[..., Any]) -> None:
    before = {path: path.read_bytes() for path in sorted(long.rglob("*")) if path.is_file()}
    for steps, line in (
        ("120", "--steps 120: this run has 120 already; write a larger total"),
        ("0", "--steps 0: write a number >= 1"),
        ("1e18", "steps"),
    ):
        code, out, err = cli("extend", long, "--steps", steps)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert line in err
    code, _, err = cli("extend", tmp_path, "--steps", "100")
    assert (code, "there is no training run in" in err) == (2, True)
    code, _, err = cli("extend", tmp_path / "none", "--steps", "100")
    assert (code, "none does not exist: give the folder" in err) == (2, True)
    assert {path: path.read_bytes() for path in sorted(long.rglob("*")) if path.is_file()} == before
    changed = tmp_path / "changed"
    shutil.copytree(long, changed)
    config = json.loads((changed / "config.json").read_text())
    wrong_values: list[dict[str, list[int]]] = [{"CartPole-v1": [150]}, {"CartPole-v1": [50, 50]}]
    for wrong in (*wrong_values, {"CartPole-v1": []}, {"Other-v0": [1]}):
        (changed / "config.json").write_text(json.dumps({**config, "extended_from": wrong}))
        with pytest.raises(InvalidInput, match=r"config.json is damaged \(.*extended_from"):
            valueshare.open_run(changed)
