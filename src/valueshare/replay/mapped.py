"""Rings on a disk: memory-mapped scratch; checkpoints are authoritative.

The file never has a name, so it is gone when the process is, however that ends.
"""

import math
import mmap
import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from valueshare.errors import InvalidInput


def mapped_zeros(folder: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of zeros whose bytes are on the disk of `folder`; the first axis of its shape counts agents."""
    size = math.prod(shape) * dtype.itemsize
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if size > free:
        fit = free // (size // shape[0])
        raise InvalidInput(
            f"{shape[0]:,} agents need {size / 1e9:.1f} GB of disk for replay and "
            f"{free / 1e9:.1f} GB are free in {folder}: {fit:,} would fit; give fewer seeds, a "
            "smaller `replay_capacity`, or `replay_device = 'cpu'`"
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        # All of it now: a disk that fills up later would end the process with SIGBUS.
        os.posix_fallocate(file.fileno(), 0, size)
        mapping = mmap.mmap(file.fileno(), size)
    mapping.madvise(mmap.MADV_RANDOM)  # batches come from anywhere: read nothing ahead
    return torch.frombuffer(mapping, dtype=dtype).reshape(shape)
