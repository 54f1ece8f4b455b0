"""Runs at URLs: the same end as in a folder, whatever happens on the way.

local:// is a folder for fsspec, and a URL for this package: everything goes the way of s3://.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from replaced_options import replaced

import valueshare
from valueshare.cli import arguments
from valueshare.errors import InvalidInput
from valueshare.report.page.live import PageUpdater
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.storage import leases, stores
from valueshare.runs.storage.copies import reading_copies
from valueshare.runs.storage.leases import leased
from valueshare.runs.storage.locations import Url, resolve_location
from valueshare.runs.storage.remote import RunStorage
from valueshare.runs.storage.stores import Store, Unreachable

Cli = Callable[..., Any]
Same = Callable[[Path, Path], None]


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of copies of this test alone; leases are short."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(stores, "PAUSES", ())
    return folder


def left(copies: Path) -> list[str]:
    return [path.name for above in copies.iterdir() for path in above.iterdir()]


@pytest.fixture
def there(uninterrupted: Path, tmp_path: Path) -> Path:
    """The small run, finished at an address: `test_the_same_end_as_in_a_folder` compares the two."""
    return Path(shutil.copytree(uninterrupted, tmp_path / "there", ignore=shutil.ignore_patterns("*.lock")))


@pytest.mark.usefixtures("quick")
def test_a_driver_that_is_killed_after_the_last_phase_leaves_nothing_once_the_run_is_resumed(
    there: Path, cli: Cli
) -> None:
    url = f"local://{there}"
    before = sorted(there.rglob("*"))
    store = Store(Url(url))
    leases.Lease(store).write()  # and not again
    (there / ".lease.json.0123abcd.partial").write_text("{")
    assert cli("resume", url)[0] == 0
    assert sorted(there.rglob("*")) == before
    with leased(store, lambda line: None) as alive:
        assert cli("resume", url)[0] == 0
        assert alive.is_held()


def test_a_run_that_is_resumed_deletes_what_killed_uploads_have_left(there: Path, cli: Cli) -> None:
    url = f"local://{there}"
    max(there.glob("checkpoints/*/checkpoint-*.json")).unlink()  # the last phase runs again
    for name in (".lease.json.0123abcd.partial", "progress/.population-0.json.0123abcd.partial"):
        (there / name).write_text("{")
    assert cli("resume", url)[0] == 0
    assert not list(there.rglob("*.partial"))


def test_the_same_end_as_in_a_folder(
    small: list[str],
    uninterrupted: Path,
    tmp_path: Path,
    copies: Path,
    cli: Cli,
    assert_same_end: Same,
) -> None:
    there, url = tmp_path / "there", f"local://{tmp_path}/there"
    code, out, err = cli(*small, "--out", url)
    assert (code, err) == (0, "")
    assert f"run folder: {url}\n" in out
    shown = f"next:\n  valueshare report {url}\n  valueshare watch {url}\n"
    assert out.endswith(f"records: {url}/records\n{shown}")
    assert_same_end(there, uninterrupted)
    found = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
    same = {str(path.relative_to(uninterrupted)) for path in uninterrupted.rglob("*") if path.is_file()}
    assert found == {name for name in same if not name.endswith(".lock")}
    assert left(copies) == []

    run, whole = valueshare.open_run(url), valueshare.open_run(uninterrupted)
    assert (run.finished, str(run.folder)) == (True, url)
    assert run.records.equals(whole.records)
    for name, tensor in run.weights(5).items():
        assert torch.equal(tensor, whole.weights(5)[name])
    code, out, _ = cli("resume", url)
    assert (code, f"this run is finished: {url}\n" in out) == (0, True)
    for words, message in (
        ([*small, "--out", url], f"{url} holds this run, finished: to repeat it, choose another --out"),
        (replaced(small, ["--seeds", "3", "--out", url]), f"{url} holds a run with other settings"),
        ([*small, "--out", f"local://{tmp_path}"], "holds something other than a run"),
        (["resume", f"{url}/nowhere"], f"{url}/nowhere does not exist"),
        (["resume", f"local://{tmp_path}"], f"there is no training run in local://{tmp_path}"),
        (["report", f"{url}/nowhere"], f"{url}/nowhere does not exist"),
    ):
        code, _, err = cli(*words)
        assert (code, err.count("\n"), message in err) == (2, 1, True), err
    assert left(copies) == []


def start(seconds: float, *words: object) -> subprocess.Popen[str]:
    """A process whose lease runs out after so many seconds, and which pauses after each phase."""
    program = f"""
import sys, time
from valueshare.cli import main
from valueshare.runs.storage import leases
from valueshare.runs.storage.remote import RunStorage

leases.LEASE_SECONDS, leases.RENEW_SECONDS = {seconds}, {seconds / 10}
push = RunStorage.push_population

def push_and_pause(copy, name):
    push(copy, name)
    time.sleep(0.5)

RunStorage.push_population = push_and_pause
main(sys.argv[1:])
"""
    return subprocess.Popen(
        [sys.executable, "-c", program, *(str(word) for word in words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(3_000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("it does not come to that")


def manifests(there: Path, name: str) -> list[str]:
    return sorted(path.name for path in there.glob(f"checkpoints/{name}/checkpoint-*.json"))


@pytest.mark.slow
def test_killed_and_resumed(
    small: list[str],
    uninterrupted: Path,
    tmp_path: Path,
    cli: Cli,
    assert_same_end: Same,
) -> None:
    there, url = tmp_path / "there", f"local://{tmp_path}/there"
    process = start(2.0, *small, "--out", url)
    wait_for(lambda: len(manifests(there, "population-0")) == 2, process)
    code, _, err = cli("resume", url)  # a second driver
    assert code == 2
    assert err == f"valueshare: {url} is being trained by another process: wait for it to finish\n"
    process.kill()
    process.communicate()
    assert (there / "lease.json").exists()
    code, out, err = cli("resume", url)
    assert (code, err) == (0, "")
    assert "has a lease: waiting up to 2 s" in out
    assert_same_end(there, uninterrupted)
    assert not (there / "lease.json").exists()
    origin = json.loads((there / "provenance.json").read_text())
    assert len(origin["resumed"]) == 1


def one_population(small: list[str]) -> list[str]:
    """The small run with one algorithm and one k: a repeated option would add to them."""
    return [word for word in small if word not in ("double-dqn", "4")]


def test_killed_before_it_was_a_run(
    small: list[str], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration comes last: what was sent before it is in nobody's way."""
    there, url = tmp_path / "there", f"local://{tmp_path}/there"
    quick = replaced(one_population(small), ["--steps", "50"])
    put = Store.put

    def fails(self: Store, path: Path, name: str) -> None:
        if name == "config.json":
            raise Unreachable(5, f"cannot write {name} to {self.url}: throttled")
        put(self, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", fails)
        code, _, err = cli(*quick, "--out", url)
    assert (code, err.endswith("throttled; nothing was written\n")) == (1, True)
    assert {path.name for path in there.iterdir()} == {"agents.parquet", "provenance.json"}
    assert cli(*quick, "--out", url)[0] == 0
    (there / "checkpoints/population-0/checkpoint-000000.json").unlink()
    (there / "provenance.json").write_text('{"comm')  # cut short: stores are not all careful
    assert f"{url} holds this run, unfinished: write valueshare resume" in cli(*quick, "--out", url).err
    assert cli("resume", url)[0] == 0
    assert len(json.loads((there / "provenance.json").read_text())["resumed"]) == 1


def test_of_two_that_begin_at_the_same_place_the_first_one_stays(
    small: list[str], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, url = tmp_path / "there", f"local://{tmp_path}/there"

    def wait_for(store: Store, say: object) -> None:
        store.write("config.json", b'{"kind": "training"}')  # the other one's, ended meanwhile

    monkeypatch.setattr(leases, "_wait_for", wait_for)
    code, _, err = cli(*small, "--out", url)
    assert (code, err) == (2, f"valueshare: {url}: another process created a run there; it was left unchanged\n")
    assert [path.name for path in there.iterdir()] == ["config.json"]


def test_a_driver_that_lost_its_lease_ends(
    small: list[str], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"local://{tmp_path}/there"
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    push, renew, renewed = RunStorage.push_population, leases.Lease.renew, set[leases.Lease]()

    def observed(self: leases.Lease) -> None:
        renew(self)
        renewed.add(self)

    def pushed(self: RunStorage, name: str) -> None:
        push(self, name)
        other, deadline = leases.Lease(self.store), time.monotonic() + 20
        while not any(lease.lost for lease in renewed) and time.monotonic() < deadline:
            other.write()  # again, as a renewal that has just read its own lease writes over it
            time.sleep(0.05)

    monkeypatch.setattr(leases.Lease, "renew", observed)
    monkeypatch.setattr(RunStorage, "push_population", pushed)
    code, _, err = cli(*small, "--out", url)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{url} may be trained by another process, as this one did not renew its lease in time" in err
    assert manifests(tmp_path / "there", "population-0") == ["checkpoint-000000.json"]


def test_a_store_that_fails_loses_no_finished_phase(
    small: list[str],
    uninterrupted: Path,
    tmp_path: Path,
    copies: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_end: Same,
) -> None:
    there, url = tmp_path / "there", f"local://{tmp_path}/there"
    put = Store.put

    def fails(self: Store, path: Path, name: str) -> None:
        if name.endswith("population-0-000002.parquet"):
            raise Unreachable(28, f"cannot write {name} to {self.url}: no space left on device")
        put(self, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", fails)
        code, _, err = cli(*small, "--out", url)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"valueshare: cannot write records/population-0-000002.parquet to {url}: ")
    assert err.endswith(f"resume with: valueshare resume {url}\n")
    (kept,) = re.findall(r"what it lacks is in (\S+): copy these files", err)
    assert Path(kept, "checkpoints/population-0/checkpoint-000002.json").exists()
    assert [name[:5] for name in left(copies)] == ["kept-"]
    assert manifests(there, "population-0") == ["checkpoint-000000.json", "checkpoint-000001.json"]
    assert cli("resume", url)[0] == 0
    assert_same_end(there, uninterrupted)


def test_a_damaged_checkpoint_is_made_again(there: Path, uninterrupted: Path, cli: Cli, assert_same_end: Same) -> None:
    url = f"local://{there}"
    own = there / "checkpoints" / "population-1"
    state = (own / "state-000003.safetensors").read_bytes()
    (own / "checkpoint-000003.json").unlink()  # cut off before its manifest ...
    (own / "state-000003.safetensors").write_bytes(bytes(len(state)))  # ... with another content
    assert cli("resume", url)[0] == 0
    assert (own / "state-000003.safetensors").read_bytes() == state
    assert_same_end(there, uninterrupted)


def test_a_run_with_a_damaged_last_manifest_is_not_finished(
    there: Path, uninterrupted: Path, cli: Cli, assert_same_end: Same
) -> None:
    url = f"local://{there}"
    assert valueshare.open_run(url).finished
    manifest = there / "checkpoints" / "population-1" / "checkpoint-000003.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[: len(whole) // 2])
    assert not valueshare.open_run(url).finished
    assert cli("resume", url)[0] == 0
    assert manifest.read_bytes() == whole
    assert_same_end(there, uninterrupted)


@pytest.mark.slow
def test_processes_and_shards(small: list[str], uninterrupted: Path, tmp_path: Path, cli: Cli, copies: Path) -> None:
    url = f"local://{tmp_path}/all"
    assert cli(*small, "--out", url, "--shard", "1/2", "--workers", "2")[0] == 0
    assert cli(*small, "--out", url, "--shard", "2/2", "--log", "tensorboard")[0] == 0
    assert any((tmp_path / "all/shard-2-of-2/tensorboard").iterdir())
    shards = [valueshare.open_run(f"{url}/shard-{i}-of-2") for i in (1, 2)]
    together = pl.concat([shard.records for shard in shards]).sort("agent", "step")
    assert together.equals(valueshare.open_run(uninterrupted).records)

    out = tmp_path / "report"
    words = ("--resamples", "50", "--figures", "learning-curves", "--out", out)
    code, said, err = cli("report", url, *words)  # the shards in it
    assert (code, err) == (0, "")
    assert str(copies) not in said
    assert (out / "report.html").stat().st_size > 1_000
    for path in (out / "report.json", out / "report.html"):
        assert str(copies) not in path.read_text()
    code, _, err = cli("report", url, "--out", "s3://bucket/a")
    assert (code, "is not a folder: choose another --out" in err) == (2, True)
    with pytest.raises(InvalidInput, match="memory:// exists only in this process"):
        valueshare.train("CartPole-v1", out="memory://a/run", launcher=LauncherOptions(workers=2))
    assert left(copies) == []


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--env", "CartPole-v1", "--out", "memory://a/run"),
        ("reproduce", "gridworld", "--scale", "smoke", "--out", "memory://a/run"),
        ("reproduce", "lunarlander", "--scale", "smoke", "--out", "memory://a/run"),
        ("reproduce", "atari57", "--scale", "smoke", "--out", "memory://a/run"),
        ("tabular", "--steps", "10", "--out", "memory://a/run"),
        ("resume", "memory://a/run"),
        ("report", "memory://a/run"),
    ],
)
def test_a_place_that_would_end_with_the_command(words: tuple[str, ...], cli: Cli) -> None:
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert err == (
        "valueshare: memory://a/run is in the memory of this command, and lost when it ends: "
        "write a folder or another URL\n"
    )


def test_it_can_be_watched(uninterrupted: Path, tmp_path: Path, copies: Path) -> None:
    there = Store(resolve_location(f"local://{tmp_path}/there"))  # type: ignore[arg-type]
    files = sorted(path for path in uninterrupted.rglob("*") if path.is_file())
    for path in files:
        name = str(path.relative_to(uninterrupted))
        if not name.startswith(("records", "checkpoints", "progress")):
            there.put(path, name)
    with reading_copies([there.url]) as copied:
        follower = PageUpdater(copied.folders, 50, fetch=copied.fetch, replace_paths=copied.replace_paths)
        follower.refresh()
        assert b"Waiting for the first records" in follower.view.content
        assert str(there.url).encode() in follower.view.content
        for path in files:
            there.put(path, str(path.relative_to(uninterrupted)))
        assert follower.refresh()
        assert b"Finished." in follower.view.content
        assert str(copies).encode() not in follower.view.content


def test_no_secret_of_the_address_is_written_or_shown(
    small: list[str], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """memory:// takes any name, also one that looks like a password."""
    monkeypatch.setattr(arguments, "IN_MEMORY", ())  # the commands here are one process
    url = "memory://me:hunter2@host/secret-run"
    quick = replaced(one_population(small), ["--steps", "50", "--log", "tensorboard"])
    said = [cli(*quick, "--out", url), cli(*quick, "--out", url), cli("resume", url)]
    said += [cli("report", url, "--resamples", "50", "--out", tmp_path / "report")]
    assert [each.code for each in said] == [0, 2, 0, 0]
    assert "memory://host/secret-run" in said[0].out
    for each in said:
        assert "hunter2" not in each.out + each.err
    files = import_module("fsspec").filesystem("memory")
    found = files.find("/me:hunter2@host/secret-run")
    assert len(found) >= 8
    contents = [files.cat_file(path) for path in found]
    contents += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"hunter2" in content for content in contents)
    files.rm("/me:hunter2@host", recursive=True)


@pytest.mark.slow
def test_studies_at_an_address(tmp_path: Path, cli: Cli, copies: Path) -> None:
    url = f"local://{tmp_path}/studies"
    code, out, err = cli("reproduce", "lunarlander", "--scale", "smoke", "--out", f"{url}/lander")
    assert (code, err) == (0, "")
    assert f"{url}/lander/report/report.html: all of it as one page" in out
    code, out, err = cli("reproduce", "lunarlander", "--scale", "smoke", "--out", f"{url}/lander")
    assert (code, err, f"this run is finished: {url}/lander\n" in out) == (0, "", True)
    there = tmp_path / "studies"
    assert (there / "lander" / "report" / "report.html").stat().st_size > 1_000
    assert (there / "lander" / "report" / "figures" / "sensitivity.png").stat().st_size > 1_000

    grid = ("reproduce", "gridworld", "--scale", "smoke")
    for number in (1, 2):
        assert cli(*grid, "--shard", f"{number}/2", "--out", f"{url}/shards")[0] == 0
    assert cli(*grid, "--out", f"{url}/whole")[0] == 0
    assert "are there already" in cli(*grid, "--out", f"{url}/whole").out
    assert cli("report", f"{url}/shards", "--out", tmp_path / "report")[0] == 0
    norms = Path("tables") / "norms.parquet"
    whole = pl.read_parquet(there / "whole" / "report" / norms)
    assert pl.read_parquet(tmp_path / "report" / norms).equals(whole, null_equal=True)
    for path in [*there.rglob("*.json"), *tmp_path.glob("report/*.json")]:
        assert str(copies) not in path.read_text()
    assert left(copies) == []
