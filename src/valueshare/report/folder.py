"""The files of a report, the same for every kind of study.

A new folder appears complete or not at all. In one that holds an earlier report, every file is replaced atomically,
with report.html and report.json last: if the command is killed before, the earlier page is still there and complete in
itself, and the next report completes the folder. Figures and tables that the earlier report lists and the new one lacks
are removed. Other files stay.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from matplotlib.figure import Figure

from valueshare.errors import InvalidInput
from valueshare.files import (
    FULL,
    atomic_write,
    reason,
    remove_empty,
    sync,
    sync_tree,
    write_json,
)
from valueshare.records import CHECKPOINTS, PROGRESS, RECORDS, TENSORBOARD, write_table
from valueshare.report.figures.style import FORMATS, as_svg, save
from valueshare.report.page.elements import Picture
from valueshare.runs.directory import (
    refuse_links_between,
    refuse_links_in_run,
    staged,
)
from valueshare.schema import FileName, Invalid, read_config, read_object, validate_as

# Of a run alone: files there count as its own, or are removed with the next phase.
RUN_SUBFOLDERS = (RECORDS, CHECKPOINTS, PROGRESS, TENSORBOARD)
TABLE_KINDS = (".parquet", ".tex", ".md", ".csv")
REPORT_CONTENTS = ("figures", "tables", "report.html", "report.json")  # into the folder of a report
NAME_TAKEN = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR)  # a file where a folder is needed, say


class FigureResult(NamedTuple):
    """A figure, its caption, and notes on what it leaves out."""

    name: str
    figure: Figure
    caption: str = ""
    notes: tuple[str, ...] = ()

    def picture(self, svg: bytes | None = None) -> Picture:
        """The figure for a page; `svg` where it is drawn already."""
        return Picture(self.name, as_svg(self.figure) if svg is None else svg, self.caption, self.notes)


class Report(NamedTuple):
    """Everything that a report says; files are named relative to its folder."""

    figures: Sequence[FigureResult]
    page: Callable[[list[Picture]], str]  # report.html, from the figures
    verdict: tuple[str, ...]  # in sentences
    notes: tuple[str, ...]
    left_out: dict[str, str]  # figures that the results do not allow, and what they need
    values: dict[str, Any]  # of report.json, beside these
    tables: Mapping[str, pl.DataFrame]  # Parquet files
    texts: Mapping[str, str] = {}


def write_files(folder: Path, report: Report) -> None:
    """Write a report into a folder that is there."""
    (folder / "tables").mkdir()
    for name, table in report.tables.items():
        write_table(folder / name, table)
    for name, text in report.texts.items():
        atomic_write(folder / name, [text.encode()])
    pictures = []
    for drawn in report.figures:
        _, svg, _ = save(drawn.figure, folder / "figures", drawn.name)
        pictures.append(drawn.picture(svg.read_bytes()))
    atomic_write(folder / "report.html", [report.page(pictures).encode()])
    about = {
        "verdict": report.verdict,
        "figures": {figure.name: {"caption": figure.caption, "notes": figure.notes} for figure in report.figures},
        "tables": [Path(name).name for name in (*report.tables, *report.texts)],
        "not_drawn": report.left_out,
        "notes": report.notes,
    }
    write_json(folder / "report.json", about | report.values)


def check_output_folder(target: Path, within: Path | None = None) -> None:
    """Refuse a file, and the folders in which a run keeps its records and checkpoints.

    A target inside a run, or `within` a folder of results, must not be a symbolic link.
    """
    if within is not None:
        refuse_links_between(within, target, *REPORT_CONTENTS)
    refuse_links_in_run(target, *REPORT_CONTENTS)
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"{target} is a file: choose another `out`")
    place = Path(os.path.realpath(target))  # a loop of links is not an error here
    if "kind" in (read_config(place, skip_damaged=True) or {}):
        raise InvalidInput(f"{target} is a folder of results itself: leave `out` out for {target / 'report'}")
    for folder in (place, *place.parents):
        if folder.name in RUN_SUBFOLDERS and "kind" in (read_config(folder.parent, skip_damaged=True) or {}):
            raise InvalidInput(f"{target} is where a run keeps its {folder.name}: choose another `out`")


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder, whose files move to `target` when all are written.

    It is beside the target, or inside it if that exists. If the work ends early, it is removed with the parents made
    for it. A target that cannot be written to, or has no room, is refused by name.
    """
    with ExitStack() as stack:
        with errors_name(target):
            staging = stack.enter_context(staged(target, target / "report" if target.is_dir() else target))
        with errors_name(target, only_below=staging):  # the work may read other files
            yield staging
        with errors_name(target):
            sync_tree(staging)
            _move_files(staging, target)


def _move_files(staging: Path, target: Path) -> None:
    """Move the files of a report to its folder: report.html and report.json last, after all that they name."""
    if not target.exists():
        staging.rename(target)
        sync(target.parent)
        return
    # The two files outside figures/ and tables/ are report.html and report.json: False comes before True.
    files = sorted(filter(Path.is_file, staging.rglob("*")), key=lambda file: (file.parent == staging, file))
    places = [target / file.relative_to(staging) for file in files]
    folders = {place.parent for place in places}
    new = [folder for folder in folders if not folder.exists()]
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for place in places:  # that would stop the moves half way: the old report stays intact, too
            number = errno.EISDIR if place.is_dir() else errno.EACCES
            if place.is_dir() or not os.access(place.parent, os.W_OK):
                raise OSError(number, os.strerror(number), str(place))
    except BaseException:
        remove_empty(new)
        raise
    for place in _listed_in(target) - set(places):
        place.unlink(missing_ok=True)
    for file, place in zip(files, places, strict=True):
        _move(file, place)
    shutil.rmtree(staging)
    for folder in folders:
        sync(folder)


def _listed_in(folder: Path) -> set[Path]:
    """The figures and tables that a folder's report.json lists; it is untrusted, so only plain names count."""
    try:
        about = read_object(folder / "report.json")
        figures = validate_as(about.get("figures"), dict[FileName, Any])
        tables = validate_as(about.get("tables", []), list[FileName])
    except (OSError, Invalid):
        return set()
    files = {folder / "figures" / f"{name}.{kind}" for name in figures for kind in FORMATS}
    files |= {folder / "tables" / name for name in tables if name.endswith(TABLE_KINDS)}
    return {file for file in files if file.is_file() and not file.is_symlink() and not file.parent.is_symlink()}


def _move(file: Path, place: Path) -> None:
    """Put a file in its place; a link there is replaced, and not its target."""
    try:
        file.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        atomic_write(place, [file.read_bytes()])  # the folder is a link to another disk


@contextmanager
def errors_name(target: Path, only_below: Path | None = None) -> Iterator[None]:
    """Turn errors of the system into refusals that name the target.

    With `only_below`, only a full disk and failures with files below that folder.
    """
    try:
        yield
    except OSError as error:
        below = only_below is None or only_below in Path(error.filename or "").parents
        if not below and error.errno not in FULL:
            raise
        where = error.filename or target if error.errno in NAME_TAKEN else target
        text = f"cannot write to {where}: {reason(error)}; choose another `out`"
        if error.errno in FULL:
            text = f"no room on the disk for {target}: make room, or choose another `out`"
        raise InvalidInput(text) from error
