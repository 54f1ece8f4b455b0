"""Memory of this machine and process: held and free bytes, and errors when it ran out."""

import ctypes
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from valueshare.cores import available_cores
from valueshare.errors import InvalidInput, first_line

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
MIN_ADDRESSES = 2 * 10**9  # PyTorch, LLVM and Polars with their threads take half of it, on two cores
NO_ADDRESSES = "the limit of the address space (ulimit -v) is too low to load the libraries: raise it to 2 GB or more"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt, in malloc.h
# Where control groups are mounted, their files with the limit and the usage, and the field of droppable pages.
_CGROUP_V1 = "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"
_CGROUP_V2 = "sys/fs/cgroup", ("memory.max", "memory.current"), "inactive_file"
# Messages of libraries that have no exception for it: PyTorch, the C++ library, the dynamic linker, and Python where no
# thread can be started.
_RAN_OUT = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "DefaultCPUAllocator",
    "bad_alloc",
    "failed to map segment",
    "unable to mmap",
    "can't start new thread",
    "capacity overflow",
    "cannot reserve",
)


def resident_bytes() -> int:
    """Memory that this process holds now: Python, its libraries and all data; its peak on macOS."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    import resource  # not on Windows, where nothing is trained

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def free_bytes() -> int | None:
    """Memory that this process could still get, in bytes; None where it is unknown."""
    available = _available()
    limits = (_installed() if available is None else available, _left_in_group(), _left_of_addresses())
    return min((value for value in limits if value is not None), default=None)


def return_freed_memory() -> None:
    """Give freed memory back to the system, where the C library is glibc.

    glibc keeps what a thread has freed for threads that use the same arena. A library that starts new threads for each
    of its objects would hold more memory with every one.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # musl has no such function
            ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Make glibc keep freed blocks of up to 32 MB for reuse, for the rest of the process.

    glibc returns such blocks to the system, which then clears every page of the next one: a fifth of the time of
    training small networks on a CPU. `return_freed_memory` returns them.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            for parameter, value in ((_M_MMAP_THRESHOLD, 32 * 2**20), (_M_TRIM_THRESHOLD, 2**31 - 1)):
                ctypes.CDLL(None).mallopt(parameter, value)


def has_small_address_space() -> bool:
    """Whether the limit of the address space is too low to load the libraries."""
    limit = _address_limit()
    return limit is not None and limit < MIN_ADDRESSES


def format_bytes(count: int) -> str:
    """Bytes as text: 1.5 GB."""
    for unit in ("TB", "GB", "MB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:,.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def check_free_memory(what: str, needed: int, advice: str) -> None:
    """Refuse, in one line, what needs more memory than is free."""
    free = free_bytes()
    if free is not None and needed > free:
        raise InvalidInput(f"{what} {format_bytes(needed)} of memory and {format_bytes(free)} are free: {advice}")


def byte_count(name: str, size: int | str) -> int:
    """Bytes of a size as people write it: 4GB, 1.5 TB, 250000000."""
    units = {unit.lower(): factor for unit, factor in UNITS.items()} | {"": 1}
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([a-z]*)", str(size).strip().lower())
    if match is None or match[2] not in units or isinstance(size, bool):
        raise InvalidInput(f"`{name} = {size}`: write a size like 4GB or 500MB")
    return int(float(match[1]) * units[match[2]])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; not all libraries have a type for it."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words.lower() in text for words in _RAN_OUT)


def refuse_without_memory(library: str, error: BaseException) -> None:
    """Raise a clear error if a library cannot be loaded for lack of memory."""
    if is_out_of_memory(error):
        raise InvalidInput(
            f"there is no memory to load {library} ({first_line(error)}): free some, or raise the "
            "limit of the address space (ulimit -v)"
        ) from error


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(fields[0]) * 1024 if fields else None


def _installed() -> int | None:
    """The total memory of the machine, for systems where the free memory is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_group(root: Path = Path("/")) -> int | None:
    """Memory left within the limits of this process's control groups; None without a limit.

    Every group on the path to the top of the hierarchy may have a limit, and the smallest rest counts. Pages of files
    that the kernel can drop at once are not counted as used.
    """
    try:
        entries = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    left = []
    for _, controllers, path in entries:
        if controllers and "memory" not in controllers.split(","):
            continue
        mount, files, droppable = _CGROUP_V1 if controllers else _CGROUP_V2
        group = root / mount / path.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # another mount, or no limit: "max"
                limit, used = (int((folder / name).read_text()) for name in files)
                with suppress(OSError):
                    statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                    used -= int(statistics.get(droppable, 0))
                left.append(max(0, limit - used))
    return min(left, default=None)


def _address_limit() -> int | None:
    """The limit of the address space in bytes; None without one."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, OSError, ValueError):
        return None
    return None if limit == resource.RLIM_INFINITY else limit


def _left_of_addresses() -> int | None:
    """Addresses left within a limit (ulimit -v, prlimit --as); None without one."""
    limit = _address_limit()
    if limit is None:
        return None
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
    # Threads reserve addresses, for a stack and a heap each, of which they use little.
    reserved = 256 * 2**20 + 160 * 2**20 * available_cores()
    return max(0, limit - used - reserved)
