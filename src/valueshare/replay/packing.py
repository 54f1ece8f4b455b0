"""Compression of replay frames for checkpoints: in chunks, over threads, never all at once.

One frame of a game differs little from the one before it. A chunk is some rows of one agent that
follow each other, each as its exclusive-or with the row before it (the first as it is), and that
deflated: mostly zeros. Booleans are bits there. A chunk is read alone, so threads take chunks; copies from a GPU,
exclusive-or and deflation all let other threads run. A file holds many chunks.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.cores import available_cores
from valueshare.errors import InvalidInput
from valueshare.replay.segments import Cursors, rows_since
from valueshare.replay.transitions import Transitions

CHUNK_BYTES = 8 << 20  # before compression: 1,188 frames of 84x84
FILE_BYTES = 256 << 20  # target size of a file, before compression
LEVEL = 1  # level of compression: higher ones take several times as long for a tenth less

T = TypeVar("T")
U = TypeVar("U")


class Chunk(NamedTuple):
    """Rows of one agent that follow each other in the ring, which does not wrap within them."""

    agent: int
    first: int  # number of the first row
    rows: int


class FrameFile(NamedTuple):
    """The tensors of one file: chunks."""

    data: Tensor  # uint8, the compressed chunks one after the other
    chunks: Tensor  # [chunks, 4]  int64: agent, first, rows, compressed bytes


def frame_files_since(replay: Transitions, since: Cursors) -> Iterator[FrameFile]:
    """The rows written since then and still there, compressed; read while it is iterated."""

    def compress(chunk: Chunk) -> tuple[Chunk, bytes]:
        return chunk, pack(_slots(replay, chunk).cpu().numpy())

    row_bytes = replay.observation[0, 0].nbytes
    packed: list[tuple[Chunk, bytes]] = []
    raw = 0
    for chunk, data in _in_threads(compress, _chunks(replay, since)):
        packed.append((chunk, data))
        raw += chunk.rows * row_bytes
        if raw >= FILE_BYTES:
            yield _frame_file(packed)
            packed, raw = [], 0
    if packed:
        yield _frame_file(packed)


def restore(replay: Transitions, file: Mapping[str, Tensor]) -> None:
    """Write the rows of a file back to where they were; those of older segments first."""
    row = replay.observation[0, 0]
    data = file["data"].numpy().data
    table = file["chunks"].tolist()
    starts = np.cumsum([0, *(size for *_, size in table)]).tolist()

    def inflate(number: int) -> None:
        *fields, size = table[number]
        chunk = Chunk(*fields)
        if not 0 < chunk.rows <= replay.observation.shape[1]:
            raise InvalidInput(f"a checkpoint has {chunk.rows:,} frames in one chunk: it is damaged")
        packed = data[starts[number] : starts[number] + size]
        rows = torch.from_numpy(unpack(packed, chunk.rows, row.numel(), row.dtype))
        _slots(replay, chunk).copy_(rows.reshape(chunk.rows, *row.shape))

    for _ in _in_threads(inflate, range(len(table))):
        pass


def pack(frames: NDArray[Any]) -> bytes:
    """Compress frames [n, ...] of any type."""
    flat = frames.reshape(len(frames), -1)
    flat = np.packbits(flat, axis=1) if flat.dtype == np.bool_ else flat.view(np.uint8)  # [n, bytes]
    change = flat.copy()
    np.bitwise_xor(flat[1:], flat[:-1], out=change[1:])
    return zlib.compress(change.data, LEVEL)


def unpack(data: bytes | memoryview, count: int, numbers: int, dtype: torch.dtype) -> NDArray[np.generic]:
    """`count` frames that were packed, of equal size: [count, numbers]; data of another size is refused."""
    is_bool = dtype == torch.bool
    size = count * (-(-numbers // 8) if is_bool else numbers * dtype.itemsize)
    inflated = zlib.decompressobj().decompress(data, size + 1)  # one more byte shows that there are more
    if len(inflated) != size:
        raise InvalidInput(f"frames of a checkpoint have {len(inflated):,} bytes or more, not {size:,}")
    flat = np.frombuffer(bytearray(inflated), np.uint8).reshape(count, -1)
    for before, frame in pairwise(flat):  # thirty times faster than ufunc.accumulate
        np.bitwise_xor(before, frame, out=frame)
    if is_bool:
        return np.unpackbits(flat, axis=1, count=numbers).view(np.bool_)
    return flat.view(torch.empty(0, dtype=dtype).numpy().dtype)


def working_bytes() -> int:
    """Memory that packing takes on the host at most: chunks under way and waiting, and a file."""
    return 3 * CHUNK_BYTES * (2 * available_cores() + 1) + 2 * FILE_BYTES


def _chunks(replay: Transitions, since: Cursors) -> Iterator[Chunk]:
    """Rows written since then, split where the ring wraps."""
    length = replay.observation.shape[1]
    max_rows = max(1, CHUNK_BYTES // replay.observation[0, 0].nbytes)
    firsts, counts = (tensor.tolist() for tensor in rows_since(replay, since))
    for agent, (first, count) in enumerate(zip(firsts, counts, strict=True)):
        row, end = first, first + count
        while row < end:
            size = min(max_rows, end - row, length - row % length)
            yield Chunk(agent, row, size)
            row += size


def _slots(replay: Transitions, chunk: Chunk) -> Tensor:
    """The part of the ring in which a chunk is, [rows, ...]."""
    at = chunk.first % replay.observation.shape[1]
    return replay.observation[chunk.agent, at : at + chunk.rows]


def _frame_file(packed: list[tuple[Chunk, bytes]]) -> FrameFile:
    data = bytearray().join(data for _, data in packed)
    table = [[*chunk, len(data)] for chunk, data in packed]
    return FrameFile(torch.frombuffer(data, dtype=torch.uint8), torch.tensor(table))


def _in_threads(function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """The results in the order of the items, computed ahead just enough to keep all cores busy."""
    workers = available_cores()
    under_way: deque[Future[U]] = deque()
    with ThreadPoolExecutor(workers) as threads:
        for item in items:
            under_way.append(threads.submit(function, item))
            if len(under_way) > 2 * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
