"""What CUDA's driver can do and PyTorch does not offer: streams that wait for a word of memory.

So a device can have what to do with an observation before there is one. The memory is that of
another process, which writes the word when the observation is there: nothing is left to be
launched.
"""

import ctypes
import os
import platform
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_EQUAL_OR_AFTER = 0  # CU_STREAM_WAIT_VALUE_GEQ, which counts in a circle


def lock_pages(memory: NDArray[np.uint8]) -> Callable[[], object]:
    """Let the device read and write this memory, at the addresses that it has here.

    Call what is returned when the device has done with it; when the array is gone, that is done.
    """
    address = memory.ctypes.data
    torch.cuda.current_stream().synchronize()  # so that the device has a context in this thread
    # Not the runtime's call: it would keep an error for whoever looks for one next.
    _check("cuMemHostRegister", _driver().cuMemHostRegister_v2(address, memory.nbytes, 0))
    unlock = weakref.finalize(memory, _unlock_pages, address)
    unlock.atexit = False
    return unlock


def _unlock_pages(address: int) -> None:
    _check("cuMemHostUnregister", _driver().cuMemHostUnregister(address))


def as_device_sees(memory: NDArray[np.uint8]) -> Tensor:
    """The same bytes as a tensor of the current device, whose kernels then use the host's memory.

    Its pages must be locked. For a few thousand bytes a kernel is sooner done than a copy, which
    waits for an engine of its own to start.
    """
    tensor: Tensor = torch.as_tensor(_Bytes(memory), device="cuda")
    return tensor


class _Bytes:
    """Bytes at an address, in the words of other libraries."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.__cuda_array_interface__ = {
            "shape": memory.shape,
            "typestr": memory.dtype.str,
            "data": (memory.ctypes.data, False),
            "version": 3,
        }


def wait_for_word(word: NDArray[np.uint32], value: int) -> None:
    """What the current stream gets from now on waits until the word has come to the value.

    Its pages must be locked. Both count in a circle: the value may be at most 2^31 ahead.
    """
    stream = torch.cuda.current_stream().cuda_stream
    failure = _driver().cuStreamWaitValue32_v2(
        stream, word.ctypes.data, value % 2**32, _EQUAL_OR_AFTER
    )
    _check("cuStreamWaitValue32", failure)


def can_wait(device: torch.device) -> bool:
    """Whether streams of that device can wait for a word.

    Not on processors that may show the device the word before what was written earlier, which x86
    does not; and not where every launch is waited for.
    """
    if device.type != "cuda" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        return False
    memory = np.zeros(4096, np.uint8)
    try:
        with torch.cuda.device(device):
            unlock = lock_pages(memory)
            try:
                wait_for_word(memory[:4].view(np.uint32), 0)
                torch.cuda.current_stream().synchronize()
            finally:
                unlock()
    except (OSError, AttributeError, RuntimeError):  # no such library, call or memory
        return False
    return True


def _check(call: str, failure: int) -> None:
    if failure:
        raise RuntimeError(f"{call}: CUDA error {failure}")


@cache
def _driver() -> Any:
    library = ctypes.PyDLL("libcuda.so.1")  # one that keeps the interpreter's lock: calls are short
    library.cuStreamWaitValue32_v2.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_uint,
    ]
    library.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    library.cuMemHostUnregister.argtypes = [ctypes.c_void_p]
    return library
