"""Where the patches of a population's images lie in memory."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def patch_numbers(
    k,
    CHANNELS: tl.constexpr,
    KERNEL: tl.constexpr,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    CHANNEL: tl.constexpr,
    CHANNELS_FIRST: tl.constexpr,
):
    """Offsets of the numbers `k` of a patch from its first one."""
    if CHANNELS_FIRST:
        y, x, channel = k // KERNEL % KERNEL, k % KERNEL, k // (KERNEL * KERNEL)
    else:
        y, x, channel = k // (KERNEL * CHANNELS), k // CHANNELS % KERNEL, k % CHANNELS
    return y * ROW + x * COLUMN + channel * CHANNEL


@triton.jit
def patch_starts(
    rows,
    STRIDE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    STATE: tl.constexpr,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
):
    """Offsets of the patches `rows` of one agent."""
    state, position = rows // (DOWN * ACROSS), rows % (DOWN * ACROSS)
    return state * STATE + position // ACROSS * (STRIDE * ROW) + position % ACROSS * (STRIDE * COLUMN)


class Patches:
    """Where the patches of images lie."""

    def __init__(self, image: Tensor, kernel: int, stride: int) -> None:
        self._image, self._kernel, self._stride = image, kernel, stride
        self.down, self.across = ((size - kernel) // stride + 1 for size in image.shape[2:4])
        self.numbers = kernel**2 * image.shape[4]

    def constants(self, channels_first: bool) -> dict[str, int]:
        _, state, row, column, channel = self._image.stride()
        return {
            "CHANNELS": self._image.shape[4],
            "KERNEL": self._kernel,
            "STRIDE": self._stride,
            "DOWN": self.down,
            "ACROSS": self.across,
            "STATE": state,
            "ROW": row,
            "COLUMN": column,
            "CHANNEL": channel,
            "CHANNELS_FIRST": channels_first,
        }
