"""Files of results, trusted or not: their size is checked by their metadata before they are read.

Rows, columns and decoded bytes come from the footer and page headers of Parquet, from the directory and array headers
of npz, and of text from the file's size. Nothing is unpickled.
"""

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from valueshare.errors import InvalidInput, first_line
from valueshare.files import open_regular
from valueshare.host_memory import UNITS, byte_count, format_bytes, free_bytes
from valueshare.integers import ceil_div
from valueshare.parquet import InvalidMetadata, parquet_size

LIMIT = 2 * 10**9  # bytes of all results together; the paper's LunarLander study has 100 MB
TRUSTED_LIMIT = 10**15  # for one's own runs the memory of the machine is the limit
OPTION = "`max_result_size`"  # raises it
MAX_COLUMNS = 1_000
COPIES = 3  # of the results in memory during an analysis
# A cell of text is at least two bytes with its separator, and a reference of 16 when it is read.
TEXT_GROWTH = 8
ARRAY = b"\x93NUMPY"  # begins a file of one array
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")


class Unreadable(InvalidInput):
    """The metadata of a file cannot be true."""


class TooLarge(InvalidInput):
    """Results have more than may be read, or than there is memory for."""


class SizeLimit:
    """Bytes that all results together may have in memory; every file that is read uses some."""

    def __init__(self, limit: int | str | None = None) -> None:
        """`limit` is a number of bytes or a size like 4GB; None: 2 GB."""
        self.limit = LIMIT if limit is None else byte_count("max_result_size", limit)
        self._taken = 0

    def take(self, file: Path, count: int, rows: int | None = None) -> None:
        """Refuse a file that has more than is left, or than there is memory for."""
        before = self._taken
        self._taken += count
        many = "" if rows is None else f" ({rows:,} rows)"
        more = f" beside {format_bytes(before)} of other results" if before else ""
        if self._taken > self.limit:
            raise TooLarge(
                f"{file} would take {format_bytes(count)} of memory{many}{more}, and at most "
                f"{format_bytes(self.limit)} are read: write `max_result_size = {_round_up_size(self._taken)}`"
            )
        free = free_bytes()
        needed = COPIES * self._taken - before  # those before are held once already
        if free is not None and needed > free:
            raise TooLarge(
                f"{file} needs about {format_bytes(needed)} of memory{many}{more}, and {format_bytes(free)} are "
                "free: free some, or give fewer results"
            )


def read_parquet(file: Path, limit: SizeLimit | None = None, *, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """A Parquet file's table; `InvalidInput` where it is too large, or its metadata is wrong."""
    limit = SizeLimit() if limit is None else limit
    open_regular(file).close()
    try:
        size = parquet_size(file)
    except InvalidMetadata as error:
        raise Unreadable(f"{file} cannot be read: {error}") from error
    _check_columns(file, size.columns)
    limit.take(file, size.decoded_bytes, size.rows)
    try:
        return pl.read_parquet(_literal(file), glob=False, columns=None if columns is None else list(columns))
    except pl.exceptions.PanicException as error:  # of damaged pages; Polars has printed its own report of it
        raise Unreadable(f"{file} cannot be read: Polars fails on a page of it") from error


def read_csv(file: Path, separator: str, limit: SizeLimit | None = None) -> pl.DataFrame:
    """A text file's table; all rows tell the types."""
    limit = SizeLimit() if limit is None else limit
    with open_regular(file) as opened:
        head = opened.readline(2**20)
        if head.startswith(COMPRESSED):
            raise InvalidInput(f"{file} is compressed: unpack it first")
        _check_columns(file, 1 + head.count(separator.encode()))
        limit.take(file, TEXT_GROWTH * opened.seek(0, 2))
    return pl.read_csv(_literal(file), glob=False, separator=separator, infer_schema_length=None)


def _literal(file: Path) -> Path:
    """The path as Polars takes it literally: it expands a ~ at the start, and `glob` expands * and [ ] in it."""
    return file.absolute()


def read_arrays(file: Path, names: Sequence[str], limit: SizeLimit | None = None) -> list[np.ndarray[Any, Any]]:
    """Arrays of an npz file by name; `KeyError` where one is not there."""
    limit = SizeLimit() if limit is None else limit
    arrays = []
    with open_regular(file) as opened:
        if opened.read(len(ARRAY)) == ARRAY:
            raise InvalidInput(f"{file} is not an NPZ archive: it holds one array")
    with open_regular(file) as opened, zipfile.ZipFile(opened) as archive:
        for name in names:
            member = archive.getinfo(f"{name}.npy")
            with archive.open(member) as stream:
                shape, _, kind = _array_header(file, name, stream)
                header = stream.tell()
            if kind.hasobject:
                raise InvalidInput(f"{file} cannot be read without pickle: {name} holds objects")
            size = math.prod(shape) * kind.itemsize
            if min(shape, default=0) < 0 or header + size != member.file_size:
                raise InvalidInput(
                    f"{file} cannot be read: {name} says it has {format_bytes(size)} and "
                    f"has {format_bytes(max(0, member.file_size - header))}"
                )
            limit.take(file, size)
            try:
                with archive.open(member) as stream:
                    arrays.append(np.lib.format.read_array(stream, allow_pickle=False))
            except (ValueError, TypeError, OverflowError) as error:
                raise InvalidInput(f"{file} cannot be read: {name}: {first_line(error)}") from error
    return arrays


def _array_header(file: Path, name: str, stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is in Fortran's order, and type of an array in NumPy's format."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(stream)
        return read[version](stream)
    except (ValueError, KeyError, EOFError) as error:
        raise InvalidInput(f"{file} cannot be read: {name} is not an array of NumPy's") from error


def _check_columns(file: Path, count: int) -> None:
    if count > MAX_COLUMNS:
        raise InvalidInput(
            f"{file} has {count:,} columns and at most {MAX_COLUMNS:,} are read: leave out those that are not results"
        )


def _round_up_size(count: int) -> str:
    """A size that is enough, as the option takes it."""
    unit = "GB" if count >= UNITS["GB"] else "MB"
    return f"{ceil_div(count, UNITS[unit])}{unit}"
