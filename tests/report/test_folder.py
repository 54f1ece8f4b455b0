"""A report is there whole or not at all, in a new folder and in one that holds other things."""

import errno
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from valueshare.__main__ import run
from valueshare.cli import main
from valueshare.errors import InvalidInput
from valueshare.files import remove_empty, write_together
from valueshare.report import folder as report_folder
from valueshare.report.figures.style import rendered
from valueshare.report.folder import Report, replace_files, write_files
from valueshare.signals import EXIT_CODES

SCORES = [
    ("Catch", name, seed, step, seed + step / 10) for name in ("PPO", "A2C") for seed in (0, 1) for step in (0, 10, 20)
]
COLUMNS = ["environment", "algorithm", "seed", "step", "score"]


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, with the contents of files."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """The one line that a report to a folder ends with, which leaves everything as it was."""
    pl.DataFrame(SCORES, COLUMNS, orient="row").write_csv(tmp_path / "results.csv")

    def report(out: str) -> str:
        before = tree(tmp_path)
        words = [str(tmp_path / "results.csv"), "--out", str(tmp_path / out), "--resamples", "100"]
        with pytest.raises(SystemExit) as ended:
            main(["report", *words, "--figures", "learning-curves"])
        said = capsys.readouterr()
        assert (ended.value.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert tree(tmp_path) == before
        return said.err

    return report


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("out", ["out", "new/parents/out", "there"])
@pytest.mark.parametrize("written", [0, 3, 8])
def test_a_full_disk(
    tmp_path: Path,
    refused: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    out: str,
    written: int,
) -> None:
    """After so many files there is no room: the folder, and what was in it, stay as they were."""
    (tmp_path / "there" / "figures").mkdir(parents=True)
    (tmp_path / "there" / "report.html").write_text("an older one")
    sync, done = os.fsync, list[int]()

    def fsync(handle: int) -> None:
        done.append(handle)
        (sync if len(done) <= written else full)(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    line = refused(out)
    assert f"no room on the disk for {tmp_path / out}: make room, or choose another --out" in line
    assert len(done) > written


def test_a_folder_that_cannot_be_written_to(
    tmp_path: Path, refused: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", locked)
    line = refused("new/out")
    where = tmp_path / "new/out"
    assert f"cannot write to {where}: read-only file system; choose another --out" in line


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EDQUOT, "no room on the disk for {}: make room, or choose another --out"),
        (errno.EROFS, "cannot write to {}: read-only file system; choose another --out"),
    ],
)
@pytest.mark.parametrize("out", ["there", "there/new/out"])
def test_what_permissions_do_not_show_is_refused_before_the_work(
    tmp_path: Path, refused: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, number: int, said: str, out: str
) -> None:
    def locked(**options: Any) -> None:
        assert options["dir"] == tmp_path / "there"
        raise OSError(number, os.strerror(number), str(options["dir"] / "random"))

    (tmp_path / "there").mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", locked)
    monkeypatch.setattr(report_folder, "rendered", None)
    where = tmp_path / ("there" if number == errno.EROFS else out)
    assert said.format(where) in refused(out)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("results.csv", "results.csv is a file: choose another --out"),
        ("results.csv/out", "results.csv: not a directory; choose another --out"),
        ("odd", "odd/figures: file exists; choose another --out"),
        ("taken", "taken/report.html: is a directory; choose another --out"),
    ],
)
def test_places_that_are_taken(tmp_path: Path, refused: Callable[[str], str], out: str, said: str) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "figures").write_text("a file")
    (tmp_path / "taken" / "report.html").mkdir(parents=True)
    assert said in refused(out)


@pytest.mark.parametrize("out", ["records", "checkpoints/population-0", "progress", "tensorboard"])
def test_what_a_run_keeps_for_itself(tmp_path: Path, refused: Callable[[str], str], out: str) -> None:
    (tmp_path / "run" / "records").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text('{"kind": "training"}')
    (tmp_path / "link").symlink_to("run")
    kept = out.partition("/")[0]
    for name in ("run", "link"):
        where = tmp_path / name / out
        assert f"{where} is where a run keeps its {kept}: choose another" in refused(f"{name}/{out}")
        itself = tmp_path / name
        assert f"{itself} is a folder of results itself: leave --out out for {itself / 'report'}" in refused(name)
    assert "config.json is a file: choose another --out" in refused("run/config.json")
    (tmp_path / "loop").symlink_to("loop")
    assert "choose another --out" in refused("loop")


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_in_the_report_without_permission(tmp_path: Path, refused: Callable[[str], str]) -> None:
    (tmp_path / "out" / "tables").mkdir(parents=True, mode=0o500)
    assert "out: permission denied; choose another --out" in refused("out")
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "locked: permission denied; choose another --out" in refused("locked/out")


FILES = ("figures/a.svg", "figures/b.svg", "tables/scores.md", "report.html", "report.json")


def write(out: Path, content: str, names: Sequence[str] = FILES) -> None:
    replace_files({out / name: content.encode() for name in names})


def test_a_new_report_takes_the_places_of_the_old_and_leaves_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old", ("figures/old.svg", "report.html"))
    write(out, "new", ("figures/new.svg", "report.html"))
    assert tree(tmp_path) == {
        "out": None,
        "out/figures": None,
        "out/figures/old.svg": b"old",
        "out/figures/new.svg": b"new",
        "out/report.html": b"new",
    }


@pytest.mark.parametrize("moves", range(len(FILES)))
def test_a_command_that_is_killed_leaves_no_page_before_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """After any number of files the page, and after it the numbers, are as they were, unless all before is new."""
    out = tmp_path / "out"
    write(out, "old")
    replace, done = Path.replace, list[Path]()

    def replace_some(file: Path, place: Path) -> Path:
        if len(done) == moves:
            raise KeyboardInterrupt
        done.append(place)
        return replace(file, place)

    monkeypatch.setattr(Path, "replace", replace_some)
    with pytest.raises(KeyboardInterrupt):
        write(out, "new")
    *others, page, numbers = ((out / name).read_text() for name in FILES)
    assert others.count("new") == min(moves, len(others))
    assert (page, numbers) == ("old" if moves <= len(others) else "new", "old")
    assert len(list(out.rglob("*.*"))) == len(FILES)  # no temporary one


def write_listed(
    out: Path, names: Sequence[str], figures: Sequence[str] = (), tables: Sequence[str] = (), content: str = "ours"
) -> None:
    """A report of these files, which lists these figures and tables."""
    values = {"figures": {name: {} for name in figures}, "tables": [*tables]}
    texts = dict.fromkeys(names, content)
    write_files(out, Report([], lambda _: "", (), (), {}, values, {}, texts))


@pytest.mark.parametrize("written", range(7))  # of 3 figures of b, 2 tables, report.html and report.json
def test_a_full_disk_leaves_an_earlier_report_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """After so many files there is no room. Some files are of both reports, some of one alone."""
    out = tmp_path / "out"
    old, new = ["tables/both.md", "tables/old.md"], ["tables/both.md", "tables/new.md"]
    write_listed(out, [*of_figures("a", "b"), *old], ("a", "b"), ("both.md", "old.md"))
    before, fsync, done = tree(tmp_path), os.fsync, list[int]()

    def fill(handle: int) -> None:
        done.append(handle)
        (fsync if len(done) <= written else full)(handle)

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(InvalidInput, match="no room on the disk"):
        write_listed(out, [*of_figures("b"), *new], ("b",), ("both.md", "new.md"), content="new")
    assert len(done) == written + 1
    assert tree(tmp_path) == before
    monkeypatch.undo()
    write_listed(out, [*of_figures("b"), *new], ("b",), ("both.md", "new.md"), content="new")
    names = {*of_figures("b"), *new, "report.html", "report.json"}
    assert {name: (out / name).read_text() for name in new} == dict.fromkeys(new, "new")
    assert {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()} == names


def of_figures(*names: str) -> list[str]:
    return [f"figures/{name}.{kind}" for name in names for kind in ("png", "svg", "pdf")]


def test_figures_that_the_new_report_lacks_are_removed(tmp_path: Path) -> None:
    """Files that the earlier report does not list stay, and so do links and folders of such names."""
    out, names = tmp_path / "out", ("kept", "gone", "linked", "folder", "missing")
    write_listed(out, of_figures("kept", "gone"), names)
    (out / "figures" / "mine.svg").write_text("mine")
    (out / "figures" / "linked.svg").symlink_to("mine.svg")
    (out / "figures" / "folder.svg").mkdir()
    write_listed(out, of_figures("kept", "new"), ("kept", "new"))
    expected = {f"{name}.{kind}" for name in ("kept", "new") for kind in ("png", "svg", "pdf")}
    assert {file.name for file in (out / "figures").iterdir()} == expected | {"mine.svg", "linked.svg", "folder.svg"}


def test_tables_that_the_new_report_lacks_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = ("scores.md", "beside-published.md")
    write_listed(out, [f"tables/{name}" for name in names], tables=[*names, "linked.csv"])
    (out / "tables" / "mine.csv").write_text("mine")
    (out / "tables" / "linked.csv").symlink_to("mine.csv")
    write_listed(out, ["tables/scores.md"], tables=["scores.md"])
    assert {file.name for file in (out / "tables").iterdir()} == {"scores.md", "mine.csv", "linked.csv"}


@pytest.mark.parametrize("name", ["key", "key.csv"])
def test_tables_in_a_linked_folder_and_files_of_other_kinds_stay(tmp_path: Path, name: str) -> None:
    """report.json may be anyone's: it lists somebody's file as a table of the earlier report."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    (outside / name).write_text("mine")
    out.mkdir()
    (out / "tables").symlink_to(outside)
    (out / "report.json").write_text(json.dumps({"figures": {}, "tables": [name]}))
    write_listed(out, of_figures("a"), ("a",))
    assert (outside / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["../../outside", "../inside", "{}/outside", "", ".", "..", "a/../../../outside"])
def test_names_in_an_earlier_report_that_are_no_plain_names(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    write_listed(out, of_figures("a"), ("a", name.format(tmp_path)))
    for file in (tmp_path / "outside.svg", out / "inside.svg", out / "figures" / ".svg"):
        file.write_text("mine")
    before = tree(tmp_path)
    write_listed(out, of_figures("b"))
    assert {file for file in before if file not in tree(tmp_path)} == set()


@pytest.mark.parametrize("ends", [KeyboardInterrupt, ValueError, InvalidInput])
def test_whatever_ends_it_early_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: type[BaseException]
) -> None:
    def end(*_: object) -> None:
        raise ends

    replaced: Iterator[Callable[..., Any]] = iter([Path.replace, Path.replace, end])
    monkeypatch.setattr(Path, "replace", lambda *paths: next(replaced)(*paths))
    with pytest.raises(ends):
        write(tmp_path / "new" / "out", "a report")
    assert tree(tmp_path) == {}


# What a shell answers for these signals.
@pytest.mark.parametrize("drawn_or_written", [rendered, write_together])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_that_comes_twice_leaves_nothing(
    number: signal.Signals,
    code: int,
    drawn_or_written: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `timeout` sends it: the second one comes while the files are being removed."""
    pl.DataFrame(SCORES, COLUMNS, orient="row").write_csv(tmp_path / "results.csv")

    def terminated_before(work: Callable[..., Any]) -> Callable[..., None]:
        def first_terminated(*words: Any, **options: Any) -> None:
            signal.raise_signal(number)
            work(*words, **options)

        return first_terminated

    monkeypatch.setattr(report_folder, drawn_or_written.__name__, terminated_before(drawn_or_written))
    monkeypatch.setattr(report_folder, "remove_empty", terminated_before(remove_empty))
    words = ["report", str(tmp_path / "results.csv"), "--out", str(tmp_path / "new" / "out")]
    monkeypatch.setattr(sys, "argv", ["valueshare", *words, "--resamples", "100"])
    # Where the tests themselves run in the background, Ctrl-C is ignored: not here.
    before = {each: signal.signal(each, signal.default_int_handler) for each in EXIT_CODES}
    try:
        with pytest.raises(SystemExit) as ended:
            run()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert list(tree(tmp_path)) == ["results.csv"]
    assert ended.value.code == code
    assert capsys.readouterr().err == "valueshare: interrupted\n"
