"""Runs at the addresses of a server of its own, which speaks FTP and hangs up on the silent."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from valueshare.runs.storage import stores
from valueshare.runs.storage.leases import Lease
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store, Unreachable

pytest.importorskip("pyftpdlib", reason="the FTP server of these tests is not installed")

SILENT_SECONDS = 1
SERVER = f"""
import sys
from pathlib import Path
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
users = DummyAuthorizer()
users.add_user("me", "hunter2", sys.argv[1], perm="elradfmwMT")
users.add_user("guest", "hunter2", sys.argv[1], perm="elr")
commands, busy = Path(sys.argv[1] + ".commands"), Path(sys.argv[1] + ".busy")
class Handler(FTPHandler):
    authorizer, timeout = users, {SILENT_SECONDS}
    def pre_process_command(self, line, cmd, arg):
        with commands.open("a") as file:
            print(cmd, file=file)
        if busy.exists() and busy.read_text() == f"{{cmd}} {{arg}}":
            busy.unlink()
            self.respond("425 Can't open data connection.")
        else:
            super().pre_process_command(line, cmd, arg)
server = FTPServer(("127.0.0.1", 0), Handler)
print(server.address[1], flush=True)
server.serve_forever()
"""


class Server(NamedTuple):
    """Where it listens, and the folder that its files are in."""

    port: str
    root: Path

    def url(self, name: str, user: str = "me") -> Url:
        return Url(f"ftp://{user}:hunter2@127.0.0.1:{self.port}/runs/{name}")

    def fail_once(self, line: str) -> None:
        """The next command like that gets a 425."""
        self._beside("busy").write_text(line)

    @property
    def has_failed(self) -> bool:
        return not self._beside("busy").exists()

    def commands(self) -> list[str]:
        return self._beside("commands").read_text().split()

    def _beside(self, suffix: str) -> Path:
        return self.root.with_name(f"{self.root.name}.{suffix}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    root = tmp_path / "served"
    root.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Server(process.stdout.readline().strip(), root)
    finally:
        process.kill()
        process.communicate()


# fsspec leaves the file open that it could not fill.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_files_come_back_as_they_went(server: Server, tmp_path: Path) -> None:
    store, file = Store(server.url("a")), tmp_path / "file"
    assert (store.sizes(), store.read("x"), store.get("x", file)) == ({}, None, False)
    assert not file.exists()
    store.write("b/c", b"123")  # in folders that are not there yet
    content = bytes(range(256)) * 2_000  # more than goes at once
    file.write_bytes(content)
    store.put(file, "b/d/e")
    assert store.sizes() == {"b/c": 3, "b/d/e": len(content)}
    assert (server.root / "runs/a/b/d/e").read_bytes() == content
    assert store.get("b/d/e", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    store.delete("b/c")
    store.delete("b/c")  # gone already
    assert list(store.sizes()) == ["b/d/e"]


def test_what_is_refused_is_said_at_once(server: Server) -> None:
    store = Store(server.url("a", user="guest"))
    for name in ("x", "b/c"):
        with pytest.raises(Unreachable, match=rf"cannot write {name} to ftp://127.*: 550 ") as said:
            store.write(name, b"123")
        assert "hunter2" not in str(said.value)
    Store(server.url("a")).write("x", b"123")
    with pytest.raises(Unreachable, match=r"cannot delete x of ftp://127.*: 550 "):
        store.delete("x")


def test_a_server_that_hung_up_has_not_lost_the_files(server: Server) -> None:
    """fsspec's own program then says that there are none."""
    store = Store(server.url("a"))
    lease = Lease(store)
    lease.write(patient=True)
    for _ in range(2):
        time.sleep(SILENT_SECONDS + 0.5)
        lease.renew()
        assert not lease.lost
    time.sleep(SILENT_SECONDS + 0.5)
    assert list(store.sizes()) == ["lease.json"]
    time.sleep(SILENT_SECONDS + 0.5)
    lease.release()
    assert store.sizes() == {}


def test_a_server_that_is_busy_has_not_lost_the_files(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAUSES", (0.0,))
    store = Store(server.url("a"))
    for name in ("x", "b/y", "b/c/z"):
        store.write(name, b"123")
    server.fail_once("RETR /runs/a/x")
    assert store.read("x") == b"123"
    assert server.has_failed
    for folder in ("", "/b", "/b/c"):
        server.fail_once(f"MLSD /runs/a{folder}")
        assert set(store.sizes()) == {"x", "b/y", "b/c/z"}
        assert server.has_failed
    server.fail_once("MLSD /runs/none")  # it is missing, but that was not said at first
    assert Store(server.url("none")).sizes() == {}
    assert server.has_failed
    server.fail_once("RETR /runs/a/x")
    with pytest.raises(Unreachable, match=r"cannot read x of ftp://127.*: 425 "):
        store.read("x", patient=False)


def test_a_lease_is_not_lost_to_a_busy_server(server: Server) -> None:
    lease = Lease(Store(server.url("a")))
    lease.write(patient=True)
    server.fail_once("RETR /runs/a/lease.json")
    lease.renew()
    assert server.has_failed
    assert not lease.lost


def test_a_file_goes_up_at_once(server: Server, tmp_path: Path) -> None:
    store, file = Store(server.url("a")), tmp_path / "file"
    store.write("x", b"123")  # the folder is there
    content = bytes(range(256)) * 4_096
    file.write_bytes(content)
    before = server.commands().count("STOR")
    store.put(file, "y")
    assert server.commands().count("STOR") - before == 1
    assert (server.root / "runs/a/y").read_bytes() == content


@pytest.mark.slow
def test_killed_and_resumed(
    server: Server,
    small: list[str],
    uninterrupted: Path,
    start: Callable[..., subprocess.Popen[str]],
    cli: Callable[..., Any],
    assert_same_end: Callable[[Path, Path], None],
) -> None:
    url, there = server.url("killed"), server.root / "runs" / "killed"
    process = start(*small, "--out", url.full)
    while not (there / "checkpoints/population-0/checkpoint-000001.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    lease = json.loads((there / "lease.json").read_text())
    (there / "lease.json").write_text(json.dumps(lease | {"renewed": 0}))  # as if long ago
    code, out, err = cli("resume", url.full)
    assert (code, err) == (0, "")
    assert "hunter2" not in out
    assert_same_end(there, uninterrupted)
    assert not (there / "lease.json").exists()
