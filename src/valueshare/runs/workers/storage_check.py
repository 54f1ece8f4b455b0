"""Checks that all nodes of a cluster share the storage of a run, before anything starts."""

import json
import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from valueshare._version import __version__
from valueshare.errors import InvalidInput
from valueshare.files import remove_files
from valueshare.runs.locks import locked
from valueshare.runs.staging import UNNAMED
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store, Unreachable
from valueshare.runs.workers import worker
from valueshare.runs.workers.cluster import REPLY_SECONDS, Node, reason_of

# Ray's errors for a node, or the worker on it, that has ended meanwhile.
LOST = ("TaskUnschedulableError", "NodeDiedError", "WorkerCrashedError")
LEFT_SECONDS = 300.0  # a file that is this old was left by a driver that was killed
_NAME = re.compile(re.escape(UNNAMED) + "[a-z0-9_]{8}")


def check_shared_folder(ray: Any, folder: Path, there: Sequence[Node]) -> str | None:
    """Refuse a folder that a node cannot see or write to; return a warning if locks do not work.

    A file is made where the run will be, and every node looks for it.
    """
    above = folder.resolve()
    while not above.is_dir():
        above = above.parent
    remove_files(above, lambda name: _NAME.fullmatch(name) is not None, LEFT_SECONDS)
    try:
        handle, name = tempfile.mkstemp(prefix=UNNAMED, dir=above)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"cannot write to {above}: {reason}") from error
    os.close(handle)
    marker = Path(name)
    try:
        with locked(marker):
            replies = _ask_all(ray, there, json.dumps({"path": name}))
    finally:
        with suppress(OSError):
            marker.unlink()
    for key, words in (("seen", "see"), ("writable", "write to")):
        unable = [node.address for node, found in replies if not found[key]]
        if unable:
            raise InvalidInput(
                f"{len(unable)} of {len(replies)} nodes cannot {words} {above} ({unable[0]}, say): "
                "choose an --out on a filesystem that all nodes have mounted"
            )
    _check_versions(replies)
    if not all(found["locked"] for _, found in replies):
        return f"the filesystem of {above} has no locks between machines: do not start this run on two of them"
    return None


def check_address(ray: Any, url: Url, there: Sequence[Node]) -> None:
    """Refuse an address that a node cannot read from or write to."""
    store, name = Store(url), f"{UNNAMED}{secrets.token_hex(8)}"
    try:
        store.write(name, b"seen", patient=False)
    except Unreachable as error:
        raise InvalidInput(f"{error.strerror}: choose another --out") from None
    try:
        replies = _ask_all(ray, there, json.dumps({"url": url.full, "name": name}))
    finally:
        with suppress(Unreachable):
            store.delete(name)
    unable = [(node.address, found["reason"]) for node, found in replies if found["reason"]]
    if unable:
        address, reason = unable[0]
        raise InvalidInput(f"{len(unable)} of {len(replies)} nodes cannot use {url} ({address}: {reason})")
    _check_versions(replies)


def _check_versions(replies: Sequence[tuple[Node, dict[str, Any]]]) -> None:
    for node, found in replies:
        if found["valueshare"] != __version__:
            raise InvalidInput(
                f"{node.address} has valueshare {found['valueshare']}, and this is "
                f"{__version__}: install the same version on all nodes"
            )


def _ask_all(ray: Any, there: Sequence[Node], text: str) -> list[tuple[Node, dict[str, Any]]]:
    affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    probe = ray.remote(worker.probe_storage)
    asked = {
        node: probe.options(num_cpus=0, max_retries=1, scheduling_strategy=affinity(node.id, soft=False)).remote(text)
        for node in there
    }
    replies = []
    for node, reply in asked.items():
        try:
            replies.append((node, json.loads(ray.get(reply, timeout=REPLY_SECONDS))))
        except ray.exceptions.GetTimeoutError as error:
            raise InvalidInput(f"{node.address} has not replied for {REPLY_SECONDS:.0f} s: see `ray status`") from error
        except ray.exceptions.RayError as error:
            if type(error).__name__ in LOST:
                raise InvalidInput(
                    f"{node.address} was lost before the run could begin: see `ray status`, then "
                    "give the same command again"
                ) from error
            raise InvalidInput(
                f"a worker on {node.address} cannot run valueshare ({reason_of(error)}): install it there as it is here"
            ) from error
    return replies
