"""Calls of CUDA's driver that PyTorch does not offer: streams that wait for a word of memory.

The work on an observation can be launched before the observation exists. The memory is shared with
another process, which writes the word once the observation is complete.
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

_EQUAL_OR_AFTER = 0  # CU_STREAM_WAIT_VALUE_GEQ, modulo 2^32


def pin_memory(memory: NDArray[np.uint8]) -> Callable[[], object]:
    """Pin this memory, so that the device can read and write it at its host address.

    Returns a function that unpins it; when the array is deleted, that happens by itself.
    """
    address = memory.ctypes.data
    torch.cuda.current_stream().synchronize()  # creates the device's context in this thread
    # Not the runtime's call: it would keep an error for the next check.
    _check("cuMemHostRegister", _driver().cuMemHostRegister_v2(address, memory.nbytes, 0))
    unpin = weakref.finalize(memory, _unpin_memory, address)
    unpin.atexit = False
    return unpin


def _unpin_memory(address: int) -> None:
    _check("cuMemHostUnregister", _driver().cuMemHostUnregister(address))


def device_view(memory: NDArray[np.uint8]) -> Tensor:
    """The same bytes as a tensor of the current device, whose kernels then access host memory.

    The memory must be pinned. For a few thousand bytes a kernel is faster than a copy, which waits
    for a copy engine to start.
    """
    tensor: Tensor = torch.as_tensor(_Bytes(memory), device="cuda")
    if tensor.data_ptr() != memory.ctypes.data:
        raise RuntimeError("PyTorch copied the memory instead of addressing it")
    return tensor


class _Bytes:
    """Bytes at an address, as `__cuda_array_interface__`."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.__cuda_array_interface__ = {
            "shape": memory.shape,
            "typestr": memory.dtype.str,
            "data": (memory.ctypes.data, False),
            "version": 3,
        }


def stream_wait_value(word: NDArray[np.uint32], value: int) -> None:
    """Work launched on the current stream from now on waits until the word reaches the value.

    The memory must be pinned. Both count modulo 2^32: the value may be at most 2^31 ahead.
    """
    stream = torch.cuda.current_stream().cuda_stream
    failure = _driver().cuStreamWaitValue32_v2(stream, word.ctypes.data, value % 2**32, _EQUAL_OR_AFTER)
    _check("cuStreamWaitValue32", failure)


def supports_stream_wait(device: torch.device) -> bool:
    """Whether streams of that device can wait for a word.

    Not on processors other than x86, whose writes the device may see in another order; and not
    where every launch is synchronous.
    """
    if device.type != "cuda" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        return False
    memory = np.zeros(4096, np.uint8)
    try:
        with torch.cuda.device(device):
            unpin = pin_memory(memory)
            try:
                stream_wait_value(memory[:4].view(np.uint32), 0)
                torch.cuda.current_stream().synchronize()
            finally:
                unpin()
    except (OSError, AttributeError, RuntimeError):  # no such library, call or memory
        return False
    return True


def _check(call: str, failure: int) -> None:
    if failure:
        raise RuntimeError(f"{call}: CUDA error {failure}")


@cache
def _driver() -> Any:
    library = ctypes.PyDLL("libcuda.so.1")  # keeps the interpreter's lock: the calls are short
    library.cuStreamWaitValue32_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
    library.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    library.cuMemHostUnregister.argtypes = [ctypes.c_void_p]
    return library
