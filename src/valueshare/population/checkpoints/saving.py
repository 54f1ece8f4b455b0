"""Saving: a finished phase is committed, and files that no checkpoint needs are deleted."""

import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import polars as pl
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.files import NoRoom, refuse_links, remove_files, remove_leftovers, write_whole
from valueshare.population.checkpoints.files import OWN_NAMES, Folder, phase_of
from valueshare.population.checkpoints.manifest import FORMAT, Damaged, is_whole, read_manifest, segment_files
from valueshare.population.checkpoints.tensor_files import safetensors_bytes
from valueshare.replay.packing import Piece
from valueshare.schema import body_checksum


class Added(NamedTuple):
    """Transitions that a phase added to replay, before they are stored."""

    columns: Mapping[str, Tensor]
    end: int  # transitions that an agent had written when the phase ended
    oldest: int  # the oldest transition still live in any agent
    frames: Iterable[Piece] = ()  # asked for a piece when the one before it is on the disk


class Saved(NamedTuple):
    """The cost of a checkpoint."""

    seconds: float
    frame_bytes: int  # 0 where observations are no images
    packed_bytes: int  # what they take on the disk

    @property
    def ratio(self) -> float:
        """By how much frames shrank; 1 where there are none."""
        return self.frame_bytes / self.packed_bytes if self.packed_bytes else 1.0


def save(
    folder: Folder,
    phase: int,
    fingerprint: Mapping[str, Any],
    state: Mapping[str, Tensor],
    records: pl.DataFrame,
    added: Added | None,
) -> Saved:
    """Commit a phase, then delete what neither it nor the checkpoint before it needs.

    `added` is None for the last phase of a run. Segments of replay that end before the oldest live
    transition are done with.
    """
    began = time.perf_counter()
    refuse_links(folder.root, f"checkpoints/{folder.name}", f"records/{folder.records(phase).name}")
    with _all_or_nothing(folder, phase):
        before = _manifest_before(folder, phase)
        for directory in (folder.checkpoints, folder.root / "records"):
            directory.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        records.write_parquet(buffer)
        earlier_records = {} if before is None else before["records"]
        segments: list[dict[str, Any]] = []
        frame_bytes = packed_bytes = 0
        if added is not None:
            earlier = [] if before is None else before["segments"]
            own, frame_bytes, packed_bytes = _write_replay(folder, phase, added)
            segments = [*(s for s in earlier if s["end"] > added.oldest), own]
        body = {
            "format": FORMAT,
            "phase": phase,
            "fingerprint": fingerprint,
            "state": {folder.state(phase).name: write_whole(folder.state(phase), safetensors_bytes(state))},
            "segments": segments,
            "records": {
                **earlier_records,
                folder.records(phase).name: write_whole(folder.records(phase), [buffer.getbuffer()]),
            },
        }
        text = json.dumps({"checksum": body_checksum(body), **body}, indent=1)
        write_whole(folder.manifest(phase), [text.encode()])
    _prune(folder, kept=[m for m in (before, body) if m is not None])
    return Saved(time.perf_counter() - began, frame_bytes, packed_bytes)


def prepare(folder: Folder) -> None:
    """Refuse symbolic links, then delete what killed processes left half-written.

    Only for the population's one writer.
    """
    refuse_links(folder.root, f"checkpoints/{folder.name}", "records")
    records = re.compile(rf"{re.escape(folder.name)}-\d{{6,}}\.parquet", re.ASCII)
    remove_leftovers(folder.checkpoints, OWN_NAMES)
    remove_leftovers(folder.root / "records", records)


def remove_old(folder: Folder, last: int) -> None:
    """Delete what was left by a process that was killed just after the `last` phase of the run.

    A finished population is not resumed, so nothing else would delete it. Where that phase is not
    whole, all files are kept: an older checkpoint may be the only one to resume from. The caller
    holds the run folder's lock.
    """
    try:
        kept = [read_manifest(folder.manifest(phase)) for phase in range(max(0, last - 1), last + 1)]
    except Damaged:  # not finished, or to be repaired from what is there
        return
    names = {path.name for path in folder.checkpoints.iterdir()}
    if any(map(_unneeded(folder, kept), names)) and is_whole(folder, last):
        _prune(folder, kept)


def _manifest_before(folder: Folder, phase: int) -> dict[str, Any] | None:
    """That of the phase before; None for the first one."""
    if phase == 0:
        return None
    try:
        return read_manifest(folder.manifest(phase - 1))
    except Damaged as damage:
        raise InvalidInput(
            f"the checkpoint before this one was damaged meanwhile ({damage}): valueshare resume "
            f"{folder.root} resumes from the last one that is whole"
        ) from damage


def _write_replay(folder: Folder, phase: int, added: Added) -> tuple[dict[str, Any], int, int]:
    """The manifest's entry for the segment; bytes of its frames, before packing and after."""
    digest = write_whole(folder.replay(phase), safetensors_bytes(added.columns))
    frames: dict[str, str] = {}
    frame_bytes = packed_bytes = 0
    for number, piece in enumerate(added.frames):
        path, tensors = folder.frames(phase, number), {"data": piece.data, "chunks": piece.chunks}
        frames[path.name] = write_whole(path, safetensors_bytes(tensors))
        frame_bytes += piece.raw_bytes
        packed_bytes += piece.data.nbytes
    own = {"file": folder.replay(phase).name, "digest": digest, "end": added.end, "frames": frames}
    return own, frame_bytes, packed_bytes


@contextmanager
def _all_or_nothing(folder: Folder, phase: int) -> Iterator[None]:
    """Where a disk fills up, delete what the phase has written: it is of no checkpoint."""
    try:
        yield
    except NoRoom as error:
        remove_files(folder.checkpoints, lambda name: phase_of(name) == phase)
        reason = f"{error.strerror}; all finished phases are safe: make room, then resume"
        raise NoRoom(error.errno, reason) from error


def _prune(folder: Folder, kept: list[dict[str, Any]]) -> None:
    remove_files(folder.checkpoints, _unneeded(folder, kept))


def _unneeded(folder: Folder, kept: list[dict[str, Any]]) -> Callable[[str], bool]:
    """Whether a name in checkpoints/NAME is of a file of ours that these manifests do not need."""
    names = {folder.manifest(body["phase"]).name for body in kept}
    names |= {name for body in kept for name in body["state"]}
    names |= {name for body in kept for segment in body["segments"] for name in segment_files(segment)}
    return lambda name: phase_of(name) is not None and name not in names
