"""The contract of a URL that can hold a run.

Every address of `ADDRESSES` passes it. To check another one, with its driver and credentials:

    VALUESHARE_TEST_ADDRESS=s3://bucket/empty/folder pytest tests/runs/storage/test_contract.py
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from valueshare.errors import InvalidInput
from valueshare.runs.storage.leases import leased
from valueshare.runs.storage.locations import Url, resolve_location
from valueshare.runs.storage.remote import RunStorage
from valueshare.runs.storage.stores import Store

ADDRESSES = ["memory://contract", "local://FOLDER"]
OWN = os.environ.get("VALUESHARE_TEST_ADDRESS")


@pytest.fixture(params=[*ADDRESSES, *([OWN] if OWN else [])])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store at a new address, of which nothing is left afterwards."""
    address = str(request.param).replace("FOLDER", str(tmp_path / "served"))
    url = resolve_location(f"{address}/{secrets.token_hex(4)}")
    assert isinstance(url, Url)
    made = Store(url)
    yield made
    for name in made.sizes():
        made.delete(name)


def test_an_empty_address_has_no_files(store: Store, tmp_path: Path) -> None:
    assert (store.sizes(), store.versions("a"), store.read("a")) == ({}, {}, None)
    assert not store.get("a", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    store.delete("a")  # no error


def test_files_come_back_as_they_were_written(store: Store, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4_096  # 1 MiB
    (tmp_path / "file").write_bytes(content)
    store.write("small", b"123")
    store.write("empty", b"")
    store.put(tmp_path / "file", "in/two folders/large")  # folders that do not exist yet
    assert store.sizes() == {"small": 3, "empty": 0, "in/two folders/large": len(content)}
    assert store.sizes("in") == {"in/two folders/large": len(content)}
    assert store.read("small") == b"123"
    assert store.get("in/two folders/large", tmp_path / "below" / "back")
    assert (tmp_path / "below" / "back").read_bytes() == content


def test_a_new_version_replaces_the_old_one(store: Store) -> None:
    store.write("a", b"1")
    before = store.versions("")
    store.write("a", b"22")
    assert (store.read("a"), store.sizes()) == (b"22", {"a": 2})
    assert store.versions("") != before


def test_a_deleted_file_is_gone_for_every_reader(store: Store) -> None:
    other = Store(store.url)
    store.write("a/b", b"1")
    assert other.sizes() == {"a/b": 1}  # and listings are not cached
    store.delete("a/b")
    assert (other.sizes(), other.read("a/b")) == ({}, None)


def test_other_threads_see_the_same_files(store: Store) -> None:
    thread = Thread(target=lambda: store.write("a", b"1"))
    thread.start()
    thread.join()
    assert store.read("a") == b"1"


def test_a_copy_is_fetched_as_it_was_sent(store: Store, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    for name in ("config.json", "records/population-0-000000.parquet"):
        (sent / name).parent.mkdir(parents=True, exist_ok=True)
        (sent / name).write_text(name)
    RunStorage(sent, store.url).push()
    fetched = RunStorage(tmp_path / "fetched", store.url)
    fetched.pull(lambda name: True)
    for path in sent.rglob("*.*"):
        assert (fetched.folder / path.relative_to(sent)).read_bytes() == path.read_bytes()


@pytest.mark.usefixtures("quick")
def test_a_lease_has_one_holder(store: Store) -> None:
    with leased(store, lambda line: None) as lease:
        with (
            pytest.raises(InvalidInput, match="is being trained by another process"),
            leased(Store(store.url), lambda line: None),
        ):
            pass
        assert not lease.lost
    assert store.sizes() == {}
