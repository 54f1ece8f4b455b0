"""The numbers of a tabular study as they are on disk, checked before they are drawn again.

No checksum covers them: a number that fits is taken as it is.
"""

from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import polars as pl
from msgspec import Meta, Struct

from valueshare.errors import InvalidInput
from valueshare.result_files import SizeLimit, Unreadable, read_parquet
from valueshare.schema import Count, Invalid, checked, read_object

SUMMARY, NORMS = "summary.json", "records/norms.parquet"
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
_NUMBERS = ("step_reward", "k", "increase_percent", "ci95_low", "ci95_high")
_NORMS = ("norm_q", "norm_u", "norm_z")


class Row(Struct, frozen=True):
    """One k of one case at one regime."""

    step_reward: Number | None
    regime: Count
    k: Number
    increase_percent: Number | None
    ci95_low: Number | None
    ci95_high: Number | None


class Stored(Struct, frozen=True):
    """What is drawn again of summary.json."""

    figure: Annotated[list[Row], Meta(min_length=1)]
    figure_held_out: Annotated[list[Row], Meta(min_length=1)]
    notes: list[str] = []


class Summary(NamedTuple):
    """The numbers of a study's main figure."""

    same_seeds: pl.DataFrame
    other_seeds: pl.DataFrame
    measure: str
    notes: tuple[str, ...]


def read_summary(folder: Path) -> Summary:
    """The summary of a study; refused where it is damaged."""
    try:
        values = read_object(folder / SUMMARY)
        stored = checked(values, Stored)
        shown = [{(row.step_reward, row.regime, row.k) for row in of} for of in _figures(stored)]
        if shown[0] != shown[1]:
            raise Invalid("its two figures are not of the same k")
        means = [name for name in values["figure"][0] if name.startswith("mean_")]
        if not means:
            raise Invalid("it does not say what was measured")
    except (OSError, Invalid) as error:
        raise damaged(folder, error) from error
    same, other = (_frame(rows) for rows in _figures(stored))
    return Summary(same, other, means[0].removeprefix("mean_"), tuple(stored.notes))


def read_norms(folder: Path, limit: SizeLimit) -> pl.DataFrame:
    """The norms along learning; refused where they are damaged."""
    numbers = ("step_reward", "k", "step", *_NORMS, *(f"{name}_error" for name in _NORMS))
    try:
        table = read_parquet(folder / NORMS, limit)
        norms = table.select(pl.col(numbers).cast(pl.Float64))
        if norms.is_empty() or norms.select("k", "step").null_count().sum_horizontal().item():
            raise Invalid("rows are missing")
    except (OSError, Invalid, Unreadable, pl.exceptions.PolarsError) as error:
        raise damaged(folder, error) from error
    return norms


def damaged(folder: Path, error: Exception) -> InvalidInput:
    why = " ".join(str(error).split())
    return InvalidInput(f"{folder} is damaged ({why}): run its study again with --overwrite")


def _figures(stored: Stored) -> tuple[list[Row], list[Row]]:
    return stored.figure, stored.figure_held_out


def _frame(rows: list[Row]) -> pl.DataFrame:
    types: dict[str, type[pl.DataType]] = {
        "regime": pl.Int64,
        **dict.fromkeys(_NUMBERS, pl.Float64),
    }
    return pl.DataFrame([msgspec.to_builtins(row) for row in rows], schema_overrides=types)
