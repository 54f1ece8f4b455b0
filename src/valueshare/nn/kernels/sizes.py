"""Sizes of what one program of a kernel computes at a time."""

from typing import NamedTuple

import triton


class Tiles(NamedTuple):
    """Of a kernel's two axes, with the warps and the stages of loading that were fastest with them on an H200."""

    rows: int
    columns: int
    warps: int
    stages: int


class ProductTiles(NamedTuple):
    """Of the rows and columns of a product and the axis that it sums over, with warps and stages as in `Tiles`."""

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int


def padded(size: int) -> int:
    """The next power of two that the tensor cores take."""
    return max(16, int(triton.next_power_of_2(size)))
