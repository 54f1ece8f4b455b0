"""A results folder appears whole or not at all, and never replaces anything else."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from valueshare.errors import InvalidInput
from valueshare.files import make_parents, reason, refuse_links, remove_empty, sync_directory, sync_tree, write_json
from valueshare.runs.staging import left_folders, remove_unnamed, staging_folder
from valueshare.schema import CONFIG, read_config

RETIRED = "old"  # a folder that is being replaced, inside a staging folder


def holds(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a finished result with exactly these settings is in the folder."""
    stored = read_config(folder, skip_damaged=True)
    return stored is not None and stored == json.loads(json.dumps(config))


@contextmanager
def results_folder(target: Path, config: dict[str, Any], *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write into, which is moved to `target` when the context ends well.

    Until then it is beside the target under another name, and all of it is synced before the move: a power cut leaves
    the whole folder or none. Any error removes it, with the parents made for it. Results of other settings are replaced
    only if `overwrite` is set, and a folder that holds anything but this package's results of the same kind (the
    config's `valueshare` and `kind`) is never touched.
    """
    try:
        _check_target(target, config, overwrite)
        target = target.resolve()  # a link to a folder stays a link
        made = make_parents(target)
    except OSError as error:
        raise InvalidInput(f"cannot write to {target}: {reason(error)}") from error
    with ExitStack() as stack:
        try:
            remove_leftovers(target)
            staging = stack.enter_context(staging_folder(target))
        except OSError as error:
            remove_empty(made)
            raise InvalidInput(f"cannot write to {target.parent}: {reason(error)}") from error
        try:
            staging.chmod(0o755)
            write_json(staging / CONFIG, config)
            yield staging
            sync_tree(staging)
            if overwrite and target.exists():
                _replace(target, staging)
            else:
                # Replaces an empty folder; one that was filled meanwhile stays, and this fails.
                _move(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            remove_empty(made)
            raise
    for folder in (target.parent, *(parent.parent for parent in made)):
        sync_directory(folder)


def remove_leftovers(target: Path) -> None:
    """Remove the staging folders of killed processes for this target.

    A process that was killed while it replaced the target has left the old folder in its own; that is restored. Where
    the target is a link, this is done beside the folder that it points to.
    """
    remove_leftovers_beside(Path(os.path.realpath(target)))  # a loop of links is no error here


def remove_leftovers_beside(target: Path) -> None:
    """The same in the folder that the target is in, whether or not it is a link."""
    remove_unnamed(target.parent)
    for path in left_folders(target):
        old = path / RETIRED
        retired = (old / CONFIG).is_file() and not (path / CONFIG).exists()
        if retired and not os.path.lexists(target):
            old.rename(target)
        shutil.rmtree(path, ignore_errors=True)


def check_target(target: Path, config: dict[str, Any], *, overwrite: bool = False) -> None:
    """Refuse what `results_folder` would refuse, before there is anything to write."""
    try:
        _check_target(target, config, overwrite)
        above = next(parent for parent in target.absolute().parents if parent.exists())
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InvalidInput(f"cannot write to {target}: {reason(error)}") from error


def refuse_links_in_run(target: Path, *names: str) -> None:
    """Refuse a target inside a run folder that a symbolic link there puts elsewhere."""
    for folder in (target.absolute(), *target.absolute().parents):
        if {"kind", "valueshare"} <= (read_config(folder, skip_damaged=True) or {}).keys():
            refuse_links_between(folder, target, *names)


def refuse_links_between(folder: Path, target: Path, *names: str) -> None:
    """Refuse symbolic links from a folder to a target below it, and to `names` in the target."""
    below = target.absolute().relative_to(folder.absolute())
    refuse_links(folder, *(str(below / name) for name in names or ("",)))


def _move(staging: Path, target: Path) -> None:
    try:
        staging.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise InvalidInput(f"{target} was filled by another run meanwhile: it stays") from error


def _replace(target: Path, staging: Path) -> None:
    """Replace the old folder by the new one, or leave the old one as it was."""
    with staging_folder(target) as retired:
        old = retired / RETIRED
        try:
            target.rename(old)
            staging.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            retired.rmdir()
            raise
        shutil.rmtree(retired)


def _check_target(target: Path, config: dict[str, Any], overwrite: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInput(f"{target} is a file: choose another --out")
    if Path.cwd().is_relative_to(target.resolve()):
        raise InvalidInput(f"{target} holds the folder you are in: choose another --out")
    if not any(target.iterdir()):
        return
    stored = read_config(target, skip_damaged=True) or {}
    if "valueshare" not in stored or stored.get("kind") != config.get("kind"):
        raise InvalidInput(f"{target} holds something else than results of this kind: choose another --out")
    if not overwrite:
        raise InvalidInput(f"{target} holds results of other settings: choose another --out, or add --overwrite")
