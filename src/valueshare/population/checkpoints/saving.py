"""Saving: a finished phase is committed, and files that no checkpoint needs are deleted."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import polars as pl
import torch
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.files import DiskFull, atomic_write, refuse_links, remove_files, remove_temporary_files
from valueshare.population.checkpoints.files import Damaged, is_intact, needed_files, read_manifest
from valueshare.records import CHECKPOINT_FILE, CHECKPOINTS, RECORDS, CheckpointPaths, phase_of, write_table
from valueshare.replay.packing import FrameFile
from valueshare.schema import FORMAT, Manifest, StoredSegment, body_checksum
from valueshare.text import resume_command

_DTYPES = {  # as safetensors names them
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class ReplayDelta(NamedTuple):
    """Transitions that a phase added to replay, before they are stored."""

    columns: Mapping[str, Tensor]
    end: int  # transitions that an agent had written when the phase ended
    oldest: int  # the oldest transition that any agent can still sample
    frames: Iterable[FrameFile] = ()  # iterated lazily: a file is made when the one before it is on the disk


def save(
    paths: CheckpointPaths,
    phase: int,
    fingerprint: Mapping[str, Any],
    state: Mapping[str, Tensor],
    records: pl.DataFrame,
    delta: ReplayDelta | None,
    groups: int | None = None,
) -> None:
    """Commit a phase, then delete files that neither it nor the checkpoint before it needs.

    `delta` is None for the last phase of a run, `groups` where agents are not divided. Segments of replay that end
    before the oldest live transition are dropped.
    """
    refuse_links(paths.root, f"{CHECKPOINTS}/{paths.name}", f"{RECORDS}/{paths.records(phase).name}")
    with _all_or_nothing(paths, phase):
        before = _manifest_before(paths, phase)
        for directory in (paths.checkpoints, paths.root / RECORDS):
            directory.mkdir(parents=True, exist_ok=True)
        earlier_segments, earlier_records = ([], {}) if before is None else (before.segments, before.records)
        segments = []
        if delta is not None:
            segments = [segment for segment in earlier_segments if segment.end > delta.oldest]
            segments.append(_write_replay(paths, phase, delta))
        manifest = Manifest(
            format=FORMAT,
            phase=phase,
            fingerprint=dict(fingerprint),
            state={paths.state(phase).name: atomic_write(paths.state(phase), safetensors_bytes(state))},
            segments=segments,
            records={**earlier_records, paths.records(phase).name: write_table(paths.records(phase), records)},
            groups=groups,
        )
        body = msgspec.to_builtins(manifest)
        text = json.dumps({"checksum": body_checksum(body), **body}, indent=1)
        atomic_write(paths.manifest(phase), [text.encode()])
    kept = [manifest] if before is None else [before, manifest]
    remove_files(paths.checkpoints, _unneeded(paths, kept))


def remove_partial_files(paths: CheckpointPaths) -> None:
    """Refuse symbolic links, then delete partial files of killed processes.

    Only for the population's one writer.
    """
    refuse_links(paths.root, f"{CHECKPOINTS}/{paths.name}", RECORDS)
    remove_temporary_files(paths.checkpoints, CHECKPOINT_FILE)
    remove_temporary_files(paths.root / RECORDS, re.compile(paths.records_pattern, re.ASCII))


def remove_old(paths: CheckpointPaths, last: int) -> None:
    """Delete old files left by a process that was killed just after the `last` phase of the run.

    A finished population is not resumed, so nothing else would delete it. Where that phase is not intact, all files are
    kept: an older checkpoint may be the only one to resume from. The caller holds the run folder's lock.
    """
    try:
        kept = [read_manifest(paths.manifest(phase)) for phase in range(max(0, last - 1), last + 1)]
    except Damaged:  # not finished, or damaged: then the files may be needed
        return
    unneeded = _unneeded(paths, kept)
    if any(unneeded(path.name) for path in paths.checkpoints.iterdir()) and is_intact(paths, last):
        remove_files(paths.checkpoints, unneeded)


def _manifest_before(paths: CheckpointPaths, phase: int) -> Manifest | None:
    """The manifest of the phase before; None for the first phase."""
    if phase == 0:
        return None
    try:
        return read_manifest(paths.manifest(phase - 1))
    except Damaged as damage:
        raise InvalidInput(
            f"the checkpoint before this one was damaged meanwhile ({damage}): "
            f"{resume_command(paths.root)} resumes from the last intact one"
        ) from damage


def _write_replay(paths: CheckpointPaths, phase: int, delta: ReplayDelta) -> StoredSegment:
    """Write the files of a segment of replay; return its entry in the manifest."""
    digest = atomic_write(paths.replay(phase), safetensors_bytes(delta.columns))
    frames: dict[str, str] = {}
    for number, file in enumerate(delta.frames):
        path = paths.frames(phase, number)
        frames[path.name] = atomic_write(path, safetensors_bytes(file._asdict()))
    return StoredSegment(paths.replay(phase).name, digest, delta.end, frames)


@contextmanager
def _all_or_nothing(paths: CheckpointPaths, phase: int) -> Iterator[None]:
    """On a full disk, delete the phase's files: no manifest refers to them."""
    try:
        yield
    except DiskFull as error:
        remove_files(paths.checkpoints, lambda name: phase_of(name) == phase)
        safe = "all checkpoints are intact" if phase else "no checkpoint yet"
        raise DiskFull(error.errno, f"{error.strerror}; {safe}") from error


def _unneeded(paths: CheckpointPaths, kept: list[Manifest]) -> Callable[[str], bool]:
    """A test of names in checkpoints/NAME: whether one is of a checkpoint file that these manifests do not need."""
    names = {paths.manifest(manifest.phase).name for manifest in kept}
    names |= {name for manifest in kept for name in needed_files(manifest)}
    return lambda name: phase_of(name) is not None and name not in names


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The header of a safetensors file, then the bytes of every tensor.

    Written here and not by the library's `save_file`, so that the checksum is taken on the way, no second copy of the
    data is made, and a full disk is an OSError with its number.
    """
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data
