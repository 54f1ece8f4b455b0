"""A Ray cluster: connecting to it, the resources of its nodes, and whether all of them share the storage of a run."""

import errno
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from valueshare._version import __version__
from valueshare.errors import OTHER_OUT, InvalidInput, first_line
from valueshare.extras import importing
from valueshare.files import reason, remove_files
from valueshare.runs.directory import RANDOM, TEMP_PREFIX
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.locks import locked
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store, Unreachable
from valueshare.runs.workers import worker
from valueshare.signals import EXIT_CODES, handled

CONNECT_SECONDS = 5.0
STATUS_SECONDS = 30.0  # a command of Ray's takes a few, most of them to load itself
REPLY_SECONDS = 60.0  # a node replies within these, with the start of a worker process
LEFT_SECONDS = 300.0  # a file that is this old was left by a driver that was killed
# Ray's errors for a node, or the worker on it, that has ended meanwhile.
NODE_DIED_ERRORS = ("TaskUnschedulableError", "NodeDiedError", "WorkerCrashedError", "LocalRayletDiedError")


class Node(NamedTuple):
    """The resources of one machine of the cluster."""

    id: str
    address: str
    cpus: float
    gpus: float
    memory: float  # bytes that Ray may give to tasks


class Slot(NamedTuple):
    """The resources of one population."""

    cpus: int
    gpus: float

    def fits(self, node: Node) -> bool:
        return node.cpus >= self.cpus and node.gpus >= self.gpus

    def count_on(self, node: Node) -> int:
        """The number of slots for which a node has CPUs and GPUs."""
        by_cpu = int(node.cpus // self.cpus)
        return min(by_cpu, int(node.gpus / self.gpus + 1e-9)) if self.gpus else by_cpu


@contextmanager
def connect(options: LauncherOptions) -> Iterator[Any]:
    """Ray, connected to the cluster; an earlier connection is used and kept."""
    with importing("Ray", "ray", ", or write `launcher = 'local'`"):
        ray = import_module("ray")
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(options.ray_address)
    handlers = {number: signal.getsignal(number) for number in EXIT_CODES}
    in_main_thread = threading.current_thread() is threading.main_thread()
    with handled(handlers) if in_main_thread else nullcontext():  # Ray replaces that of SIGTERM when it connects
        try:
            ray.init(address=options.ray_address, log_to_driver=False, logging_level="CRITICAL", configure_logging=True)
        except (Exception, SystemExit) as error:
            raise InvalidInput(
                f"cannot join the Ray cluster at {options.ray_address} ({first_line(error)}): "
                "run this on a node of it, with the same versions of Ray and Python"
            ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def nodes(ray: Any) -> list[Node]:
    """The machines of the cluster that are alive."""
    resources = ("CPU", "GPU", "memory")
    return [
        Node(node["NodeID"], node["NodeManagerAddress"], *(node["Resources"].get(name, 0.0) for name in resources))
        for node in ray.nodes()
        if node["Alive"]
    ]


def slot_of(options: LauncherOptions, device: str, available: Sequence[Node]) -> Slot:
    """The resources of one population; more than any node has is refused."""
    gpus = options.ray_gpus if device.startswith("cuda") else 0.0
    most_gpus = max(node.gpus for node in available)
    if gpus > most_gpus:
        if not most_gpus:
            raise InvalidInput(
                f"`device = {device!r}`, and the cluster has no GPU: write `device = 'cpu'`, or add nodes with GPUs "
                "(ray start --num-gpus)"
            )
        raise InvalidInput(f"`ray_gpus = {gpus:g}`: no node of the cluster has more than {most_gpus:g} GPUs")
    able = [node for node in available if node.gpus >= gpus]
    cpus = options.ray_cpus
    if not cpus:
        shares = [node.cpus * gpus / node.gpus for node in able if gpus]
        cpus = max(1, int(min(shares, default=1)))
    most_cpus = max(node.cpus for node in able)
    if cpus > most_cpus:
        which = " that has the GPUs" if gpus else ""
        raise InvalidInput(f"`ray_cpus = {cpus}`: no node of the cluster{which} has more than {most_cpus:g} CPUs")
    return Slot(cpus, gpus)


def map_on_cluster(
    options: LauncherOptions, function: Callable[[str], bytes], texts: Sequence[str], on_done: Callable[[int], None]
) -> list[bytes]:
    """The function's result for every text, in order, computed on the cluster's CPUs; a task that fails ends all."""
    with connect(options) as ray:
        slot = slot_of(options, "cpu", nodes(ray))
        remote = ray.remote(function).options(num_cpus=slot.cpus, max_retries=options.ray_retries)
        refs = [remote.remote(text) for text in texts]
        number, waiting = {ref: i for i, ref in enumerate(refs)}, list(refs)
        try:
            while waiting:
                done, waiting = ray.wait(waiting, timeout=0.2)  # so that Ctrl-C is handled
                for ref in done:
                    ray.get(ref)
                    on_done(number[ref])
            results: list[bytes] = ray.get(refs)
        except ray.exceptions.RayError as error:
            raise OSError(errno.EIO, f"a task on the cluster failed: {reason_of(error)}") from error
    return results


def check_shared_folder(ray: Any, folder: Path, available: Sequence[Node]) -> str | None:
    """Refuse a folder that a node cannot see or write to; return a warning if locks do not work.

    A file is made where the run will be, and every node looks for it.
    """
    above = folder.resolve()
    while not above.is_dir():
        above = above.parent
    remove_files(above, lambda name: re.fullmatch(re.escape(TEMP_PREFIX) + RANDOM, name) is not None, LEFT_SECONDS)
    try:
        handle, name = tempfile.mkstemp(prefix=TEMP_PREFIX, dir=above)
    except OSError as error:
        raise InvalidInput(f"cannot write to {above}: {reason(error)}") from error
    os.close(handle)
    marker = Path(name)
    try:
        with locked(marker):
            replies = _probe_nodes(ray, available, json.dumps({"path": name}))
    finally:
        with suppress(OSError):
            marker.unlink()
    for key, action in (("visible", "see"), ("writable", "write to")):
        unable = [node.address for node, reply in replies if not reply[key]]
        if unable:
            raise InvalidInput(
                f"{len(unable)} of {len(replies)} nodes cannot {action} {above} (for example {unable[0]}): "
                "choose an `out` on a filesystem that all nodes have mounted"
            )
    if not all(reply["locked"] for _, reply in replies):
        return f"the filesystem of {above} does not lock files across machines: do not start it on two machines at once"
    return None


def check_url(ray: Any, url: Url, available: Sequence[Node]) -> None:
    """Refuse a URL that a node cannot read from or write to."""
    store, name = Store(url), f"{TEMP_PREFIX}{secrets.token_hex(8)}"
    try:
        store.write(name, worker.PROBE, retry=False)
    except Unreachable as error:
        raise InvalidInput(f"{error.strerror}: {OTHER_OUT}") from None
    try:
        replies = _probe_nodes(ray, available, json.dumps({"url": url.full, "name": name}))
    finally:
        with suppress(Unreachable):
            store.delete(name)
    unable = [f"{node.address}: {reply['reason']}" for node, reply in replies if reply["reason"]]
    if unable:
        raise InvalidInput(f"{len(unable)} of {len(replies)} nodes cannot use {url} ({unable[0]})")


def _probe_nodes(ray: Any, available: Sequence[Node], text: str) -> list[tuple[Node, dict[str, Any]]]:
    """Every node's reply to `probe_storage`; a node with another version of this package is refused."""
    affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    probe = ray.remote(worker.probe_storage)
    pending = {
        node: probe.options(num_cpus=0, max_retries=1, scheduling_strategy=affinity(node.id, soft=False)).remote(text)
        for node in available
    }
    replies = []
    for node, reply in pending.items():
        try:
            replies.append((node, json.loads(ray.get(reply, timeout=REPLY_SECONDS))))
        except ray.exceptions.GetTimeoutError as error:
            raise InvalidInput(f"{node.address} has not replied for {REPLY_SECONDS:.0f} s: see `ray status`") from error
        except ray.exceptions.RayError as error:
            raise_if_node_died(node.address, error)
            raise InvalidInput(
                f"a worker on {node.address} cannot run valueshare ({reason_of(error)}): install it there as it is here"
            ) from error
    for node, reply in replies:
        if reply["valueshare"] != __version__:
            raise InvalidInput(
                f"{node.address} has valueshare {reply['valueshare']}, and this is {__version__}: install the same "
                "version on all nodes"
            )
    return replies


def raise_if_node_died(name: str, error: BaseException) -> None:
    """Refuse a run whose node was lost, if that is the error."""
    if type(error).__name__ in NODE_DIED_ERRORS:
        raise InvalidInput(
            f"{name} was lost before the run could begin: see `ray status`, then run the same command again"
        ) from error


def reason_of(error: BaseException) -> str:
    """Why a task failed, in one line."""
    cause = getattr(error, "cause", None)
    return first_line(cause if isinstance(cause, BaseException) else error)


def _check_reachable(address: str) -> None:
    """Refuse an address without a cluster, by another process: Ray itself tries for minutes, and may end this one."""
    none = f"there is no Ray cluster at {address}: start one (ray start --head), or write its `ray_address = HOST:PORT`"
    resolved = os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address
    if resolved != "auto":
        host, _, port = resolved.rpartition(":")
        if not host or not port.isdecimal() or "/" in host:
            raise InvalidInput(f"`ray_address = {resolved!r}`: write auto or HOST:PORT")
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise InvalidInput(none) from error
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "status"]
    command += [] if resolved == "auto" else ["--address", resolved]
    try:
        status = subprocess.run(
            command, capture_output=True, timeout=STATUS_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(none) from error
    if status.returncode:
        raise InvalidInput(none)
