"""The metadata of a Parquet file: rows, columns and decoded bytes, read before any of its data.

A footer and the headers of pages are Thrift structures in the compact protocol, field by field:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
Nothing is taken on trust: a few bytes of a page can stand for billions of values, so what the
footer says is compared with the headers of all pages.
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

MAGIC = b"PAR1"
MOST_FOOTER_BYTES = 4 * 2**20  # that of 1,200 columns of row groups has 150 kB
HEADER_BYTES = 2**9, 2**16  # of a page: of almost all, and at most, with statistics
MOST_PAGES = 200_000
MOST_DEPTH = 16
# Bytes of a decoded value by physical type; of texts (6) the reference to it.
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 16, 4: 4, 5: 8, 6: 16}
FIXED = 7  # bytes of a length that the schema has
REPEATED = 2  # values of a list, which are not as many as rows
INDEX_PAGE, DICTIONARY_PAGE = 1, 2

Fields = dict[int, Any]  # of a structure, by number


class Lies(ValueError):
    """The metadata cannot be true; the message says why."""


class Size(NamedTuple):
    """What a file holds, by its metadata."""

    rows: int
    columns: int
    decoded_bytes: int  # at least what all columns take in memory, and what pages unpack to


def parquet_size(path: Path) -> Size:
    """What a file holds; `Lies` where its metadata cannot be true, `OSError` as usual."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        footer = _footer(file, end)
        rows, groups = _whole(footer, 3), _list(footer, 4)
        schema = _list(footer, 2)
        types = [one for one in schema[1:] if not one.get(5)]  # groups have children
        nested = any(one.get(3) == REPEATED for one in schema[1:])
        if sum(_whole(group, 3) for group in groups) != rows:
            raise Lies("its row groups have other rows than it says")
        decoded = 0
        for group in groups:
            chunks = _list(group, 1)
            if len(chunks) != len(types):
                raise Lies("its row groups have other columns than it says")
            for chunk, kind in zip(chunks, types, strict=True):
                decoded += _chunk_bytes(
                    file, end, chunk, kind, None if nested else _whole(group, 3)
                )
    return Size(rows, len(types), decoded)


def _footer(file: BinaryIO, end: int) -> Fields:
    if end < 12:
        raise Lies("it is too short")
    file.seek(end - 8)
    length, magic = struct.unpack("<I4s", file.read(8))
    if magic != MAGIC:
        raise Lies("it does not end as a Parquet file does")
    if length > min(end - 12, MOST_FOOTER_BYTES):
        raise Lies(f"its metadata would have {length:,} bytes")
    file.seek(end - 8 - length)
    return _Reader(file.read(length)).structure()


def _chunk_bytes(file: BinaryIO, end: int, chunk: Fields, kind: Fields, rows: int | None) -> int:
    """Decoded bytes of a column of a row group, its pages' headers compared with the footer."""
    about = chunk.get(3)
    if not isinstance(about, dict):
        raise Lies("a column has no metadata")
    values, packed = _whole(about, 5), _whole(about, 7)
    places = [about[name] for name in (9, 11) if name in about]  # of its first pages
    first = min((place for place in places if isinstance(place, int) and place), default=0)
    if first < 4 or packed < 0 or first + packed > end:
        raise Lies("a column is not within the file")
    if values < 0 or rows not in (None, values):
        raise Lies(f"a column has {values:,} values for {rows:,} rows")
    found = unpacked = pages = 0
    place = first
    while place < first + packed:
        header, length = _page_header(file, place)
        pages += 1
        if pages > MOST_PAGES:
            raise Lies(f"a column has more than {MOST_PAGES:,} pages in a row group")
        size, inside = _whole(header, 2), _whole(header, 3)
        if size < 0 or inside < 0:
            raise Lies("a page has a negative size")
        unpacked += size
        if _whole(header, 1) not in (INDEX_PAGE, DICTIONARY_PAGE):
            data = header.get(5, header.get(8))
            found += _whole(data if isinstance(data, dict) else {}, 1)
        place += length + inside
    if place != first + packed or found != values:
        raise Lies(f"the pages of a column have {found:,} values, and it says {values:,}")
    physical = _whole(kind, 1)
    width = _whole(kind, 2) if physical == FIXED else WIDTHS.get(physical, 16)
    return unpacked + values * max(1, width)


def _page_header(file: BinaryIO, place: int) -> tuple[Fields, int]:
    """The header of the page at a place of the file, and how many bytes it has."""
    usual, most = HEADER_BYTES
    for count in (usual, most):
        file.seek(place)
        reader = _Reader(file.read(count))
        try:
            return reader.structure(), reader.at
        except Lies:
            if count == most:
                raise
    raise AssertionError


def _whole(fields: Fields, number: int) -> int:
    value = fields.get(number)
    if type(value) is not int:
        raise Lies(f"field {number} of its metadata is not a number")
    return value


def _list(fields: Fields, number: int) -> list[Fields]:
    value = fields.get(number)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise Lies(f"field {number} of its metadata is not a list")
    return value


class _Reader:
    """Thrift's compact protocol, from bytes; `Lies` where they end too early."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def structure(self, depth: int = 0) -> Fields:
        if depth > MOST_DEPTH:
            raise Lies("its metadata is nested too deeply")
        fields: Fields = {}
        number = 0
        while head := self._byte():
            step = head >> 4
            number = number + step if step else self._signed()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
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
        raise Lies(f"its metadata has a value of kind {kind}")

    def _several(self, depth: int) -> list[Any]:
        if depth > MOST_DEPTH:
            raise Lies("its metadata is nested too deeply")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        if count > len(self.content) - self.at:  # each has a byte at least
            raise Lies("its metadata ends within a list")
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
        raise Lies("its metadata has a number of more than 64 bits")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        taken = self.content[self.at : self.at + count]
        if len(taken) < count:
            raise Lies("its metadata ends too early")
        self.at += count
        return taken
