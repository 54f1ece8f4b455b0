"""Copies of runs at addresses: which files are sent and fetched, and in which order."""

from pathlib import Path

import pytest

from valueshare.records import read_progress
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.remote import Copy, is_small
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


def make_copy(folder: Path, url: Url) -> Copy:
    folder.mkdir()
    for name in ("config.json", "agents.parquet", "provenance.json"):
        (folder / name).write_text("{}")
    return Copy(folder, url)


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
    copy = make_copy(tmp_path / "run", url)
    copy.push()
    assert sent[-1] == "config.json"  # what says that it is a run comes last
    for phase in range(4):
        sent.clear()
        write_phase(copy.folder, phase)
        copy.push_population(NAME)
        # What is new, the manifest last.
        assert len(sent) == 3
        assert sent[-1] == f"checkpoints/{NAME}/checkpoint-{phase:06d}.json"
    assert not copy.has_unsent()
    assert set(copy.store.sizes()) == names(url, [2, 3])

    (tmp_path / "other").mkdir()
    other = Copy(tmp_path / "other", url)
    other.pull_population(NAME, 3)  # what the newest checkpoint names
    assert not (other.folder / f"checkpoints/{NAME}/state-000002.safetensors").exists()
    other.pull_population(NAME)
    for name in names(url, [2, 3]) - {"provenance.json"}:
        assert (other.folder / name).read_bytes() == (copy.folder / name).read_bytes()
    assert not any(path.suffix == ".partial" for path in other.folder.rglob("*"))
    sent.clear()
    # A phase that is made again, because it was damaged: other bytes, or the same size.
    (other.folder / f"checkpoints/{NAME}/state-000003.safetensors").write_bytes(b"state X")
    other.push_population(NAME)
    assert sent == [f"checkpoints/{NAME}/state-000003.safetensors"]


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
    copy = make_copy(tmp_path / "run", url)
    write_phase(copy.folder, 0)
    copy.push_population(NAME)
    write_phase(copy.folder, 1)
    put = Store.put

    def full(self: Store, path: Path, name: str) -> None:
        if name.startswith("records"):
            raise Unreachable(28, "no space left")
        put(self, path, name)

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(Unreachable):
        copy.push_population(NAME)
    assert copy.has_unsent()
    found = set(copy.store.sizes())
    assert f"checkpoints/{NAME}/checkpoint-000001.json" not in found
    assert f"checkpoints/{NAME}/checkpoint-000000.json" in found
    assert f"checkpoints/{NAME}/state-000000.safetensors" in found  # nothing is deleted before
    monkeypatch.undo()
    copy.push_population(NAME)
    assert not copy.has_unsent()


def test_names_that_lead_out_of_the_folder_are_not_fetched(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    copy = Copy(tmp_path / "run", url)
    copy.store.write("config.json", b"{}")
    for name in ("../config.json", "/config.json", "a/../../config.json", "./config.json", ".."):
        sizes = {name: 2, "config.json": 2}
        monkeypatch.setattr(copy.store, "sizes", lambda sizes=sizes: sizes)
        copy.pull(lambda name: True)
        assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
            *("run", "run/config.json")
        ]
    assert is_small("shard-1-of-2/records/population-0-000001.parquet")
    assert not is_small("checkpoints/population-0/state-000001.safetensors")


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
