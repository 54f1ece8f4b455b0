"""Whether the nodes of a cluster see the place of a run, found out before anything starts."""

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
from valueshare.runs.storage.places import Url
from valueshare.runs.storage.stores import Store, Unreachable
from valueshare.runs.workers import worker
from valueshare.runs.workers.cluster import ANSWER_SECONDS, Node, reason_of

# How Ray says that a node, or the worker on it, has ended meanwhile.
LOST = ("TaskUnschedulableError", "NodeDiedError", "WorkerCrashedError")
LEFT_SECONDS = 300.0  # a file that is this old was left by a driver that was killed
_NAME = re.compile(re.escape(UNNAMED) + "[a-z0-9_]{8}")


def check_sight(ray: Any, folder: Path, there: Sequence[Node]) -> str | None:
    """Refuse a folder that a node cannot see or write to; a line if locks do not reach so far.

    A file is made where the run will be, and every node is asked for it.
    """
    place = folder.resolve()
    while not place.is_dir():
        place = place.parent
    remove_files(place, lambda name: _NAME.fullmatch(name) is not None, LEFT_SECONDS)
    try:
        handle, name = tempfile.mkstemp(prefix=UNNAMED, dir=place)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"cannot write to {place}: {reason}") from error
    os.close(handle)
    marker = Path(name)
    try:
        with locked(marker):
            answers = _ask_all(ray, there, json.dumps({"path": name}))
    finally:
        with suppress(OSError):
            marker.unlink()
    for key, words in (("seen", "see"), ("writable", "write to")):
        blind = [node.address for node, about in answers if not about[key]]
        if blind:
            raise InvalidInput(
                f"{len(blind)} of {len(answers)} nodes cannot {words} {place} ({blind[0]}, say): "
                "choose an --out on a filesystem that all nodes have mounted"
            )
    _check_versions(answers)
    if not all(about["locked"] for _, about in answers):
        return (
            f"the filesystem of {place} has no locks between machines: do not start this run on "
            "two of them"
        )
    return None


def check_reach(ray: Any, url: Url, there: Sequence[Node]) -> None:
    """Refuse an address that a node cannot read from or write to: every node answers a file."""
    store, name = Store(url), f"{UNNAMED}{secrets.token_hex(8)}"
    try:
        store.write(name, b"seen", patient=False)
    except Unreachable as error:
        raise InvalidInput(f"{error.strerror}: choose another --out") from None
    try:
        answers = _ask_all(ray, there, json.dumps({"url": url.full, "name": name}))
    finally:
        with suppress(Unreachable):
            store.delete(name)
    blind = [(node.address, about["why"]) for node, about in answers if about["why"]]
    if blind:
        raise InvalidInput(
            f"{len(blind)} of {len(answers)} nodes cannot use {url} ({blind[0][0]}: {blind[0][1]})"
        )
    _check_versions(answers)


def _check_versions(answers: Sequence[tuple[Node, dict[str, Any]]]) -> None:
    for node, about in answers:
        if about["valueshare"] != __version__:
            raise InvalidInput(
                f"{node.address} has valueshare {about['valueshare']}, and this is "
                f"{__version__}: install the same version on all nodes"
            )


def _ask_all(ray: Any, there: Sequence[Node], text: str) -> list[tuple[Node, dict[str, Any]]]:
    where = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    look = ray.remote(worker.look)
    asked = {
        node: look.options(
            num_cpus=0, max_retries=1, scheduling_strategy=where(node.id, soft=False)
        ).remote(text)
        for node in there
    }
    answers = []
    for node, answer in asked.items():
        try:
            answers.append((node, json.loads(ray.get(answer, timeout=ANSWER_SECONDS))))
        except ray.exceptions.GetTimeoutError as error:
            raise InvalidInput(
                f"{node.address} has not answered for {ANSWER_SECONDS:.0f} s: see `ray status`"
            ) from error
        except ray.exceptions.RayError as error:
            if type(error).__name__ in LOST:
                raise InvalidInput(
                    f"{node.address} was lost before the run could begin: see `ray status`, then "
                    "give the same command again"
                ) from error
            raise InvalidInput(
                f"a worker on {node.address} cannot run valueshare ({reason_of(error)}): install "
                "it there as it is here"
            ) from error
    return answers
