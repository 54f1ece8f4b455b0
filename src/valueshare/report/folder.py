"""The files of a report, the same for every kind of study.

All files are written under other names and then renamed, report.html and report.json last. So a full disk leaves an
earlier report as it was. If the command is killed during the renames, the earlier page is still there and complete in
itself, and the next report completes the folder. A command that is refused leaves no files that were not there before.
Figures and tables that the earlier report lists and the new one lacks are removed at the end. Other files stay.
"""

import errno
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from matplotlib.figure import Figure

from valueshare.errors import InvalidInput
from valueshare.files import FULL, make_parents, reason, remove_empty, remove_temporary_files, write_together
from valueshare.records import CHECKPOINTS, PROGRESS, RECORDS, TENSORBOARD
from valueshare.report.figures.style import FORMATS, as_svg, rendered
from valueshare.report.page.elements import Picture
from valueshare.runs.directory import refuse_links_between, refuse_links_in_run, remove_staging_folders, try_folder
from valueshare.schema import FileName, Invalid, read_config, read_object, validate_as

# Of a run alone: files there count as its own, or are removed with the next phase.
RUN_SUBFOLDERS = (RECORDS, CHECKPOINTS, PROGRESS, TENSORBOARD)
TABLE_KINDS = (".parquet", ".tex", ".md", ".csv")
REPORT_CONTENTS = ("figures", "tables", "report.html", "report.json")  # into the folder of a report
STALE_SECONDS = 3_600  # without a write: temporary files of commands that were killed
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
    """Write a report into its folder, once all of it is made."""
    contents, pictures = dict[str, bytes](), list[Picture]()
    for name, table in report.tables.items():
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        contents[name] = buffer.getvalue()
    contents |= {name: text.encode() for name, text in report.texts.items()}
    for drawn in report.figures:
        images = rendered(drawn.figure)
        contents |= {f"figures/{drawn.name}.{kind}": image for kind, image in images.items()}
        pictures.append(drawn.picture(images["svg"]))
    about = {
        "verdict": report.verdict,
        "figures": {figure.name: {"caption": figure.caption, "notes": figure.notes} for figure in report.figures},
        "tables": [Path(name).name for name in (*report.tables, *report.texts)],
        "not_drawn": report.left_out,
        "notes": report.notes,
    }
    contents["report.html"] = report.page(pictures).encode()
    contents["report.json"] = (json.dumps(about | report.values, indent=2, allow_nan=False) + "\n").encode()
    with errors_name(folder):
        remove_staging_folders(folder)  # of results that were being replaced: the old ones come back first
        replace_files({folder / name: content for name, content in contents.items()}, _listed_in(folder))


def replace_files(contents: Mapping[Path, bytes], earlier: Iterable[Path] = ()) -> None:
    """Write files, rename them in this order, then remove others of `earlier`.

    If one cannot be written, nothing has changed. If one cannot be renamed, those before it are new: of them, files
    that were not there before are removed again. So are folders that were made.
    """
    folders = dict.fromkeys(place.parent for place in contents)
    made = list[Path]()
    new = [place for place in contents if not os.path.lexists(place)]
    try:
        for folder in folders:
            made = [*make_parents(folder / "file"), *made]
        for place in contents:  # what would stop the renames half way
            if place.is_dir():
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
            remove_temporary_files(place.parent, re.compile(re.escape(place.name)), STALE_SECONDS)
        write_together(contents)
    except BaseException:
        for place in new:
            with suppress(OSError):
                place.unlink()
        remove_empty(made)
        raise
    for place in {*earlier} - {*contents}:
        with suppress(OSError):  # the new report is complete
            place.unlink()


def check_output_folder(target: Path, within: Path | None = None) -> None:
    """Refuse a file, the folders in which a run keeps its records and checkpoints, and what cannot be written to.

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
    above = next(folder for folder in (place, *place.parents) if folder.exists())
    try:
        try_folder(place / "report.html")  # now, not after the work; permissions do not show quotas and the like
    except OSError as error:
        if error.errno in FULL:
            raise
        raise InvalidInput(f"cannot write to {above}: {reason(error)}; choose another `out`") from error


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


@contextmanager
def errors_name(target: Path) -> Iterator[None]:
    """Turn errors of the system into refusals that name the target."""
    try:
        yield
    except OSError as error:
        where = error.filename or target if error.errno in NAME_TAKEN else target
        text = f"cannot write to {where}: {reason(error)}; choose another `out`"
        if error.errno in FULL:
            text = f"no room on the disk for {target}: make room, or choose another `out`"
        raise InvalidInput(text) from error
