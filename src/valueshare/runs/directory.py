"""A results folder appears complete or not at all, and never replaces anything else.

Results are written into a hidden folder beside their target, which is then moved there. A killed process leaves its
folder behind, and the next command for the same target removes it: a process that writes into one holds its lock, which
ends with the process. Only folders of this machine are removed, as locks may not work between machines, and only those
with such names.
"""

import errno
import fcntl
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from valueshare.errors import OTHER_OUT, InvalidInput
from valueshare.files import (
    FULL,
    checksum,
    make_parents,
    reason,
    refuse_links,
    remove_empty,
    sync,
    sync_tree,
    write_json,
)
from valueshare.schema import CONFIG, read_config

REPLACED = "old"  # a folder that is being replaced, inside a staging folder
TEMP_PREFIX = ".valueshare-"  # prefix of what is made to try whether it can be
RANDOM = "[a-z0-9_]{8}"  # the suffix that `tempfile` adds


def holds(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a finished result with exactly these settings is in the folder."""
    stored = read_config(folder, skip_damaged=True)
    return stored is not None and stored == json.loads(json.dumps(config))


@contextmanager
def results_folder(target: Path, config: dict[str, Any], *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write into, which is moved to `target` when the context ends well.

    Until then it is beside the target under another name, and all of it is synced before the move: a power cut leaves
    all of the folder or none. Any error removes it, with the parents made for it. Results of other settings are
    replaced only if `overwrite` is set, and a folder that holds anything but this package's results of the same kind
    (the config's `valueshare` and `kind`) is never touched.
    """
    with ExitStack() as stack:
        try:
            _check_results_target(target, config, overwrite=overwrite)
            target = target.resolve()  # a link to a folder stays a link
            staging = stack.enter_context(staged(target))
        except OSError as error:
            raise InvalidInput(f"cannot write to {target}: {reason(error)}") from error
        write_json(staging / CONFIG, config)
        yield staging
        sync_tree(staging)
        if overwrite and target.exists():
            _replace(target, staging)
        else:
            _move(staging, target)
        sync(target.parent)


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A staging folder beside the target, for the caller to move to the target.

    If the work ends early, it is removed with the parents made for it.
    """
    new_parents = make_parents(target)
    staging: Path | None = None
    with ExitStack() as stack:
        try:
            remove_staging_folders(target)
            staging = stack.enter_context(staging_folder(target))
            staging.chmod(0o755)
            yield staging
        except BaseException:
            if staging is not None:
                shutil.rmtree(staging, ignore_errors=True)
            remove_empty(new_parents)
            raise
    for parent in new_parents:
        sync(parent.parent)


def remove_staging_folders(target: Path) -> None:
    """Remove the staging folders of killed processes for this target.

    A process that was killed while it replaced the target has left the old folder in its own; that is restored. Where
    the target is a link, this is done beside the folder that it points to.
    """
    target = Path(os.path.realpath(target))  # a loop of links is not an error here
    for path in stale_staging_folders(target):
        old = path / REPLACED
        retired = (old / CONFIG).is_file() and not (path / CONFIG).exists()
        if retired and not os.path.lexists(target):
            old.rename(target)
        shutil.rmtree(path, ignore_errors=True)


def check_results_target(target: Path, config: dict[str, Any]) -> None:
    """Refuse what `results_folder` would refuse, before there is anything to write."""
    try:
        _check_results_target(target, config, overwrite=False)
        try_folder(target)
    except OSError as error:
        raise InvalidInput(f"cannot write to {target}: {reason(error)}") from error


def refuse_read_only(folder: Path) -> None:
    """Refuse the folder of a run in which no file can be made, before any work; a full disk stays an `OSError`."""
    try:
        try_folder(folder / CONFIG)
    except OSError as error:
        if error.errno in FULL:
            raise
        advice = "get write access, or copy the run and use the copy"
        raise InvalidInput(f"cannot write to {folder}: {reason(error)}; {advice}") from error


def refuse_links_in_run(target: Path, *names: str) -> None:
    """Refuse a target inside a run folder that is outside of it because of a symbolic link."""
    for folder in (target.absolute(), *target.absolute().parents):
        if {"kind", "valueshare"} <= (read_config(folder, skip_damaged=True) or {}).keys():
            refuse_links_between(folder, target, *names)


def refuse_links_between(folder: Path, target: Path, *names: str) -> None:
    """Refuse symbolic links from a folder to a target below it, and to `names` in the target."""
    below = target.absolute().relative_to(folder.absolute())
    refuse_links(folder, *(str(below / name) for name in names or ("",)))


def _move(staging: Path, target: Path) -> None:
    """Replace an empty folder; one that was filled meanwhile stays, and is refused."""
    try:
        staging.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise InvalidInput(f"{target}: another process created a run there; it was left unchanged") from error


def _replace(target: Path, staging: Path) -> None:
    """Replace the old folder by the new one, or leave the old one as it was."""
    with staging_folder(target) as retired:
        old = retired / REPLACED
        try:
            target.rename(old)
            staging.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            retired.rmdir()
            raise
        shutil.rmtree(retired)


def _check_results_target(target: Path, config: dict[str, Any], *, overwrite: bool) -> None:
    for above in target.resolve().parents:
        # Readers of the outer run, or of the folder that it is in, would take both for theirs.
        if {"kind", "valueshare"} <= (read_config(above, skip_damaged=True) or {}).keys():
            raise InvalidInput(f"{target} is inside the results in {above}: {OTHER_OUT}")
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInput(f"{target} is a file: {OTHER_OUT}")
    if Path.cwd().is_relative_to(target.resolve()):
        raise InvalidInput(f"{target} is or contains the current working directory: {OTHER_OUT}")
    if not any(target.iterdir()):
        return
    stored = read_config(target, skip_damaged=True) or {}
    if "valueshare" not in stored:
        raise InvalidInput(f"{target} holds files that are not results of valueshare: {OTHER_OUT}")
    if stored.get("kind") != config.get("kind"):
        raise InvalidInput(f"{target} holds results of another kind: {OTHER_OUT}")
    if not overwrite:
        raise InvalidInput(f"{target} holds results of other settings: {OTHER_OUT}, or add `overwrite = True`")


@contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """A new folder beside the target; the caller fills it, then moves or removes it."""
    while True:
        staging = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        with suppress(FileNotFoundError):  # another process removed it as left behind, before it was locked
            handle = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(OSError):  # NFS cannot lock folders, so it is never removed there
                fcntl.flock(handle, fcntl.LOCK_EX)
            if staging.exists():
                break
            os.close(handle)
    try:
        yield staging
    finally:
        os.close(handle)


def stale_staging_folders(target: Path) -> Iterator[Path]:
    """The folders for this target that killed processes left, each locked while it is yielded."""
    pattern = re.compile(re.escape(_prefix(target)) + RANDOM)
    try:
        names = os.listdir(target.parent)  # noqa: PTH208 (names are enough)
    except OSError:
        return
    for path in (target.with_name(name) for name in names if pattern.fullmatch(name)):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone meanwhile, or no folder
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path
        except OSError:  # in use, or there are no locks
            continue
        finally:
            os.close(handle)


def try_folder(target: Path) -> None:
    """Make a folder beside the target, or above it, and remove it again; `OSError` where none can be made."""
    above = next(parent for parent in target.absolute().parents if parent.exists())
    Path(tempfile.mkdtemp(prefix=TEMP_PREFIX, dir=above)).rmdir()


def _prefix(target: Path) -> str:
    machine = checksum(platform.node().encode()).hexdigest()[:6]
    return f".{target.name}-{machine}-"
