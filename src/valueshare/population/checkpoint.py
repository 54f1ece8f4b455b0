"""Checkpoints: what a run needs to go on from its last finished phase, bit for bit.

    checkpoints/NAME/state-000003.safetensors    weights, targets, optimiser, counters after phase 3
    checkpoints/NAME/replay-000003.safetensors   the replay rows that phase 3 added, not the ring
    records/NAME-000003.parquet                  what phase 3 measured
    checkpoints/NAME/checkpoint-000003.json      names every file needed, each with its checksum

Every file is written under another name, synced and renamed; the JSON comes last, so a phase is
either finished or not there. What the last two checkpoints need is kept: if the newest is damaged,
the one before it serves. Only safetensors, JSON and Parquet: nothing that runs code when read.
"""

import errno
import hashlib
import io
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch
from safetensors.torch import load_file
from torch import Tensor

from valueshare.errors import InvalidInput

FORMAT = 1
_log = logging.getLogger(__name__)


class Damaged(Exception):
    """A file of a checkpoint is missing, cut short or changed."""


class NoRoom(OSError):
    """The disk is full; every finished phase is still there."""


class Checkpoint(NamedTuple):
    """A population as it was after `phase`."""

    phase: int
    state: dict[str, Tensor]
    segments: list[dict[str, Tensor]]  # of replay, oldest first
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

    def records(self, phase: int) -> Path:
        return self.root / "records" / f"{self.name}-{phase:06d}.parquet"


def save(
    folder: Folder,
    phase: int,
    fingerprint: Mapping[str, Any],
    state: Mapping[str, Tensor],
    segment: Mapping[str, Tensor],
    segment_end: int,
    oldest: int,
    records: pl.DataFrame,
) -> None:
    """Commit a phase, then delete what neither it nor the checkpoint before it needs.

    `segment_end` is the number of transitions an agent had written when the segment ended, `oldest`
    the oldest transition still live in any agent: segments that end before it are done with.
    """
    before = _read_manifest(folder.manifest(phase - 1)) if phase else None
    for directory in (folder.checkpoints, folder.root / "records"):
        directory.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    records.write_parquet(buffer)
    segments = [] if before is None else [s for s in before["segments"] if s["end"] > oldest]
    earlier_records = {} if before is None else before["records"]
    segment_digest = _write(folder.replay(phase), _safetensors(segment))
    body = {
        "format": FORMAT,
        "phase": phase,
        "fingerprint": fingerprint,
        "state": {folder.state(phase).name: _write(folder.state(phase), _safetensors(state))},
        "segments": [
            *segments,
            {"file": folder.replay(phase).name, "digest": segment_digest, "end": segment_end},
        ],
        "records": {
            **earlier_records,
            folder.records(phase).name: _write(folder.records(phase), [buffer.getbuffer()]),
        },
    }
    text = json.dumps({"checksum": _digest_of(body), **body}, indent=1)
    _write(folder.manifest(phase), [text.encode()])
    _prune(folder, kept=[m for m in (before, body) if m is not None])


def load_latest(folder: Folder, fingerprint: Mapping[str, Any]) -> Checkpoint | None:
    """The newest checkpoint whose every checksum is right; None where there is none at all."""
    manifests = sorted(folder.checkpoints.glob("checkpoint-*.json"), reverse=True)
    for path in manifests:
        try:
            body = _read_manifest(path)
            _check_fingerprint(body["fingerprint"], fingerprint)
            return _load(folder, body)
        except Damaged as damage:
            _log.warning("%s is damaged (%s): using the checkpoint before it", path.name, damage)
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
            _log.warning("%s is damaged (%s): using the checkpoint before it", path.name, damage)
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


def _none_whole(folder: Folder) -> str:
    return f"no checkpoint in {folder.checkpoints} is whole: start the run again in a new folder"


def _verify_all(folder: Folder, body: dict[str, Any]) -> None:
    for name, digest in body["records"].items():
        _verify(folder.root / "records" / name, digest)
    for name, digest in body["state"].items():
        _verify(folder.checkpoints / name, digest)
    for segment in body["segments"]:
        _verify(folder.checkpoints / segment["file"], segment["digest"])


def _load(folder: Folder, body: dict[str, Any]) -> Checkpoint:
    _verify_all(folder, body)
    return Checkpoint(
        phase=body["phase"],
        state=load_file(folder.state(body["phase"])),
        segments=[load_file(folder.checkpoints / s["file"]) for s in body["segments"]],
        records=[pl.read_parquet(folder.root / "records" / name) for name in body["records"]],
    )


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(path.read_bytes())
        checksum = body.pop("checksum")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise Damaged(f"{path.name}: {error}") from error
    if checksum != _digest_of(body):
        raise Damaged(f"{path.name}: checksum")
    if body["format"] > FORMAT:
        raise InvalidInput(
            f"{path.name} was written by a newer version of valueshare: install that version"
        )
    return body


def _check_fingerprint(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    changed = sorted(
        key for key in {*stored, *wanted} if stored.get(key, "none") != wanted.get(key, "none")
    )
    if changed:
        key = changed[0]
        raise InvalidInput(
            f"this run was started with other settings ({', '.join(changed)}): {key} was "
            f"{stored.get(key)} and is now {wanted.get(key)}; resume with the run's own settings"
        )


def _verify(path: Path, digest: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, _blake2b).hexdigest()
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from error
    if found != digest:
        raise Damaged(f"{path.name}: checksum")


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> str:
    """Write a file whole or not at all; its checksum."""
    partial = path.with_name(path.name + ".partial")
    digest = _blake2b()
    try:
        with partial.open("wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(
                error.errno,
                f"no room on the disk for {path.name}; all finished phases are safe: "
                "make room, then resume",
            ) from error
        raise
    return digest.hexdigest()


def _safetensors(tensors: Mapping[str, Tensor]) -> Iterable[bytes | memoryview]:
    """The safetensors format in pieces: header, then every tensor's bytes.

    Written here and not by the library's `save_file`, so that the checksum is taken on the way, no
    second copy of the data is made, and a full disk is an OSError with its number.
    """
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


def _prune(folder: Folder, kept: list[dict[str, Any]]) -> None:
    names = {folder.manifest(body["phase"]).name for body in kept}
    names |= {name for body in kept for name in body["state"]}
    names |= {segment["file"] for body in kept for segment in body["segments"]}
    for path in folder.checkpoints.iterdir():
        if path.name not in names:
            path.unlink()


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest_of(body: Mapping[str, Any]) -> str:
    return _blake2b(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _blake2b(data: bytes = b"") -> "hashlib.blake2b":
    return hashlib.blake2b(data, digest_size=32)


_DTYPES = {
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
