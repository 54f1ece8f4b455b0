"""Copies of runs at addresses, without a run: places, stores, what is sent when, and leases."""

import errno
import re
import socket
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Semaphore, Thread
from typing import Any

import pytest

from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.runs.progress import read_progress
from valueshare.runs.storage import copies, leases, stores
from valueshare.runs.storage.copies import reading_copies, stored_config, working_copy
from valueshare.runs.storage.leases import LEASE, leased
from valueshare.runs.storage.places import Url, located
from valueshare.runs.storage.remote import Copy, is_small
from valueshare.runs.storage.stores import Store, Unreachable

PART = "population-1"


@pytest.fixture
def url() -> Iterator[Url]:
    """An address in memory, empty before and after."""
    found = Url("memory://somewhere/run")
    files = import_module("fsspec").filesystem("memory")
    yield found
    if files.exists("/somewhere"):
        files.rm("/somewhere", recursive=True)


# Places


def test_where_a_run_can_be() -> None:
    assert located("file:///a/b") == located(Path("file:///a/b")) == Path("/a/b")
    assert located("runs/a:b") == Path("runs/a:b")
    assert located("C:/runs") == Path("C:/runs")
    for text, shown in (
        ("s3://bucket/runs/a/", "s3://bucket/runs/a"),
        ("S3://bucket/a", "s3://bucket/a"),
        ("hdfs:///user/a", "hdfs:///user/a"),
        ("local:///tmp/a", "local:///tmp/a"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
    ):
        assert str(located(text)) == shown
    for text in ("s3://bucket/a", "memory://run", "local:///tmp/a"):  # a path loses a slash
        assert located(Path(text)) == located(text)
    for text, message in (
        ("s3://", "no place for a run: write s3://BUCKET/RUN"),
        ("s3:///a", "s3:///a is no place for a run: write s3://BUCKET/RUN"),
        ("ftp:///a", "ftp:///a is no place for a run: write ftp://HOST/RUN"),
        ("ftp://me:hunter2@/a", "ftp:///a is no place for a run: write ftp://HOST/RUN"),
        ("ftp://:21/a", "ftp://:21/a is no place for a run: write ftp://HOST/RUN"),
        ("simplecache::s3://bucket/a", "one address, not a chain"),
        ("s3://bucket/a?token=hunter2", "goes on with"),
    ):
        with pytest.raises(InvalidInput, match=message) as said:
            located(text)
        assert "hunter2" not in str(said.value)


def test_an_address_is_shown_without_its_secrets() -> None:
    address = located("ftp://me:hunter2@host:21/runs/a")
    assert isinstance(address, Url)
    assert str(address / "records") == "ftp://host:21/runs/a/records"
    for shown in (repr(address), f"{address}", repr([address]), repr((address,))):
        assert "hunter2" not in shown
        assert "me" not in shown
    said = address.scrubbed(f"no route to {address.full}; login me:hunter2 failed for hunter2")
    assert "hunter2" not in said
    assert "ftp://host:21/runs/a" in said
    coded = located("ftp://me:p%40ss@host")  # said as it is written, or as it is meant
    assert isinstance(coded, Url)
    assert coded.name == "host"  # it becomes a folder's name
    assert "ss" not in coded.scrubbed("login p%40ss or p@ss")


# Stores


def test_a_store_reads_what_it_was_given(url: Url, tmp_path: Path) -> None:
    store, file = Store(url), tmp_path / "file"
    assert (store.sizes(), store.read("a"), store.get("a", file)) == ({}, None, False)
    assert not file.exists()
    store.write("a", b"123")
    file.write_bytes(b"12345")
    store.put(file, "b/c")
    assert store.sizes() == {"a": 3, "b/c": 5}
    assert store.sizes("b") == {"b/c": 5}
    assert store.get("a", tmp_path / "d" / "e")
    assert (tmp_path / "d" / "e").read_bytes() == b"123"
    store.delete("a")
    store.delete("a")  # gone already
    assert list(store.sizes()) == ["b/c"]


class NoCredentialsError(Exception):
    """As botocore calls it."""


def test_another_attempt_is_made_and_then_it_is_said(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAUSES", (0.0, 0.0))
    store = Store(url)
    tries: list[object] = []

    def failing(times: int, error: Exception) -> Callable[..., bytes]:
        def cat(self: object, path: str) -> bytes:
            tries.append(self)
            if len(tries) <= times:
                raise error
            return b"at last"

        return cat

    def fail(times: int, error: Exception) -> None:
        tries.clear()
        monkeypatch.setattr(type(store._files), "cat_file", failing(times, error))

    fail(2, RuntimeError("throttled"))
    assert store.read("a") == b"at last"
    assert len({id(files) for files in tries}) == 3  # each on a connection of its own
    fail(9, RuntimeError("throttled\nwith more"))
    with pytest.raises(Unreachable, match=f"cannot read a of {url}: throttled$"):
        store.read("a")
    assert len(tries) == 3
    for error in (PermissionError("not yours"), NoCredentialsError("not yours")):
        fail(9, error)
        with pytest.raises(Unreachable, match="not yours"):
            store.read("a")
        assert len(tries) == 1  # no use in asking again


def test_a_folder_that_could_not_be_listed_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAUSES", (0.0,))
    store, there = Store(Url(f"local://{tmp_path}/run")), {"a", "b/c", "b/d/e"}
    assert store.sizes() == {}  # a missing root is
    for name in there:
        store.write(name, b"123")
    kind = type(store._files)
    listing, failures = kind.ls, dict[str, list[OSError]]()

    def ls(self: object, path: str, *args: Any, **options: Any) -> Any:
        if failures.get(path):
            raise failures[path].pop()
        return listing(self, path, *args, **options)

    monkeypatch.setattr(kind, "ls", ls)
    for folder in ("run", "run/b", "run/b/d"):
        path = str(tmp_path / folder)
        failures[path] = [OSError(errno.EIO, "gone for a moment")]
        assert set(store.sizes()) == there
        assert failures == {path: []}
        failures[path] = [OSError(errno.EIO, "gone for good")] * 2
        with pytest.raises(Unreachable, match="cannot list local://"):
            store.sizes()
        failures.clear()
    failures[str(tmp_path / "run/b")] = [FileNotFoundError(errno.ENOENT, "as it is replaced")]
    assert set(store.sizes("b")) == set()  # the root of what was asked for
    failures[str(tmp_path / "run/b")] = [FileNotFoundError(errno.ENOENT, "as it is replaced")]
    assert set(store.sizes()) == there
    assert set(store.sizes("b")) == {"b/c", "b/d/e"}


def test_a_search_of_the_protocols_own_is_used(url: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(url)
    store.write("a/b", b"123")

    def ls(*_: object, **__: object) -> None:
        raise AssertionError("it went from folder to folder")

    found = dict(store._files.find(store._root, detail=True))
    monkeypatch.setattr(type(store._files), "find", lambda *_, **__: found)
    monkeypatch.setattr(type(store._files), "ls", ls)
    assert store.sizes() == {"a/b": 3}


def test_a_host_that_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    place = "ftp://nowhere/a is no place for a run"
    with pytest.raises(InvalidInput, match=f"^{place}: name or service not known$"):
        Store(Url("ftp://me:hunter2@nowhere/a"))


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="nothere://x is no place for a run: Protocol not known"):
        Store(Url("nothere://x"))
    if find_spec("s3fs") is None:
        with pytest.raises(InvalidInput, match="s3:// has no driver here: Install s3fs"):
            Store(Url("s3://bucket/run"))

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(stores, "import_module", missing)
    with pytest.raises(InvalidInput, match=re.escape(install_command("remote"))):
        Store(Url("memory://x"))


# What is sent, in which order, and what is fetched


def write_phase(folder: Path, phase: int, *, kept: int = 2) -> None:
    """The files of a phase as a checkpoint leaves them, and those of old phases gone."""
    own = folder / "checkpoints" / PART
    for path in (own, folder / "records", folder / "progress"):
        path.mkdir(parents=True, exist_ok=True)
    (folder / "records" / f"{PART}-{phase:06d}.parquet").write_bytes(b"records %d" % phase)
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
        *(f"records/{PART}-{phase:06d}.parquet" for phase in range(max(phases) + 1)),
        *(f"checkpoints/{PART}/state-{phase:06d}.safetensors" for phase in phases),
        *(f"checkpoints/{PART}/checkpoint-{phase:06d}.json" for phase in phases),
    }


def test_phases_are_sent_and_fetched(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        copy.push_part(PART)
        # What is new, the manifest last.
        assert len(sent) == 3
        assert sent[-1] == f"checkpoints/{PART}/checkpoint-{phase:06d}.json"
    assert not copy.has_unsent()
    assert set(copy.store.sizes()) == names(url, [2, 3])

    (tmp_path / "other").mkdir()
    other = Copy(tmp_path / "other", url)
    other.pull_part(PART, 3)  # what the newest checkpoint names
    assert not (other.folder / f"checkpoints/{PART}/state-000002.safetensors").exists()
    other.pull_part(PART)
    for name in names(url, [2, 3]) - {"provenance.json"}:
        assert (other.folder / name).read_bytes() == (copy.folder / name).read_bytes()
    assert not any(path.suffix == ".partial" for path in other.folder.rglob("*"))
    sent.clear()
    # A phase that is made again, because it was damaged: other bytes, or the same size.
    (other.folder / f"checkpoints/{PART}/state-000003.safetensors").write_bytes(b"state X")
    other.push_part(PART)
    assert sent == [f"checkpoints/{PART}/state-000003.safetensors"]


def test_one_that_was_given_up_for_lost_deletes_nothing_that_is_newer(
    url: Url, tmp_path: Path
) -> None:
    lost, other = (make_copy(tmp_path / name, url) for name in ("lost", "other"))
    for phase in (0, 1):
        write_phase(lost.folder, phase)
        lost.push_part(PART)
    other.pull_part(PART)
    for phase in (2, 3):
        write_phase(other.folder, phase)
        other.push_part(PART)
    write_phase(lost.folder, 2)  # it still runs
    lost.push_part(PART)
    there = set(other.store.sizes())
    assert {f"checkpoints/{PART}/checkpoint-{phase:06d}.json" for phase in (2, 3)} <= there
    assert f"checkpoints/{PART}/state-000003.safetensors" in there


def test_a_phase_that_was_cut_off_is_not_there(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = make_copy(tmp_path / "run", url)
    write_phase(copy.folder, 0)
    copy.push_part(PART)
    write_phase(copy.folder, 1)
    put = Store.put

    def full(self: Store, path: Path, name: str) -> None:
        if name.startswith("records"):
            raise Unreachable(28, "no space left")
        put(self, path, name)

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(Unreachable):
        copy.push_part(PART)
    assert copy.has_unsent()
    found = set(copy.store.sizes())
    assert f"checkpoints/{PART}/checkpoint-000001.json" not in found
    assert f"checkpoints/{PART}/checkpoint-000000.json" in found
    assert f"checkpoints/{PART}/state-000000.safetensors" in found  # nothing is deleted before
    monkeypatch.undo()
    copy.push_part(PART)
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
        (worker.folder / "progress" / f"{PART}.json").write_text(text)
        worker.push_part(PART)
        worker.push_progress(PART)
        driver.pull_news(at_once=True)
        assert (driver.folder / "progress" / f"{PART}.json").read_text() == text
        assert (driver.folder / "records" / f"{PART}-{phase:06d}.parquet").exists()
        assert (driver.folder / f"checkpoints/{PART}/checkpoint-{phase:06d}.json").exists()
    assert not list(driver.folder.rglob("*.safetensors"))
    for name in ("progress/../../out/progress/a.json", "progress/a/../../../progress/a.json"):
        worker.store.write(name, b'{"phases": 1}')  # memory:// takes them as they are
    driver.pull_news(at_once=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["driver", "worker"]
    assert sorted(path.name for path in (driver.folder / "progress").iterdir()) == [f"{PART}.json"]
    worker.store.write(f"progress/{PART}.json", b"")  # half of it, this moment
    driver.pull_news(at_once=True)
    assert read_progress(driver.folder, PART).phases == 2  # it never goes back


# Copies


def test_copies_go_and_what_was_left_goes_too(
    url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with working_copy(url) as copy:
        (above,) = tmp_path.iterdir()
        assert above.stat().st_mode & 0o077 == 0
        assert copy.folder.name == "run"
        assert not copy.folder.exists()
        left = above / "copy-left"
        left.mkdir()
        monkeypatch.setattr(copies, "YOUNG_SECONDS", -1.0)
        with working_copy(url) as second:  # takes away what is nobody's, and not what is held
            assert not left.exists()
            assert copy.folder.parent.exists()
            assert second.folder.parent != copy.folder.parent
    assert list(above.iterdir()) == []
    with pytest.raises(InvalidInput, match=f"{url} is wrong$"), working_copy(url) as copy:
        raise InvalidInput(f"{copy.folder} is wrong")
    assert stored_config(url) is None
    Store(url).write("config.json", b'{"a": 1}')
    assert stored_config(url) == {"a": 1}
    with reading_copies([url, tmp_path]) as reading:
        assert (reading.folders[0] / "config.json").read_bytes() == b'{"a": 1}'
        assert reading.folders[1] == tmp_path
    assert list(above.iterdir()) == []


# Leases


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("RENEW", 0.05), ("LEASE", 1.0), ("SETTLE", 0.05), ("LOOK", 0.02)):
        monkeypatch.setattr(leases, f"{name}_SECONDS", seconds)


@pytest.mark.usefixtures("quick")
def test_a_second_driver_is_refused_and_a_third_is_not(url: Url) -> None:
    store, said = Store(url), list[str]()
    with leased(store, said.append) as lease:
        assert said == []
        with (  # it was seen to be renewed, or it would have run out
            pytest.raises(InvalidInput, match=f"{url} is being trained by another process"),
            leased(Store(url), said.append),
        ):
            pass
        assert not lease.lost
    assert LEASE not in store.sizes()
    assert len(said) == 1
    with leased(store, said.append):
        pass
    assert len(said) == 1


@pytest.mark.usefixtures("quick")
def test_a_lease_runs_out_when_its_owner_is_killed(url: Url) -> None:
    store = Store(url)
    leases.Lease(store).write()  # and never again
    began = time.monotonic()
    with leased(store, lambda line: None):
        assert time.monotonic() - began >= 1.0
    store.write(LEASE, b"")  # cut off while it was written: nothing is known of it
    assert leases._read(store) == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "POLL_SECONDS", 0.0)
        looks = iter([{}, {}, {"token": "x", "beat": 1}])
        patch.setattr(leases, "_read", lambda store: next(looks))
        with pytest.raises(InvalidInput, match="another process"):
            leases._wait_for(store, lambda line: None)
    values: dict[str, Any] = {"token": "x", "beat": 1, "seconds": 100, "renewed": 0}
    store.write(LEASE, str(values).replace("'", '"').encode())
    began = time.monotonic()
    with leased(store, lambda line: None):  # of 1970: no need to wait for 100 seconds
        assert time.monotonic() - began < 50


@pytest.mark.usefixtures("quick")
def test_a_lease_is_given_back_by_a_driver_that_is_stopped_while_it_takes_it(
    url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", stopped)
    with pytest.raises(KeyboardInterrupt), leased(Store(url), lambda line: None):
        pass
    assert LEASE not in Store(url).sizes()


@pytest.mark.usefixtures("quick")
def test_a_lease_outlives_a_store_that_fails_now_and_then(
    url: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renewing asks once and goes on: with the pauses of other files it would be late."""
    read, asked = Store.read, list[bool]()

    def failing(self: Store, name: str, *, patient: bool = True) -> bytes | None:
        asked.append(patient)
        if len(asked) % 2:
            raise Unreachable(5, "throttled")
        return read(self, name, patient=patient)

    store = Store(url)
    with leased(store, lambda line: None) as lease:
        monkeypatch.setattr(Store, "read", failing)
        for _ in range(3_000):
            if len(asked) >= 4:
                break
            time.sleep(0.02)
        monkeypatch.undo()
        assert not lease.lost
        assert len(asked) >= 4
        assert not any(asked)
    assert LEASE not in store.sizes()


def test_each_thread_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """As FTP's need it; local:// has one a thread as well."""
    store, found = Store(Url(f"local://{tmp_path}")), list[object]()
    thread = Thread(target=lambda: found.append(store._files))
    thread.start()
    thread.join()
    assert store._files is store._files
    assert found[0] is not store._files


@pytest.mark.usefixtures("quick")
def test_an_owner_that_was_silent_for_too_long_learns_of_it(url: Url) -> None:
    store = Store(url)
    with leased(store, lambda line: None) as lease:
        other = leases.Lease(store)
        other.write()
        for _ in range(3_000):
            time.sleep(0.02)
            if lease.lost:
                break
        assert lease.lost
    assert other.is_own()  # and its lease is not the first one's to give back


@pytest.mark.usefixtures("quick")
def test_of_two_at_the_same_moment_one_gets_it(url: Url) -> None:
    won, ready, refused = list[int](), Event(), Semaphore(0)

    def take(number: int) -> None:
        ready.wait()
        try:
            with leased(Store(url), lambda line: None):
                won.append(number)
                for _ in range(3):  # it keeps the lease until all others have asked
                    refused.acquire(timeout=20)
        except InvalidInput:
            refused.release()

    threads = [Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    ready.set()
    for thread in threads:
        thread.join()
    assert len(won) == 1
