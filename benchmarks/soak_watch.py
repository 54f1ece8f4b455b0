"""Observations of a run by `soak.py`: when a checkpoint is written, and what is left when all is over."""

import ctypes
import fcntl
import hashlib
import os
import re
import select
import struct
import time
from pathlib import Path

from soak_scenarios import RUN

_CREATE, _MODIFY, _CLOSE, _MOVED, _DELETE = 0x100, 0x2, 0x8, 0x80, 0x200
_FOLDER = 0x40000000
_EVENT = struct.Struct("iIII")
# Times and attempts: of these the name is compared, and nothing that is in them.
NOT_COMPARED = re.compile(r"provenance\.json|progress/.*\.json|report/.*")

_ASKED = re.compile(r"\.valueshare-")  # whether all nodes see the folder


class Watch:
    """The changes of files below a folder, as they happen (inotify)."""

    def __init__(self, root: Path) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._handle = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, Path] = {}
        self._add(root)

    def wait(self, changes: int, seconds: float, process: int) -> bool:
        """Wait for so many changes of files that a checkpoint or a new folder has."""
        deadline = time.monotonic() + seconds
        descriptor = os.pidfd_open(process)
        try:
            while (left := deadline - time.monotonic()) > 0:
                ready, _, _ = select.select([self._handle, descriptor], [], [], left)
                if descriptor in ready:
                    return False  # it has ended
                changes -= self._counted()
                if changes <= 0:
                    return True
        finally:
            os.close(descriptor)
        return False

    def close(self) -> None:
        os.close(self._handle)

    def _counted(self) -> int:
        try:
            data = os.read(self._handle, 65_536)
        except BlockingIOError:
            return 0
        count = at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0").decode()
            at += _EVENT.size + length
            folder = self._folders.get(watch)
            if folder is None:
                continue
            if mask & _FOLDER and mask & (_CREATE | _MOVED):
                self._add(folder / name)
            count += not name.endswith(".lock") and folder.name != "progress"
        return count

    def _add(self, folder: Path) -> None:
        mask = _CREATE | _MODIFY | _CLOSE | _MOVED | _DELETE
        watch = self._library.inotify_add_watch(self._handle, os.fsencode(folder), mask)
        if watch < 0:  # it is gone already
            return
        self._folders[watch] = folder
        try:
            below = [path for path in folder.iterdir() if path.is_dir()]
        except OSError:
            return
        for path in below:
            self._add(path)


def half_written(root: Path) -> set[str]:
    """Files that a process leaves incomplete if it is killed while it writes."""
    found = {str(path) for path in root.rglob("*.partial")}
    found |= {str(path) for path in root.iterdir() if path.name.startswith(".")}
    for population in root.glob(f"{RUN}/checkpoints/*"):
        done = max((_phase(path) for path in population.glob("checkpoint-*.json")), default=-1)
        parts = [path for kind in ("state", "replay", "frames") for path in population.glob(f"{kind}-*")]
        found |= {str(path) for path in parts if _phase(path) > done}
    return found


def _phase(path: Path) -> int:
    return int(path.name.split("-")[1].partition(".")[0])


def files_of(run: Path) -> dict[str, str]:
    """Every file of a run by its name, with its checksum where its bytes are compared."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_file():
            bare = NOT_COMPARED.fullmatch(name)
            found[name] = "" if bare else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def differences(run: Path, alone: dict[str, str]) -> list[str]:
    found = files_of(run)
    faults = [f"{name} is missing" for name in alone.keys() - found.keys()]
    faults += [f"{name} is left" for name in found.keys() - alone.keys()]
    same = alone.keys() & found.keys()
    return sorted(faults + [f"{name} differs" for name in same if alone[name] != found[name]])


def left_files(root: Path) -> list[str]:
    """Files beside the run, or among the temporary files, that should not be there."""
    beside = [
        path.name
        for path in root.iterdir()
        # A driver on Ray takes such a file for left after five minutes, and not before.
        if path.name not in (RUN, "temporary") and not (_ASKED.match(path.name) and path.is_file())
    ]
    temporary = root / "temporary"
    return beside + [
        str(path.relative_to(root))
        for path in temporary.rglob("*")
        if not re.match("valueshare-copies|torchinductor_", path.name)  # PyTorch's cache
    ]


def held_locks(root: Path) -> list[str]:
    """Locks that somebody still has, and leases that nobody gave back."""
    held = [str(path.relative_to(root)) for path in root.rglob("lease.json")]
    for path in root.rglob("*.lock"):
        with path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(str(path.relative_to(root)))
    return held
