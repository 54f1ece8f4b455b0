"""Loading: the newest checkpoint that is whole."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from safetensors.torch import load_file
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.population.checkpoints.files import Folder
from valueshare.population.checkpoints.fingerprint import check_fingerprint
from valueshare.population.checkpoints.manifest import FORMAT, Damaged, read_manifest, verify, verify_all

_log = logging.getLogger(__name__)


class StoredSegment(NamedTuple):
    """The transitions that a phase added to replay."""

    columns: dict[str, Tensor]
    frames: list[Path]  # files of packed frames, to be loaded one at a time


class Checkpoint(NamedTuple):
    """A population as it was after `phase`."""

    phase: int
    state: dict[str, Tensor]
    segments: list[StoredSegment]  # of replay, oldest first
    records: list[pl.DataFrame]  # of all phases so far


def load_latest(folder: Folder, fingerprint: Mapping[str, Any]) -> Checkpoint | None:
    """The newest checkpoint whose every checksum is right; None where there is none at all."""
    manifests = sorted(folder.checkpoints.glob("checkpoint-*.json"), reverse=True)
    for path in manifests:
        try:
            body = read_manifest(path)
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
            body = read_manifest(path)
            state = folder.state(body["phase"])
            verify(state, body["state"][state.name])
            return state
        except Damaged as damage:
            _warn(path, damage, last=path == manifests[-1])
    if manifests:
        raise InvalidInput(_none_whole(folder))
    return None


def _load(folder: Folder, body: dict[str, Any]) -> Checkpoint:
    verify_all(folder, body)
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


def _warn(path: Path, damage: Damaged, *, last: bool) -> None:
    then = "there is none before it" if last else "using the checkpoint before it"
    _log.warning("%s is damaged (%s): %s", path.name, damage, then)


def _none_whole(folder: Folder) -> str:
    return f"no checkpoint in {folder.checkpoints} is whole: start the run again in a new folder"
