"""Copies of runs at URLs: which files are sent and fetched, and in which order."""

from collections.abc import Callable
from pathlib import Path

import pytest

from valueshare.errors import InvalidInput
from valueshare.records import read_progress
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.remote import RunStorage, is_metadata
from valueshare.runs.storage.stores import Store, Unreachable

NAME = "population-1"


def write_phase(folder: Path, phase: int, *, kept: int = 2) -> None:
    """The files of a phase as a checkpoint leaves them, and those of old phases gone."""
    own = folder / "checkpoints" / NAME
    for path in (own, folder / "records", folder / "progress"):
        path.mkdir(parents=True, exist_ok=True)
    (folder / "records" / f"{NAME}-{phase:06d}.parquet").write_bytes(b"records %d" % phase)
    (own / f"state-{phase:06d}.safetensors").write_bytes(b"state %d" % phase)
    (own / f"checkpoint-{phase:06d}.json").write_text(f'{{"phase": {phase}}}')
    (own / "state-000009.safetensors.partial").write_bytes(b"half")
    for path in own.iterdir():
        if path.suffix != ".partial" and int(path.name.split("-")[1][:6]) <= phase - kept:
            path.unlink()


def test_weights_that_are_replaced_during_the_download_are_refused(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = make_copy(tmp_path / "run", url)
    for phase in range(2):
        write_phase(writer.folder, phase)
        writer.push_population(NAME)
    get, reader = Store.get, RunStorage(tmp_path / "other", url)

    def slow(self: Store, name: str, path: Path) -> bool:
        if "/state-" in name:  # the manifests are here already
            for phase in (2, 3):
                write_phase(writer.folder, phase)
                writer.push_population(NAME)
        return get(self, name, path)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "get", slow)
        with pytest.raises(InvalidInput, match="has changed while it was read: run the command again"):
            reader.pull_weights(NAME)
    reader.pull_weights(NAME)
    assert (reader.folder / f"checkpoints/{NAME}/state-000003.safetensors").read_bytes() == b"state 3"


def make_copy(folder: Path, url: Url) -> RunStorage:
    folder.mkdir()
    for name in ("config.json", "agents.parquet", "provenance.json"):
        (folder / name).write_text("{}")
    return RunStorage(folder, url)


def names(url: Url, phases: list[int]) -> set[str]:
    return {
        *("config.json", "agents.parquet", "provenance.json"),
        *(f"records/{NAME}-{phase:06d}.parquet" for phase in range(max(phases) + 1)),
        *(f"checkpoints/{NAME}/state-{phase:06d}.safetensors" for phase in phases),
        *(f"checkpoints/{NAME}/checkpoint-{phase:06d}.json" for phase in phases),
    }


def test_phases_are_sent_and_fetched(url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    put = Store.put

    def recorded(self: Store, path: Path, name: str) -> None:
        sent.append(name)
        put(self, path, name)

    monkeypatch.setattr(Store, "put", recorded)
    storage = make_copy(tmp_path / "run", url)
    storage.push()
    assert sent[-1] == "config.json"  # what says that it is a run comes last
    for phase in range(4):
        sent.clear()
        write_phase(storage.folder, phase)
        storage.push_population(NAME)
        # What is new, the manifest last.
        assert len(sent) == 3
        assert sent[-1] == f"checkpoints/{NAME}/checkpoint-{phase:06d}.json"
    assert not storage.has_unsent()
    assert set(storage.store.sizes()) == names(url, [2, 3])

    (tmp_path / "other").mkdir()
    other = RunStorage(tmp_path / "other", url)
    other.pull_population(NAME, 3)  # what the newest checkpoint names
    assert not (other.folder / f"checkpoints/{NAME}/state-000002.safetensors").exists()
    other.pull_population(NAME)
    for name in names(url, [2, 3]) - {"provenance.json"}:
        assert (other.folder / name).read_bytes() == (storage.folder / name).read_bytes()
    assert not any(path.suffix == ".partial" for path in other.folder.rglob("*"))
    sent.clear()
    # A phase that is made again, because it was damaged: other bytes, or the same size.
    state = f"checkpoints/{NAME}/state-000003.safetensors"
    (other.folder / state).write_bytes(b"state X")
    other.push_population(NAME)
    assert sent == [state]
    storage.pull_population(NAME)  # which pushed the first one
    assert (storage.folder / state).read_bytes() == b"state X"


def test_one_that_was_given_up_for_lost_deletes_nothing_that_is_newer(url: Url, tmp_path: Path) -> None:
    lost, other = (make_copy(tmp_path / name, url) for name in ("lost", "other"))
    for phase in (0, 1):
        write_phase(lost.folder, phase)
        lost.push_population(NAME)
    other.pull_population(NAME)
    for phase in (2, 3):
        write_phase(other.folder, phase)
        other.push_population(NAME)
    write_phase(lost.folder, 2)  # it still runs
    lost.push_population(NAME)
    there = set(other.store.sizes())
    assert {f"checkpoints/{NAME}/checkpoint-{phase:06d}.json" for phase in (2, 3)} <= there
    assert f"checkpoints/{NAME}/state-000003.safetensors" in there


def test_a_phase_that_was_cut_off_is_not_there(url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = make_copy(tmp_path / "run", url)
    write_phase(storage.folder, 0)
    storage.push_population(NAME)
    write_phase(storage.folder, 1)
    put = Store.put

    def full(self: Store, path: Path, name: str) -> None:
        if name.startswith("records"):
            raise Unreachable(28, "no space left")
        put(self, path, name)

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(Unreachable):
        storage.push_population(NAME)
    assert storage.has_unsent()
    found = set(storage.store.sizes())
    assert f"checkpoints/{NAME}/checkpoint-000001.json" not in found
    assert f"checkpoints/{NAME}/checkpoint-000000.json" in found
    assert f"checkpoints/{NAME}/state-000000.safetensors" in found  # nothing is deleted before
    monkeypatch.undo()
    storage.push_population(NAME)
    assert not storage.has_unsent()


def test_names_that_lead_out_of_the_folder_are_not_fetched(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    storage = RunStorage(tmp_path / "run", url)
    storage.store.write("config.json", b"{}")
    for name in ("../config.json", "/config.json", "a/../../config.json", "./config.json", ".."):
        versions = dict.fromkeys((name, "config.json"), (2, ""))
        monkeypatch.setattr(storage.store, "versions", lambda versions=versions: versions)
        storage.pull(lambda name: True)
        assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
            *("run", "run/config.json")
        ]
    assert is_metadata("shard-1-of-2/records/population-0-000001.parquet")
    assert not is_metadata("checkpoints/population-0/state-000001.safetensors")


def test_news_are_progress_and_records(url: Url, tmp_path: Path) -> None:
    worker, driver = (make_copy(tmp_path / name, url) for name in ("worker", "driver"))
    for phase in (0, 1):
        write_phase(worker.folder, phase)
        text = f'{{"step": {phase}, "phases": {phase + 1}, "seconds": 1, "attempts": 1}}'
        (worker.folder / "progress" / f"{NAME}.json").write_text(text)
        worker.push_population(NAME)
        worker.push_progress(NAME)
        driver.pull_progress(at_once=True)
        assert (driver.folder / "progress" / f"{NAME}.json").read_text() == text
        assert (driver.folder / "records" / f"{NAME}-{phase:06d}.parquet").exists()
        assert (driver.folder / f"checkpoints/{NAME}/checkpoint-{phase:06d}.json").exists()
    assert not list(driver.folder.rglob("*.safetensors"))
    for name in ("progress/../../out/progress/a.json", "progress/a/../../../progress/a.json"):
        worker.store.write(name, b'{"phases": 1}')  # memory:// takes them as they are
    driver.pull_progress(at_once=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["driver", "worker"]
    assert sorted(path.name for path in (driver.folder / "progress").iterdir()) == [f"{NAME}.json"]
    worker.store.write(f"progress/{NAME}.json", b"")  # half of it, this moment
    driver.pull_progress(at_once=True)
    assert read_progress(driver.folder, NAME).phases == 2  # it never goes back


@pytest.mark.parametrize("phases", ["1e400", "1e12", "1000000000000", "-1", "true", '"2"', "[1]", "1" + "0" * 5_000])
def test_progress_at_an_address_is_untrusted(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phases: str
) -> None:
    """One phase is there. Neither a number of phases that is none, nor one without records, is taken."""
    worker, driver = (make_copy(tmp_path / name, url) for name in ("worker", "driver"))
    write_phase(worker.folder, 0)
    worker.push()
    get, tries = Store.get, [0]

    def counted(self: Store, name: str, path: Path) -> bool:
        tries[0] += 1
        assert tries[0] < 10, "it does not end"
        return get(self, name, path)

    monkeypatch.setattr(Store, "get", counted)
    worker.store.write(f"progress/{NAME}.json", f'{{"step": 1, "phases": {phases}}}'.encode())
    driver.pull_progress(at_once=True)
    assert read_progress(driver.folder, NAME).phases == 0
    worker.store.write(f"progress/{NAME}.json", b'{"step": 1, "phases": 1}')  # as it should be
    driver.pull_progress(at_once=True)
    assert read_progress(driver.folder, NAME).phases == 1


@pytest.mark.parametrize("news", [RunStorage.pull_progress, lambda storage, **_: storage.pull(is_metadata)])
def test_a_phase_that_is_run_again_replaces_its_old_records(
    url: Url, tmp_path: Path, news: Callable[..., None]
) -> None:
    """The last phase of a run that is extended; its files have as many bytes as before."""
    worker, driver = make_copy(tmp_path / "worker", url), RunStorage(tmp_path / "driver", url)
    for phase in (0, 1):
        write_phase(worker.folder, phase)
    worker.push()
    driver.pull(is_metadata)
    (driver.folder / "progress").mkdir()
    progress = Path("progress") / f"{NAME}.json"
    (driver.folder / progress).write_text('{"step": 1, "phases": 1, "seconds": 1, "attempts": 1}')
    names = f"records/{NAME}-000001.parquet", f"checkpoints/{NAME}/checkpoint-000001.json"
    for name in names:
        new = (worker.folder / name).read_bytes().replace(b"1", b"7")
        (worker.folder / name).write_bytes(new)
    worker.push_population(NAME)
    (worker.folder / progress).write_text('{"step": 2, "phases": 2, "seconds": 1, "attempts": 2}')
    worker.push_progress(NAME)
    news(driver, at_once=True)
    for name in names:
        assert (driver.folder / name).read_bytes() == (worker.folder / name).read_bytes()
