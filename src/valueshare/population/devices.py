"""The device that trains: whether it is available, the settings of PyTorch while it trains, and its free memory."""

import gc
import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from valueshare.errors import InvalidInput


def check_replay_device(replay_device: str | None, device: torch.device) -> None:
    """Refuse a replay on a GPU if training is on a CPU."""
    if replay_device == "cuda" and device.type != "cuda":
        raise InvalidInput(
            "`replay_device = 'cuda'` needs training on a CUDA device: write cpu or disk, or "
            "`device = 'cuda'` where there is one"
        )


def checked_device(device: str | torch.device) -> torch.device:
    """The device of that name, if it is available."""
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"`device = {device!r}`: write auto, cpu, cuda or cuda:0") from error
    if chosen.type == "cuda" and (not torch.cuda.is_available() or (chosen.index or 0) >= torch.cuda.device_count()):
        raise InvalidInput(f"`device = {device!r}`: CUDA device not available; write cpu")
    if chosen.type not in ("cpu", "cuda"):
        raise InvalidInput(f"`device = {device!r}`: write auto, cpu, cuda or cuda:0")
    return chosen


@contextmanager
def training_on(device: torch.device, *, tf32: bool, own_network: bool = False) -> Iterator[None]:
    """Set PyTorch's backends for training, and restore them on exit.

    On CUDA: the device is the current one, and TensorFloat-32 on or off. Streams and graphs belong to the current
    device, not to that of the tensors. On an Arm processor: matrix products by OpenBLAS, because oneDNN takes up to
    three times as long for products with a transposed matrix, as in the gradients of small layers. With a
    user's network (`own_network`), oneDNN stays enabled: it is faster for convolutions.
    """
    if device.type != "cuda":
        with _without_onednn() if not own_network and platform.machine() in ("aarch64", "arm64") else nullcontext():
            yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")  # matrix products
    torch.backends.cudnn.allow_tf32 = tf32  # convolutions
    try:
        with torch.cuda.device(device):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def _without_onednn() -> Iterator[None]:
    onednn: Any = torch.backends.mkldnn  # PyTorch's types do not say that its switches are bools
    before, onednn.enabled = onednn.enabled, False
    try:
        yield
    finally:
        onednn.enabled = before


def release_memory(device: torch.device, *, compiled: bool = False) -> None:
    """Free unreferenced memory, including that of CUDA graphs."""
    if compiled:
        torch.compiler.reset()  # compiled functions refer to the tensors of a population
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
