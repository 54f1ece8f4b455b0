"""The metadata of a Parquet file: rows, columns and decoded bytes, read before any of its data.

A footer and the headers of pages are Thrift structures in the compact protocol, field by field:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
Nothing is trusted: a few bytes of a page can encode billions of values, so the footer is compared with the headers of
all pages.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 4 * 2**20  # that of 1,200 columns of row groups has 150 kB
HEADER_BYTES, MAX_HEADER_BYTES = (2**9, 2**16)  # of a page: usually enough, always enough
MAX_PAGES = 200_000
MAX_DEPTH = 16
# Bytes of a decoded value by physical type; of texts (6) the reference to it.
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 16, 4: 4, 5: 8, 6: 16}
FIXED = 7  # bytes of a length that the schema has
INDEX_PAGE, DICTIONARY_PAGE = 1, 2

Fields = dict[int, Any]  # the fields of a structure, by number


class InvalidMetadata(ValueError):
    """The metadata cannot be true; the message says why."""


class Size(NamedTuple):
    """Rows, columns and bytes of a file, by its metadata."""

    rows: int
    columns: int
    decoded_bytes: int  # at least what all columns take in memory, and what pages unpack to


def parquet_size(path: Path) -> Size:
    """The size of a file; `InvalidMetadata` where it cannot be true, `OSError` as usual."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        footer = _footer(file, end)
        rows, groups = _integer(footer, 3), _list(footer, 4)
        if sum(_integer(group, 3) for group in groups) != rows:
            raise InvalidMetadata("its row groups have other rows than it says")
        chunks = [(chunk, _integer(group, 3)) for group in groups for chunk in _list(group, 1)]
        columns = max((len(_list(group, 1)) for group in groups), default=len(_list(footer, 2)) - 1)
        lengths = [length for element in _list(footer, 2) if type(length := element.get(2)) is int]
        widths = WIDTHS | {FIXED: max([16, *lengths])}
        decoded = sum(_chunk_bytes(file, end, chunk, row_count, widths) for chunk, row_count in chunks)
    return Size(rows, columns, decoded)


def _footer(file: BinaryIO, end: int) -> Fields:
    if end < 12:
        raise InvalidMetadata("it is too short")
    file.seek(end - 8)
    length, magic = struct.unpack("<I4s", file.read(8))
    if magic != MAGIC:
        raise InvalidMetadata("it does not end as a Parquet file does")
    if length > min(end - 12, MAX_FOOTER_BYTES):
        raise InvalidMetadata(f"its metadata would have {length:,} bytes")
    file.seek(end - 8 - length)
    return _Reader(file.read(length)).structure()


def _chunk_bytes(file: BinaryIO, end: int, chunk: Fields, rows: int, widths: Mapping[int, int]) -> int:
    """Decoded bytes of a column of a row group, its pages' headers compared with the footer."""
    about = chunk.get(3)
    if not isinstance(about, dict):
        raise InvalidMetadata("a column has no metadata")
    values, packed = _integer(about, 5), _integer(about, 7)
    offsets = [about[name] for name in (9, 11) if name in about]  # where its first pages are
    first = min((offset for offset in offsets if isinstance(offset, int) and offset), default=0)
    if first < 4 or packed < 0 or first + packed > end:
        raise InvalidMetadata("a column is not within the file")
    if values < 0:
        raise InvalidMetadata("a column has a negative number of values")
    path = about.get(3)
    nested = isinstance(path, list) and len(path) > 1  # a column of lists has more values than rows
    if values < rows or (values > rows and not nested):
        raise InvalidMetadata(f"a column has {values:,} values for {rows:,} rows")
    page_values = unpacked = pages = 0
    offset = first
    while offset < first + packed:
        header, length = _page_header(file, offset)
        pages += 1
        if pages > MAX_PAGES:
            raise InvalidMetadata(f"a column has more than {MAX_PAGES:,} pages in a row group")
        size, inside = _integer(header, 2), _integer(header, 3)
        if size < 0 or inside < 0:
            raise InvalidMetadata("a page has a negative size")
        unpacked += size
        if _integer(header, 1) not in (INDEX_PAGE, DICTIONARY_PAGE):
            data = header.get(5, header.get(8))
            count = _integer(data if isinstance(data, dict) else {}, 1)
            if count < 0:
                raise InvalidMetadata("a page has a negative number of values")
            page_values += count
        offset += length + inside
    if offset != first + packed or page_values != values:
        raise InvalidMetadata(f"the pages of a column have {page_values:,} values, and it says {values:,}")
    return unpacked + values * widths.get(_integer(about, 1), 16)


def _page_header(file: BinaryIO, offset: int, size: int = HEADER_BYTES) -> tuple[Fields, int]:
    """The header of the page at an offset of the file, and how many bytes it has."""
    file.seek(offset)
    reader = _Reader(file.read(size))
    try:
        return reader.structure(), reader.at
    except InvalidMetadata:
        if size == MAX_HEADER_BYTES:
            raise
        return _page_header(file, offset, MAX_HEADER_BYTES)


def _integer(fields: Fields, number: int) -> int:
    value = fields.get(number)
    if type(value) is not int:
        raise InvalidMetadata(f"field {number} of its metadata is not a number")
    return value


def _list(fields: Fields, number: int) -> list[Fields]:
    value = fields.get(number)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidMetadata(f"field {number} of its metadata is not a list")
    return value


class _Reader:
    """Thrift's compact protocol, from bytes; `InvalidMetadata` where they end too early."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def structure(self, depth: int = 0) -> Fields:
        fields: Fields = {}
        number = 0
        while head := self._byte():
            step = head >> 4
            number = number + step if step else self._signed()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise InvalidMetadata("its metadata is nested too deeply")
        if kind in (1, 2):  # a truth value, in the kind itself
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._take(8)
        if kind == 8:
            return self._take(self._unsigned())
        if kind in (9, 10):
            return self._several(depth)
        if kind == 12:
            return self.structure(depth + 1)
        raise InvalidMetadata(f"its metadata has a value of kind {kind}")

    def _several(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        if count > len(self.content) - self.at:  # each has a byte at least
            raise InvalidMetadata("its metadata ends within a list")
        kind = head & 15
        if kind in (1, 2):  # in lists, truth values are bytes
            kind = 3
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise InvalidMetadata("its metadata has a number of more than 64 bits")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        taken = self.content[self.at : self.at + count]
        if len(taken) < count:
            raise InvalidMetadata("its metadata ends too early")
        self.at += count
        return taken
