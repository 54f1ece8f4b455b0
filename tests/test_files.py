"""Files appear whole or not at all, and are on the disk before their names are."""

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from valueshare.errors import InvalidInput
from valueshare.files import (
    DiskFull,
    atomic_write,
    file_digest,
    make_parents,
    refuse_links,
    remove_empty,
    remove_temporary_files,
    sync_tree,
    write_json,
)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_chunks_are_written_in_order_with_their_checksum(tmp_path: Path) -> None:
    path = tmp_path / "file"
    chunks: list[bytes | memoryview] = [b"one", memoryview(b"two"), b""]
    digest = atomic_write(path, iter(chunks))
    assert path.read_bytes() == b"onetwo"
    assert digest == file_digest(path) == hashlib.blake2b(b"onetwo", digest_size=32).hexdigest()
    assert names(tmp_path) == ["file"]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that reach the disk, in order: `sync NAME` and `rename OLD NEW`."""
    done: list[str] = []
    sync, replace, rename = os.fsync, Path.replace, Path.rename

    def logged_sync(handle: int) -> None:
        sync(handle)
        done.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")

    def logged_replace(self: Path, to: Path) -> Path:
        done.append(f"rename {self.name} {to.name}")
        return replace(self, to)

    def logged_rename(self: Path, to: Path) -> Path:
        done.append(f"rename {self.name} {to.name}")
        return rename(self, to)

    monkeypatch.setattr(os, "fsync", logged_sync)
    monkeypatch.setattr(Path, "replace", logged_replace)
    monkeypatch.setattr(Path, "rename", logged_rename)
    return done


def test_bytes_before_the_name_and_the_name_before_the_return(tmp_path: Path, log: list[str]) -> None:
    atomic_write(tmp_path / "file", [b"x"])
    name = log[0].removeprefix("sync ")
    assert re.fullmatch(r"file\.[0-9a-f]{16}\.partial", name)
    assert log == [f"sync {name}", f"rename {name} file", f"sync {tmp_path.name}"]


def test_a_results_folder_is_synced_with_all_that_is_in_it_before_it_moves(tmp_path: Path, log: list[str]) -> None:
    from valueshare.runs.directory import results_folder

    with results_folder(tmp_path / "new" / "out", {"valueshare": "1"}) as staging:
        (staging / "records").mkdir()
        (staging / "records" / "plain").write_text("by another library, which does not sync")
        del log[:]
    moved = log.index(f"rename {staging.name} out")
    before, after = log[:moved], log[moved + 1 :]
    synced = {"sync config.json", "sync records", "sync plain", f"sync {staging.name}"}
    assert set(before) == synced
    assert before[-1] == f"sync {staging.name}"
    assert after == ["sync new", f"sync {tmp_path.name}"]  # the new parent's own name too


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_the_old_file(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    atomic_write(path, [b"old"])

    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match="no room on the disk for file") as caught:
        atomic_write(path, [b"new"])
    assert caught.value.errno == number
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])


def test_whatever_ends_the_writing_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, [b"old"])

    def chunks() -> Iterator[bytes]:
        yield b"half of the"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, chunks())
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"score": float("nan")})
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])


def test_a_tree_is_synced_from_its_leaves_to_its_root(tmp_path: Path, log: list[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("b")
    sync_tree(tmp_path)
    assert sorted(log) == sorted(["sync a", "sync b", f"sync {tmp_path.name}"])
    assert log[-1] == f"sync {tmp_path.name}"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    (tmp_path / "file").symlink_to(outside)
    atomic_write(tmp_path / "file", [b"ours"])
    assert (outside.read_text(), (tmp_path / "file").read_text()) == ("theirs", "ours")
    assert not (tmp_path / "file").is_symlink()


def test_a_name_that_is_taken_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can guess the name. If somebody could, the link would still not be followed."""
    outside = tmp_path / "outside"
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 2 * count)
    (tmp_path / f"file.{'0' * 16}.partial").symlink_to(outside)
    with pytest.raises(FileExistsError):
        atomic_write(tmp_path / "file", [b"x"])
    assert not outside.exists()


def test_the_mode_is_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic_write(tmp_path / "file", [b"x"])
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_leftovers_are_only_files_under_our_own_temporary_names(tmp_path: Path) -> None:
    own = tmp_path / f"a.json.{'1f' * 8}.partial"
    own.write_text("half")
    kept = [
        *(
            "a.json",
            "a.json.partial",
            f"a.json.{'1f' * 8}.partial.txt",
            f"a.json.{'1F' * 8}.partial",
        ),
        f"b.json.{'1f' * 8}.partial",  # another file's
    ]
    for name in kept:
        (tmp_path / name).write_text(name)
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    (tmp_path / f"a.json.{'22' * 8}.partial").symlink_to(outside)
    (tmp_path / f"a.json.{'33' * 8}.partial").mkdir()
    before = set(names(tmp_path))
    remove_temporary_files(tmp_path, re.compile(r"a\.json"), seconds=3_600)  # this one may be in use
    assert set(names(tmp_path)) == before
    remove_temporary_files(tmp_path, re.compile(r"a\.json"))
    assert before - set(names(tmp_path)) == {own.name}
    assert outside.read_text() == "theirs"


def test_links_are_refused_on_the_way_and_below(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    (run / "a" / "b").mkdir(parents=True)
    other.mkdir()
    (tmp_path / "through").symlink_to(run)
    refuse_links(tmp_path / "through", "a", "a/b", "missing")  # how it is reached does not matter
    (run / "notes").symlink_to(other)
    refuse_links(run, "a")
    (run / "a" / "b" / "c").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match=r"run/a/b/c is a symbolic link: a run folder must"):
        refuse_links(run, "a")
    (run / "a" / "b" / "c").unlink()
    (run / "linked").symlink_to(other)
    with pytest.raises(InvalidInput, match=r"run/linked is a symbolic link"):
        refuse_links(run, "linked/below")


def test_parents_of_many_levels_are_made_and_removed(tmp_path: Path) -> None:
    """More levels than Python's limit of recursion, as far as the system takes such a path."""
    short = Path(os.path.relpath(tmp_path))  # 1,500 levels below it are a path of 3,000 characters, of at most 4,096
    target = short.joinpath(*["a"] * 1_500)
    made = make_parents(target)
    assert target.parent.is_dir()
    assert len(made) == 1_499
    remove_empty(made)
    assert names(tmp_path) == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        file_digest(tmp_path / "pipe")
