"""Metadata of Parquet: compared with what Polars wrote, and refused where it is wrong."""

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from forged_parquet import changed, number

from valueshare.parquet import InvalidMetadata, parquet_size

ROWS = 5_000
TABLE = pl.DataFrame(
    {
        "env": ["LunarLander-v3"] * ROWS,
        "seed": range(ROWS),
        "score": [None if i % 7 == 0 else i / 2 for i in range(ROWS)],
        "done": [i % 2 == 0 for i in range(ROWS)],
    }
)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "uncompressed"])
@pytest.mark.parametrize("group", [None, 700])
def test_sizes_are_those_of_the_table(tmp_path: Path, compression: Any, group: int | None) -> None:
    TABLE.write_parquet(tmp_path / "t", compression=compression, row_group_size=group)
    size = parquet_size(tmp_path / "t")
    assert (size.rows, size.columns) == TABLE.shape
    # Texts: a reference of 16 bytes; numbers of 8; a truth value as a byte; and the pages.
    values = ROWS * (16 + 8 + 8 + 1)
    assert values < size.decoded_bytes < 2 * values


@pytest.mark.parametrize(
    "table",
    [
        pl.DataFrame({"a": [[1, 2, 3], []]}),
        pl.DataFrame({"a": [{"x": 1, "y": "z"}]}),
        pl.DataFrame({"a": []}, schema={"a": pl.Float64}),
        pl.DataFrame({"a": ["x"]}, schema={"a": pl.Categorical}),
    ],
)
def test_other_kinds_are_measured_too(tmp_path: Path, table: pl.DataFrame) -> None:
    table.write_parquet(tmp_path / "t")
    assert parquet_size(tmp_path / "t").rows == table.height


def test_a_few_bytes_that_stand_for_many_values_are_counted_as_many(tmp_path: Path) -> None:
    same = pl.select(a=pl.repeat(1.0, 10_000_000))
    same.write_parquet(tmp_path / "t", row_group_size=10_000_000)
    assert (tmp_path / "t").stat().st_size < 100_000
    assert parquet_size(tmp_path / "t").decoded_bytes > 8 * 10_000_000


def test_values_of_a_fixed_length_are_counted_with_that_length(tmp_path: Path) -> None:
    """Decimals are written in 16 bytes each; the schema's length of one is changed to 1,000,000."""
    pl.DataFrame({"a": ["1.5"] * ROWS}).cast(pl.Decimal(38, 2)).write_parquet(tmp_path / "t", statistics=False)
    usual = parquet_size(tmp_path / "t").decoded_bytes
    assert 16 * ROWS < usual < 64 * ROWS
    content = (tmp_path / "t").read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    # The schema's element: its physical type, 7, and its length, 16.
    footer = content[-8 - length : -8].replace(
        b"\x15" + number(7) + b"\x15" + number(16), b"\x15" + number(7) + b"\x15" + number(10**6), 1
    )
    (tmp_path / "t").write_bytes(content[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1")
    assert parquet_size(tmp_path / "t").decoded_bytes > 10**6 * ROWS


@pytest.mark.parametrize(
    "change",
    [
        lambda content: changed(content, ROWS, 7),
        lambda content: changed(content, ROWS, 10**15),
        lambda content: changed(content, ROWS, -5),
        lambda content: content[:-8] + struct.pack("<I", 2**32 - 1) + b"PAR1",
        lambda content: content[:-8] + struct.pack("<I", 0) + b"PAR1",
        lambda content: content[:-4] + b"RAP1",
        lambda content: content[:10],
        lambda content: b"",
        lambda content: b"PAR1" + b"\xff" * 100 + struct.pack("<I", 100) + b"PAR1",
        lambda content: b"PAR1" + b"\x1c" * 100 + struct.pack("<I", 100) + b"PAR1",
        lambda content: content[:4] + b"\x00" * 200 + content[204:],  # the first page's header
    ],
)
def test_metadata_that_is_wrong_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    TABLE.write_parquet(tmp_path / "t", statistics=False)
    (tmp_path / "t").write_bytes(change((tmp_path / "t").read_bytes()))
    with pytest.raises(InvalidMetadata):
        parquet_size(tmp_path / "t")


LISTS = pl.DataFrame({"a": [[i, i, i] for i in range(1_000)], "b": range(1_000)})


def test_a_negative_number_of_values_is_refused(tmp_path: Path) -> None:
    LISTS.write_parquet(tmp_path / "t", statistics=False)
    (tmp_path / "t").write_bytes(changed((tmp_path / "t").read_bytes(), 3_000, -5))
    with pytest.raises(InvalidMetadata, match="a column has a negative number of values"):
        parquet_size(tmp_path / "t")


def test_pages_whose_numbers_cancel_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({"a": [float(i) for i in range(ROWS)]}).write_parquet(
        tmp_path / "t", compression="uncompressed", statistics=False, data_page_size=20_000
    )
    content = (tmp_path / "t").read_bytes()
    page = re.compile(rb"\x2c\x15([\x80-\xff][\x00-\x7f])")  # a data page's number of values
    found = page.findall(content)
    count = next(n for n in range(ROWS) if number(n) == found[0])
    assert found[1] == found[0]
    wrong = iter([number(2 * count + 100), number(-100)])  # as many bytes, the same sum
    content = page.sub(lambda _: b"\x2c\x15" + next(wrong), content, count=2)
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(InvalidMetadata, match="a page has a negative number of values"):
        parquet_size(tmp_path / "t")


def test_a_flat_column_beside_lists_is_compared_with_the_rows(tmp_path: Path) -> None:
    LISTS.write_parquet(tmp_path / "t", statistics=False)
    assert parquet_size(tmp_path / "t").columns == 2
    content = (tmp_path / "t").read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    # Rows of the file, values of the flat column, and rows of the row group.
    start, *between, end = content[-8 - length : -8].split(number(1_000))
    footer = number(999).join([start, number(1_000).join(between), end])
    assert len(footer) == length
    (tmp_path / "t").write_bytes(content[: -8 - length] + footer + content[-8:])
    with pytest.raises(InvalidMetadata, match="a column has 1,000 values for 999 rows"):
        parquet_size(tmp_path / "t")


def test_bytes_changed_anywhere_in_the_metadata_end_in_a_size_or_in_one_line(
    tmp_path: Path,
) -> None:
    TABLE.head(50).write_parquet(tmp_path / "t")
    whole = (tmp_path / "t").read_bytes()
    for place in range(len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0], len(whole)):
        for byte in (127,) if place % 2 else (0,):
            (tmp_path / "t").write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            with suppress(InvalidMetadata):
                parquet_size(tmp_path / "t")
