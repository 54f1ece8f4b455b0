"""Stores: attempts, listings and errors of files at a URL."""

import errno
import os
import re
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.runs.storage import stores
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.remote import RunStorage
from valueshare.runs.storage.stores import Store, Unreachable


class NoCredentialsError(Exception):
    """As botocore calls it."""


def test_another_attempt_is_made_and_then_it_is_said(url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_that_is_being_replaced_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(Url(f"local://{tmp_path}/served"))
    store.write("in/file", b"the first")
    seen = []

    def write_half(self: object, path: str, data: bytes) -> None:
        Path(path).write_bytes(data[:3])
        seen.append(store.read("in/file"))
        raise PermissionError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(type(store._files), "pipe_file", write_half)
        with pytest.raises(Unreachable):
            store.write("in/file", b"the second")
    assert (seen, store.read("in/file")) == ([b"the first"], b"the first")
    store.write("in/file", b"the second")
    assert store.read("in/file") == b"the second"
    # What the killed upload left is removed by the next process that trains the population.
    (tmp_path / "served" / "checkpoints").mkdir()
    (tmp_path / "served" / "in").rename(tmp_path / "served" / "checkpoints" / "population-0")
    RunStorage(tmp_path / "copy", store.url).pull_population("population-0")
    assert store.sizes() == {"checkpoints/population-0/file": len(b"the second")}


def test_a_folder_that_could_not_be_listed_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert set(store.sizes("b")) == {"b/c", "b/d/e"}  # the root of what was asked for
    failures[str(tmp_path / "run/b")] = [FileNotFoundError(errno.ENOENT, "as it is replaced")]
    assert set(store.sizes()) == there
    assert set(store.sizes("b")) == {"b/c", "b/d/e"}


def test_reading_a_file_does_not_change_its_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings have the fields that fsspec's SFTP driver gives; `time` is the time of the last access."""
    store = Store(Url(f"local://{tmp_path}"))

    def ls(self: object, path: str, **_: object) -> list[dict[str, Any]]:
        found = [(file, file.stat()) for file in Path(path).iterdir()]
        times = {file: {"time": about.st_atime_ns, "mtime": about.st_mtime_ns} for file, about in found}
        return [{"name": str(file), "size": about.st_size, "type": "file", **times[file]} for file, about in found]

    monkeypatch.setattr(type(store._files), "ls", ls)
    store.write("a", b"1")
    before, file = store.versions(), tmp_path / "a"
    os.utime(file, ns=(file.stat().st_atime_ns + 10**9, file.stat().st_mtime_ns))  # as a download leaves it
    assert store.versions() == before
    os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 10**9))
    assert store.versions() != before


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

    monkeypatch.setattr("fsspec.core.url_to_fs", unknown)
    start = "sftp://nowhere/a is not a location of a run"
    with pytest.raises(InvalidInput, match=f"^{start}: name or service not known$"):
        Store(Url("sftp://me:hunter2@nowhere/a"))


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="x is not a location of a run: Protocol not known"):
        Store(Url("nothere://x"))
    if find_spec("s3fs") is None:
        with pytest.raises(InvalidInput, match="s3:// has no driver here: Install s3fs"):
            Store(Url("s3://bucket/run"))

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(stores, "import_module", missing)
    with pytest.raises(InvalidInput, match=re.escape(install_command("remote"))):
        Store(Url("memory://x"))
