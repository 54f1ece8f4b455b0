"""Parquet files whose metadata is not true, written byte by byte."""

import struct


def number(value: int) -> bytes:
    """A number as Thrift's compact protocol has it: zigzag, seven bits to a byte."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    said = bytearray()
    while value > 127:
        said.append(value & 127 | 128)
        value >>= 7
    return bytes([*said, value])


def changed(content: bytes, old: int, new: int) -> bytes:
    """The footer with one number for another wherever it is; its length is put right."""
    length = struct.unpack("<I", content[-8:-4])[0]
    data, footer = content[: -8 - length], content[-8 - length : -8]
    footer = footer.replace(number(old), number(new))
    return data + footer + struct.pack("<I", len(footer)) + b"PAR1"
