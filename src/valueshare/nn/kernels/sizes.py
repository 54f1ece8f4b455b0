"""Sizes of what one program of a kernel computes at a time."""

import triton


def padded(size: int) -> int:
    """The next power of two that the tensor cores take."""
    return max(16, int(triton.next_power_of_2(size)))
