"""Loading: the newest intact checkpoint."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from valueshare.errors import InvalidInput
from valueshare.population.checkpoints.files import Damaged, read_manifest, read_records, verify, verify_all
from valueshare.population.checkpoints.fingerprint import check_fingerprint, is_earlier_end
from valueshare.records import CheckpointPaths
from valueshare.schema import Manifest

T = TypeVar("T")

_log = logging.getLogger(__name__)


class EndBeforeExtension(Exception):
    """A checkpoint is the end of a run that was extended since."""


def latest_checkpoint(
    paths: CheckpointPaths, fingerprint: Mapping[str, Any], extended_from: Sequence[int] = ()
) -> tuple[Manifest, list[pl.DataFrame]] | None:
    """The newest checkpoint whose every checksum is right, with the records up to it; None where there is none at all.

    The last phase of a run stores no replay. If the run was extended since, from one of these numbers of steps, that
    phase is run again from the checkpoint before it: the rerun is identical, and covers the whole phase.
    """

    def verify_resumable(manifest: Manifest) -> tuple[Manifest, list[pl.DataFrame]]:
        check_fingerprint(manifest.fingerprint, fingerprint, extended_from)
        if is_earlier_end(manifest, fingerprint, extended_from):
            raise EndBeforeExtension
        verify_all(paths, manifest)
        return manifest, read_records(paths, manifest)

    return _newest(paths, verify_resumable)


def read_newest_state(
    paths: CheckpointPaths, read: Callable[[Path], T], *, warn: bool = True, remedy: str = ""
) -> T | None:
    """The result of `read` for the state file of the newest checkpoint that has it intact; None before the first one.

    A process that trains the population may delete the file meanwhile: then it is read from a newer checkpoint. With
    `warn`, damaged checkpoints are logged, with how to make them again if a `remedy` is given.
    """

    def load(manifest: Manifest) -> T:
        state = paths.state(manifest.phase)
        verify(state, manifest.state[state.name])
        try:
            return read(state)
        except FileNotFoundError as error:
            raise Damaged(state.name, "deleted meanwhile") from error

    return _newest(paths, load, warn=warn, remedy=remedy)


def newest_manifest(paths: CheckpointPaths) -> Manifest | None:
    """The newest manifest that can be read; what it names is not verified."""
    for path in paths.manifests():
        with suppress(Damaged, InvalidInput):  # the population's worker reports it
            return read_manifest(path)
    return None


def finished_phase_count(paths: CheckpointPaths, checkpoint_interval: int, extended_from: Sequence[int] = ()) -> int:
    """The number of phases before the one with which training resumes, by the manifests alone."""
    for path in paths.manifests():
        with suppress(Damaged, InvalidInput):  # the population's worker reports it
            manifest = read_manifest(path)
            if not is_earlier_end(manifest, {"checkpoint_interval": checkpoint_interval}, extended_from):
                return manifest.phase + 1
    return 0


def _newest(paths: CheckpointPaths, load: Callable[[Manifest], T], *, warn: bool = True, remedy: str = "") -> T | None:
    """The result of `load` for the newest manifest for which it does not raise `Damaged`."""
    manifests = paths.manifests()
    damages: list[tuple[Path, str]] = []
    for path in manifests:
        try:
            found = load(read_manifest(path))
        except EndBeforeExtension:
            continue
        except Damaged as damage:
            if paths.manifests()[:1] != manifests[:1]:  # training has replaced them since
                return _newest(paths, load, warn=warn, remedy=remedy)
            damages.append((path, damage.seen_from(path)))
        else:
            for damaged in damages if warn else ():
                _log.warning("%s is damaged (%s): using the checkpoint before it%s", *damaged, remedy and f"; {remedy}")
            return found
    if damages:
        newest, why = damages[0]
        raise paths.none_is_intact(f"{newest.name}: {why}")
    return None
