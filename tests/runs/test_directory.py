"""A results folder is whole or absent, and takes the place of nothing that it may not."""

import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from valueshare import InvalidInput
from valueshare.report.folder import STALE_SECONDS, Report, write_files
from valueshare.runs.directory import (
    check_results_target,
    holds,
    remove_staging_folders,
    results_folder,
)
from valueshare.schema import CONFIG, read_config

SETTINGS: dict[str, Any] = {"valueshare": "1", "k": (0.0, 1.6), "seeds": 8}
OTHERS: dict[str, Any] = {"k": (0.0, 1.6), "seeds": 9}


def tree(folder: Path) -> dict[str, str | None]:
    """Every path below a folder, with the text of files: what was there, to the letter."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def report(folder: Path) -> None:
    """Write a report without figures."""
    write_files(folder, Report([], lambda _: "page", (), (), {}, {}, {}))


def write(
    target: Path,
    config: dict[str, Any] = SETTINGS,
    *,
    overwrite: bool = False,
    ends: BaseException | None = None,
) -> None:
    """Fill a results folder; `ends` ends the work when half is written."""
    with results_folder(target, config, overwrite=overwrite) as folder:
        (folder / "records").mkdir()
        (folder / "records" / "runs.txt").write_text(str(config["seeds"]))
        if ends is not None:
            raise ends


@pytest.mark.parametrize("name", ["out", "with a space", "a/b/c d/e", "ünïcode-✓"])
def test_a_finished_folder_is_there_whole(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    assert tree(tmp_path / name) == {
        CONFIG: json.dumps(SETTINGS, indent=2) + "\n",
        "records": None,
        "records/runs.txt": "8",
    }
    assert holds(tmp_path / name, SETTINGS)
    assert not holds(tmp_path / name, OTHERS)
    assert [entry.name for entry in tmp_path.iterdir()] == [Path(name).parts[0]]  # and no more
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o755


def test_results_are_not_put_into_other_results(tmp_path: Path) -> None:
    config = {"valueshare": "1", "kind": "some"}
    with results_folder(tmp_path / "outer", config):
        pass
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "link").symlink_to("outer")
    for inner in ("outer/inner", "outer/records/inner", "link/inner"):
        with pytest.raises(InvalidInput, match=r"is inside the results in .*outer: choose another `out`$"):
            check_results_target(tmp_path / inner, config)
        with pytest.raises(InvalidInput, match="is inside the results in"), results_folder(tmp_path / inner, config):
            pass
    (tmp_path / "link").unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_until_then_nothing_is_at_its_place(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with results_folder(target, SETTINGS) as folder:
        assert not target.exists()
        assert folder.parent == tmp_path  # the same disk, so that a rename is enough
        assert not holds(target, SETTINGS)
    assert target.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize(
    "ends",
    [
        ValueError("a defect"),
        KeyboardInterrupt(),
        SystemExit(3),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=lambda ends: type(ends).__name__,
)
@pytest.mark.parametrize("name", ["out", "new/parents/out"])
def test_what_ends_early_leaves_nothing(tmp_path: Path, ends: BaseException, name: str) -> None:
    (tmp_path / "neighbour").write_text("stays")
    before = tree(tmp_path)
    with pytest.raises(type(ends)) as caught:
        write(tmp_path / name, ends=ends)
    assert caught.value is ends
    assert tree(tmp_path) == before


def test_parents_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "old/new/out", ends=KeyboardInterrupt())
    assert tree(tmp_path) == {"old": None}


def test_a_full_disk_at_the_first_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "new/out")
    assert tree(tmp_path) == {}


def test_a_full_disk_for_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(InvalidInput, match=r"cannot write to .*new/out: no space left on device"):
        write(tmp_path / "new/out")
    assert tree(tmp_path) == {}


# What is there already.


def test_other_results_are_not_overwritten_unless_asked(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write(target)
    (target / "own notes.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(InvalidInput, match=r"holds results of other settings: .*`overwrite = True`"):
        write(target, OTHERS)
    assert tree(tmp_path) == before
    write(target, OTHERS, overwrite=True)
    assert tree(target).keys() == {CONFIG, "records", "records/runs.txt"}  # nothing of the old
    assert holds(target, OTHERS)
    assert len(list(tmp_path.iterdir())) == 1


def test_overwriting_that_ends_early_keeps_the_old(tmp_path: Path) -> None:
    write(tmp_path / "out")
    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", OTHERS, overwrite=True, ends=KeyboardInterrupt())
    assert tree(tmp_path) == before


def test_a_failing_exchange_keeps_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old is moved away, the new cannot take its place: the old comes back."""
    target = tmp_path / "out"
    write(target)
    before = tree(tmp_path)
    rename = Path.rename

    def refuses_new(self: Path, to: Path) -> Path:
        if self.name != "old" and to == target:
            raise OSError(errno.EIO, "broken disk")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refuses_new)
    with pytest.raises(OSError, match="broken disk"):
        write(target, OTHERS, overwrite=True)
    assert tree(tmp_path) == before


def test_results_that_came_meanwhile_are_not_replaced(tmp_path: Path) -> None:
    """Two runs with one target: the first to finish stays, the second fails and leaves nothing."""
    target = tmp_path / "out"
    with pytest.raises(InvalidInput, match="another process created a run there"), results_folder(target, OTHERS):
        write(target)
    assert holds(target, SETTINGS)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("config", [None, "no JSON {", "[1, 2]"])
def test_a_folder_of_something_else_is_never_touched(tmp_path: Path, overwrite: bool, config: str | None) -> None:
    target = tmp_path / "photos"
    target.mkdir()
    (target / "cat.jpg").write_text("cat")
    if config is not None:
        (target / CONFIG).write_text(config)
    before = tree(tmp_path)
    with pytest.raises(InvalidInput, match="holds files that are not results of valueshare"):
        write(target, overwrite=overwrite)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_empty_folder_is_taken(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", overwrite=overwrite)
    assert holds(tmp_path / "out", SETTINGS)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    write(tmp_path / "out")
    write(tmp_path / "out", OTHERS, overwrite=True)
    assert (tmp_path / "out").is_symlink()
    assert holds(tmp_path / "disk", OTHERS)
    assert {entry.name for entry in tmp_path.iterdir()} == {"disk", "out"}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", [".", ".."])
def test_the_folder_one_is_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, overwrite: bool
) -> None:
    here = tmp_path / "above" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    with pytest.raises(InvalidInput, match="contains the current working directory"):
        write(Path(name), overwrite=overwrite)
    assert tree(tmp_path) == {"above": None, "above/here": None}


# Places that cannot be.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "is a file: choose another `out`"),
        ("file/out", "cannot write to .*(file exists|not a directory)"),
        ("file/new/out", "cannot write to .*not a directory"),
        ("n" * 300, "cannot write to .*file name too long"),
        ("n" * 250, "cannot write to .*file name too long"),  # with what is added to it
        ("new/" + "n" * 300 + "/out", "cannot write to .*file name too long"),
    ],
)
def test_impossible_places_are_refused_in_one_line(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(InvalidInput, match=message) as caught:
        write(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == {"file": "a file"}


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `stat` answers a user who may not look there; root, who may, never meets it."""

    def forbidden(self: Path, **_: Any) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", forbidden)
    with pytest.raises(InvalidInput, match=r"cannot write to .*: permission denied"):
        write(tmp_path / "out")


# Settings.


def test_settings_are_compared_as_they_are_stored(tmp_path: Path) -> None:
    """JSON has lists and no tuples; order of keys does not matter, values do."""
    write(tmp_path / "out")
    stored = {"valueshare": "1", "k": [0.0, 1.6], "seeds": 8}
    assert read_config(tmp_path / "out") == stored
    assert holds(tmp_path / "out", dict(reversed(stored.items())))
    assert not holds(tmp_path / "out", stored | {"k": [1.6, 0.0]})
    assert not holds(tmp_path / "out", {"valueshare": "1", "seeds": 8})


def test_no_results_hold_nothing(tmp_path: Path) -> None:
    assert read_config(tmp_path) is None
    assert read_config(tmp_path / "nowhere") is None
    assert not holds(tmp_path, SETTINGS)


def test_results_of_another_kind_are_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "run"
    target.mkdir()
    (target / CONFIG).write_text(json.dumps({"valueshare": "1", "kind": "training"}))
    (target / "weights").write_text("precious")
    ours = {"valueshare": "1", "kind": "tabular"}
    with (
        pytest.raises(InvalidInput, match="holds results of another kind"),
        results_folder(target, ours, overwrite=True),
    ):
        pass
    assert (target / "weights").read_text() == "precious"


# What killed processes leave.

KILLED = """
    import os, pathlib, signal
    from valueshare.runs import directory
    target = pathlib.Path("out")
    config = {"valueshare": "1", "k": [0.0, 1.6], "seeds": 9}
    rename, count = pathlib.Path.rename, 0

    def killed_after(self, to):
        global count
        done = rename(self, to)
        if "out" in (self.name, to.name):
            count += 1
            if count == RENAMES:
                os.kill(os.getpid(), signal.SIGKILL)
        return done

    pathlib.Path.rename = killed_after
    with directory.results_folder(target, config, overwrite=True) as folder:
        if not RENAMES:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, renames: int) -> None:
    """Overwrite `out` in a process that is killed after so many renames of it."""
    program = textwrap.dedent(KILLED).replace("RENAMES", str(renames))
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, check=False)
    assert done.returncode == -signal.SIGKILL
    assert any(path.name.startswith(".out-") for path in folder.iterdir())


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, renames: int) -> None:
    """Killed while it writes, after the old folder was taken away, and after the exchange."""
    write(tmp_path / "out")
    killed(tmp_path, renames)
    remove_staging_folders(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert holds(tmp_path / "out", OTHERS | {"valueshare": "1"} if renames == 2 else SETTINGS)
    killed(tmp_path, 0)
    write(tmp_path / "out", OTHERS, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_report_brings_back_what_a_killed_process_took_away(tmp_path: Path, renames: int) -> None:
    """The old folder may be the only copy: it comes back, and the report is written into it."""
    write(tmp_path / "out")
    killed(tmp_path, renames)
    report(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert holds(tmp_path / "out", OTHERS | {"valueshare": "1"} if renames == 2 else SETTINGS)
    assert (tmp_path / "out" / "report.html").read_text() == "page"


def test_a_report_of_the_folder_above_keeps_it_too(tmp_path: Path) -> None:
    above = tmp_path / "out"
    above.mkdir()
    write(above / "out")
    killed(above, 1)
    report(above)
    remove_staging_folders(above / "out")
    assert holds(above / "out", SETTINGS)


def test_what_a_killed_report_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    """Its temporary file; that of a report that is being written now stays."""
    (tmp_path / "out").mkdir()
    old, new = (tmp_path / "out" / f"report.html.{digit * 16}.partial" for digit in "01")
    for file, age in ((old, STALE_SECONDS + 60), (new, 0)):
        file.write_text("half")
        os.utime(file, (time.time() - age,) * 2)
    report(tmp_path / "out")
    assert tree(tmp_path).keys() == {"out", *(f"out/{name}" for name in ("report.html", "report.json", new.name))}


def test_what_is_in_use_or_somebody_elses_stays(tmp_path: Path) -> None:
    target = tmp_path / "out"
    names = [".out-backup", ".out-abcdef-notes", ".valueshare-notes123", ".outer-abcdef-abcdefgh"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    with results_folder(target, SETTINGS) as first:
        write(target)  # two write at once
        remove_staging_folders(target)
        assert first.is_dir()
        target.rename(tmp_path / "kept")
    assert {path.name for path in tmp_path.iterdir()} == {*names, "out", "kept"}


def test_a_staging_folder_that_another_process_removes_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is gone before it can be opened, the next when it is locked, as by `remove_staging_folders` elsewhere."""
    target, flock, opened, steps = tmp_path / "out", fcntl.flock, os.open, list[str]()

    def late_open(path: Any, flags: int, *mode: Any, **options: Any) -> int:
        if flags & os.O_DIRECTORY and not flags & os.O_NOFOLLOW and not steps:
            steps.append("open")
            Path(path).rmdir()
        return opened(path, flags, *mode, **options)

    def late_lock(handle: int, how: int) -> None:
        if steps == ["open"]:
            steps.append("lock")
            next(tmp_path.glob(".out-*")).rmdir()
        flock(handle, how)

    monkeypatch.setattr(os, "open", late_open)
    monkeypatch.setattr(fcntl, "flock", late_lock)
    write(target)
    assert steps == ["open", "lock"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert holds(target, SETTINGS)
