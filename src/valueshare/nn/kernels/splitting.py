"""Float32 numbers as sums of two bfloat16 numbers, for the tensor cores."""

import triton
import triton.language as tl


@triton.jit
def split(x):
    """High and low part of float32 numbers: together they have 16 bits of mantissa."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)
