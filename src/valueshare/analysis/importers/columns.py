"""Columns of imported tables: read unchanged, then converted to their types.

A cell that cannot be of its column's type is refused with its row: the first below the header is row 1, and empty rows
do not count.
"""

from pathlib import Path
from typing import Any

import polars as pl

from valueshare.analysis.csv_text import without_guards
from valueshare.analysis.tidy import AGENT_SETTINGS
from valueshare.errors import InvalidInput, one_line, printable
from valueshare.result_files import SizeLimit, read_csv, read_parquet

REQUIRED = {"env": pl.String, "algorithm": pl.String, "seed": pl.Int64, "step": pl.Int64}
METRICS = (
    "score",
    "overestimation",
    "action_gap",
    "relative_action_gap",
    "mean_action_value",
    "q_mean",
    "z_mean",
    "q_norm",
    "z_norm",
    "train_score",
)
TYPES: dict[str, Any] = {
    **REQUIRED,
    **dict.fromkeys(("k", *METRICS, "seconds", *AGENT_SETTINGS), pl.Float64),
    "optimizer": pl.String,
}
SEPARATORS = {".csv": ",", ".txt": "\t"}
# Control characters, marks of direction, characters without a width and line breaks; or too many characters.
_NOT_IN_NAMES = r"[\p{C}\p{Zl}\p{Zp}]|^.{1001}"
MAX_SCORE = 1e100  # of a score: sums and squares of larger ones overflow


def read_table(file: Path, limit: SizeLimit | None = None) -> pl.DataFrame:
    """A file's table as it is, without rows that are empty."""
    try:
        if file.suffix in SEPARATORS:
            table = without_guards(read_csv(file, SEPARATORS[file.suffix], limit))
        else:
            table = read_parquet(file, limit)
    except (OSError, pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {short(error)}") from error
    return table.filter(~pl.all_horizontal(pl.all().is_null()))


def typed(table: pl.DataFrame, file: Path) -> pl.DataFrame:
    """The columns in their types; k is 0 where there is none. Bad cells are refused."""
    if "k" not in table.columns:
        table = table.with_columns(k=pl.lit(0.0))
    for name in (name for name in TYPES if name in table.columns):
        kind = {pl.Int64: "a whole number", pl.String: "a name"}.get(TYPES[name], "a number")
        before = table[name]
        if before.dtype.is_nested():
            raise InvalidInput(f"{file}: {name} is of type {before.dtype}, not {kind}")
        try:
            after = before.cast(TYPES[name], strict=False)
        except pl.exceptions.PolarsError as error:
            raise InvalidInput(f"{file}: {name} is of type {before.dtype}, not {kind}") from error
        lost = (after.is_null() & before.is_not_null()) | (after.is_null() if name in REQUIRED else pl.Series([False]))
        if TYPES[name] == pl.Int64 and before.dtype.is_float():
            lost = lost | (before != before.floor())
        _refuse(file, before, lost, f"not {kind}")
        if TYPES[name] == pl.String:
            _refuse(
                file, after, after.str.contains(_NOT_IN_NAMES), "not a name: write at most 1,000 visible characters"
            )
        table = table.with_columns(after.alias(name))
    table = table.with_columns(pl.col("k").fill_null(0.0))
    k, score = table["k"], table["score"]
    _refuse(file, table["step"], table["step"] < 0, "not a number >= 0")
    _refuse(file, k, ~k.is_finite() | (k < 0), "not a finite number >= 0")
    if "seconds" in table.columns:
        seconds = table["seconds"]
        _refuse(file, seconds, ~seconds.is_finite() | (seconds < 0), "not a finite number >= 0")
    _refuse(file, score, ~score.is_finite(), "not finite: where no episode finished, leave the cell empty")
    _refuse(file, score, score.abs() > MAX_SCORE, f"not a score: at most {MAX_SCORE:g} can be averaged")
    return table


def _refuse(file: Path, column: pl.Series, bad: pl.Series, what: str) -> None:
    """Refuse a column by the first of its bad cells."""
    if bad.fill_null(False).any():
        row = int(bad.fill_null(False).arg_true()[0])
        raise InvalidInput(f"{file}, row {row + 1}: {column.name} is {column[row]!r}, {what}")


def short(error: Exception) -> str:
    return printable(one_line(error), 160) or type(error).__name__
