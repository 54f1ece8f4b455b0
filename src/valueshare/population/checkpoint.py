"""Checkpoints: what a run needs to resume from its last finished phase, bit for bit.

    checkpoints/NAME/state-000003.safetensors    weights, targets, optimiser, counters after phase 3
    checkpoints/NAME/replay-000003.safetensors   what phase 3 added to replay, not the rings
    checkpoints/NAME/frames-000003-0000.safe...  its frames, where observations are images: packed
    records/NAME-000003.parquet                  what phase 3 measured
    checkpoints/NAME/checkpoint-000003.json      names every file needed, each with its checksum

Every file is written under another name, synced and renamed; the JSON comes last, so a phase is
either finished or not there. What the last two checkpoints need is kept: if the newest is damaged,
the one before it serves. The last phase of a run has no replay, which nothing would resume from; to
be run again it has that of the phase before. Only regular files with these names are ever deleted.
Only safetensors, JSON and Parquet: nothing that runs code when read.
"""

import io
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from safetensors.torch import load_file
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.files import (
    NoRoom,
    file_digest,
    refuse_links,
    remove_files,
    remove_leftovers,
    write_whole,
)
from valueshare.population.fingerprint import check_fingerprint
from valueshare.population.tensor_files import safetensors_bytes
from valueshare.replay.packing import Piece
from valueshare.schema import Invalid, Manifest, body_checksum, checked, read_checksummed

# 1 had no frames. 2 was of agents whose target network was copied after the update of the same
# step: to resume them now would mix two orders of events.
FORMAT = 3
# The names of files in checkpoints/NAME, as `Folder` makes them.
_OWN = re.compile(
    r"checkpoint-\d{6,}\.json|(state|replay)-\d{6,}\.safetensors"
    r"|frames-\d{6,}-\d{4,}\.safetensors",
    re.ASCII,
)
_log = logging.getLogger(__name__)


class Damaged(Exception):
    """A file of a checkpoint is missing, cut short or changed."""


class StoredSegment(NamedTuple):
    """The transitions that a phase added to replay."""

    columns: dict[str, Tensor]
    frames: list[Path]  # files of packed frames, to be loaded one at a time


class Added(NamedTuple):
    """The same before it is stored, and which of it and of earlier phases is still live."""

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


class Checkpoint(NamedTuple):
    """A population as it was after `phase`."""

    phase: int
    state: dict[str, Tensor]
    segments: list[StoredSegment]  # of replay, oldest first
    records: list[pl.DataFrame]  # of all phases so far


class Folder(NamedTuple):
    """Where one population of a run keeps its files."""

    root: Path
    name: str

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints" / self.name

    def manifest(self, phase: int) -> Path:
        return self.checkpoints / f"checkpoint-{phase:06d}.json"

    def state(self, phase: int) -> Path:
        return self.checkpoints / f"state-{phase:06d}.safetensors"

    def replay(self, phase: int) -> Path:
        return self.checkpoints / f"replay-{phase:06d}.safetensors"

    def frames(self, phase: int, number: int) -> Path:
        return self.checkpoints / f"frames-{phase:06d}-{number:04d}.safetensors"

    def records(self, phase: int) -> Path:
        return self.root / "records" / f"{self.name}-{phase:06d}.parquet"


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
            "state": {
                folder.state(phase).name: write_whole(folder.state(phase), safetensors_bytes(state))
            },
            "segments": segments,
            "records": {
                **earlier_records,
                folder.records(phase).name: write_whole(
                    folder.records(phase), [buffer.getbuffer()]
                ),
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
    remove_leftovers(folder.checkpoints, _OWN)
    remove_leftovers(folder.root / "records", records)


def remove_old(folder: Folder, last: int) -> None:
    """Delete what was left by a process that was killed just after the `last` phase of the run.

    A finished population is not resumed, so nothing else would delete it. Where that phase is not
    whole, all files are kept: an older checkpoint may be the only one to resume from. The caller
    holds the run folder's lock.
    """
    try:
        kept = [
            _read_manifest(folder.manifest(phase)) for phase in range(max(0, last - 1), last + 1)
        ]
    except Damaged:  # not finished, or to be repaired from what is there
        return
    names = {path.name for path in folder.checkpoints.iterdir()}
    if any(map(_unneeded(folder, kept), names)) and is_whole(folder, last):
        _prune(folder, kept)


def load_latest(folder: Folder, fingerprint: Mapping[str, Any]) -> Checkpoint | None:
    """The newest checkpoint whose every checksum is right; None where there is none at all."""
    manifests = sorted(folder.checkpoints.glob("checkpoint-*.json"), reverse=True)
    for path in manifests:
        try:
            body = _read_manifest(path)
            if body["format"] < FORMAT:
                raise InvalidInput(
                    f"{path.name} was written by an earlier valueshare, which updated the target "
                    "network in another order: resume it with that version, or train again in a "
                    "new folder"
                )
            check_fingerprint(body["fingerprint"], fingerprint)
            return _load(folder, body)
        except Damaged as damage:
            _warn(path, damage, last=path == manifests[-1])
    if manifests:
        raise InvalidInput(_none_whole(folder))
    return None


def newest_state(folder: Folder) -> Path | None:
    """The state file of the newest checkpoint that has it whole; None before the first one."""
    manifests = sorted(folder.checkpoints.glob("checkpoint-*.json"), reverse=True)
    for path in manifests:
        try:
            body = _read_manifest(path)
            state = folder.state(body["phase"])
            _verify(state, body["state"][state.name])
            return state
        except Damaged as damage:
            _warn(path, damage, last=path == manifests[-1])
    if manifests:
        raise InvalidInput(_none_whole(folder))
    return None


def is_whole(folder: Folder, phase: int) -> bool:
    """Whether the checkpoint of a phase is there and every checksum of it is right."""
    try:
        _verify_all(folder, _read_manifest(folder.manifest(phase)))
    except Damaged:
        return False
    return True


def _manifest_before(folder: Folder, phase: int) -> dict[str, Any] | None:
    """That of the phase before; None for the first one."""
    if phase == 0:
        return None
    try:
        return _read_manifest(folder.manifest(phase - 1))
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


def _warn(path: Path, damage: Damaged, *, last: bool) -> None:
    then = "there is none before it" if last else "using the checkpoint before it"
    _log.warning("%s is damaged (%s): %s", path.name, damage, then)


def _none_whole(folder: Folder) -> str:
    return f"no checkpoint in {folder.checkpoints} is whole: start the run again in a new folder"


def _verify_all(folder: Folder, body: dict[str, Any]) -> None:
    for name, digest in body["records"].items():
        _verify(folder.root / "records" / name, digest)
    for name, digest in body["state"].items():
        _verify(folder.checkpoints / name, digest)
    for segment in body["segments"]:
        for name, digest in _segment_files(segment).items():
            _verify(folder.checkpoints / name, digest)


def _load(folder: Folder, body: dict[str, Any]) -> Checkpoint:
    _verify_all(folder, body)
    return Checkpoint(
        phase=body["phase"],
        state=load_file(folder.state(body["phase"])),
        segments=[
            StoredSegment(
                load_file(folder.checkpoints / segment["file"]),
                [folder.checkpoints / name for name in segment.get("frames", {})],
            )
            for segment in body["segments"]
        ],
        records=[pl.read_parquet(folder.root / "records" / name) for name in body["records"]],
    )


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        body = read_checksummed(path)
    except (OSError, Invalid) as error:
        raise Damaged(f"{path.name}: {error}") from error
    if type(body.get("format")) is int and body["format"] > FORMAT:
        raise InvalidInput(
            f"{path.name} was written by a newer version of valueshare: install that version"
        )
    try:
        manifest = checked(body, Manifest)
    except Invalid as error:  # its checksum is right: it was written so
        raise InvalidInput(f"{path.name} is not a checkpoint manifest: {error}") from error
    if path.name != f"checkpoint-{manifest.phase:06d}.json":
        raise InvalidInput(f"{path.name} is the manifest of phase {manifest.phase}: put it back")
    return body


def _segment_files(segment: Mapping[str, Any]) -> dict[str, str]:
    """The files of a segment and their checksums."""
    return {segment["file"]: segment["digest"], **segment.get("frames", {})}


def _verify(path: Path, digest: str) -> None:
    try:
        found = file_digest(path)
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from error
    if found != digest:
        raise Damaged(f"{path.name}: checksum")


@contextmanager
def _all_or_nothing(folder: Folder, phase: int) -> Iterator[None]:
    """Where a disk fills up, delete what the phase has written: it is of no checkpoint."""
    try:
        yield
    except NoRoom as error:
        remove_files(folder.checkpoints, lambda name: _phase_of(name) == phase)
        reason = f"{error.strerror}; all finished phases are safe: make room, then resume"
        raise NoRoom(error.errno, reason) from error


def _prune(folder: Folder, kept: list[dict[str, Any]]) -> None:
    remove_files(folder.checkpoints, _unneeded(folder, kept))


def _unneeded(folder: Folder, kept: list[dict[str, Any]]) -> Callable[[str], bool]:
    """Whether a name in checkpoints/NAME is of a file of ours that these manifests do not need."""
    names = {folder.manifest(body["phase"]).name for body in kept}
    names |= {name for body in kept for name in body["state"]}
    names |= {
        name for body in kept for segment in body["segments"] for name in _segment_files(segment)
    }
    return lambda name: _phase_of(name) is not None and name not in names


def _phase_of(name: str) -> int | None:
    """The phase of a file in checkpoints/NAME; None for a file that we did not write."""
    if not _OWN.fullmatch(name):
        return None
    return int(name.split("-")[1].partition(".")[0])
