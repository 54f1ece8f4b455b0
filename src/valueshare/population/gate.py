"""A gate in a CUDA stream: work launched behind it waits on the device until the host opens it.

So the device can have what to do with an observation before there is one: when it is there, the
host writes one word, which costs a microsecond, instead of launching.
"""

import ctypes
import os
import platform
from functools import cache
from typing import Any

import numpy as np
import torch

_EQUAL_OR_AFTER = 0  # CU_STREAM_WAIT_VALUE_GEQ, which counts in a circle


class Gate:
    """Closed and opened in turn, by one thread. Whoever closes it must open it, come what may.

    While it is closed that thread must not wait for the device, nor have it do anything for the
    first time or take memory: such calls may wait for all streams.
    """

    def __init__(self) -> None:
        self._word = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._seen = self._word.numpy().view(np.uint32)
        self._address = self._word.data_ptr()  # the device's too: page-locked memory has one
        self._closed = 0

    def close(self) -> None:
        """What the current stream gets from now on waits for `open`."""
        self._closed = (self._closed + 1) % 2**32
        stream = torch.cuda.current_stream().cuda_stream
        failure = _driver().cuStreamWaitValue32_v2(
            stream, self._address, self._closed, _EQUAL_OR_AFTER
        )
        if failure:
            raise RuntimeError(f"cuStreamWaitValue32: CUDA error {failure}")

    def open(self) -> None:
        """Let go what waits; of an open gate nothing happens."""
        self._seen[0] = self._closed


def make_gate(device: torch.device) -> Gate | None:
    """A gate for a stream of that device, where there can be one.

    Not on processors that may show the device the word before what was written earlier, which x86
    does not; and not where every launch is waited for.
    """
    if device.type != "cuda" or platform.machine() not in ("x86_64", "AMD64"):
        return None
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        return None
    try:
        gate = Gate()
        with torch.cuda.device(device):
            gate.close()
        gate.open()
    except (OSError, AttributeError, RuntimeError):  # no such library, call or memory
        return None
    return gate


@cache
def _driver() -> Any:
    library = ctypes.PyDLL("libcuda.so.1")  # one that keeps the interpreter's lock: calls are short
    library.cuStreamWaitValue32_v2.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_uint,
    ]
    return library
