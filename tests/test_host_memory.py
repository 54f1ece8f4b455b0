"""Memory of the machine and of this process, and the words of those that run out of it."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from valueshare import host_memory
from valueshare.errors import InvalidInput
from valueshare.host_memory import byte_count, free_bytes, is_out_of_memory, resident_bytes


def test_what_this_process_holds_grows_with_what_it_makes() -> None:
    before = resident_bytes()
    held = np.ones(50_000_000, np.uint8)  # one block, and no other before it
    assert resident_bytes() - before == pytest.approx(len(held), rel=0.1)


LIMITED = """
import resource
from valueshare.host_memory import free_bytes
for limit in (3_000_000_000, 2_000_000_000):
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(free_bytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_limit_of_the_address_space_is_a_limit_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    three, two = map(int, done.stdout.split())
    assert three - two == pytest.approx(10**9, rel=0.01)
    assert 10**9 < three < 3 * 10**9
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert host_memory._left_of_addresses() is None
    assert free_bytes() is not None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("4GB", 4 * 10**9), ("1.5 tb", 15 * 10**11), ("20 kB", 20_000), ("7", 7), (10**15, 10**15)],
)
def test_sizes_as_people_write_them(given: str | int, wanted: int) -> None:
    assert byte_count("size", given) == wanted


@pytest.mark.parametrize("given", ["", "GB", "-1GB", "4 apples", "nan", "1e9", "9" * 40, True])
def test_what_is_no_size_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match=f"`size = {given}`: write a size like 4GB or 500MB"):
        byte_count("size", given)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:113] data. DefaultCPUAllocator: ..."), True),
        (RuntimeError("std::bad_alloc"), True),
        (ImportError("libtorch.so: failed to map segment from shared object"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("7"), False),
    ],
)
def test_running_out_of_memory_by_its_words(error: Exception, wanted: bool) -> None:
    assert is_out_of_memory(error) is wanted


def test_a_library_that_cannot_be_loaded_for_lack_of_memory_says_so() -> None:
    host_memory.refuse_without_memory("EnvPool", ImportError("No module named 'envpool'"))
    with pytest.raises(InvalidInput, match=r"no memory to load EnvPool .*\(ulimit -v\)"):
        host_memory.refuse_without_memory("EnvPool", ImportError("failed to map segment from x"))


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


GROUPS = {  # the files of the machine, and the bytes that are free
    "version 2, at the root of a container": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": "900",
            "sys/fs/cgroup/memory.current": "200",
            "sys/fs/cgroup/memory.stat": "anon 50\nfile 150\ninactive_file 120",
        },
        820,
    ),
    "version 2, of a systemd unit; the limit of a group above is smaller": (
        {
            "proc/self/cgroup": "0::/system.slice/job.scope/step",
            "sys/fs/cgroup/system.slice/memory.max": "1000",
            "sys/fs/cgroup/system.slice/memory.current": "900",
            "sys/fs/cgroup/system.slice/job.scope/memory.max": "max",
            "sys/fs/cgroup/system.slice/job.scope/memory.current": "300",
            "sys/fs/cgroup/system.slice/job.scope/step/memory.max": "500",
            "sys/fs/cgroup/system.slice/job.scope/step/memory.current": "250",
        },
        100,
    ),
    "version 1, of a SLURM job; no limit is a number of pages": (
        {
            "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/slurm/job_7\n0::/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000",
            "sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "4000",
            "sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes": "1500",
            "sys/fs/cgroup/memory/slurm/job_7/memory.stat": "cache 400\ninactive_file 1\ntotal_inactive_file 300",
        },
        2800,
    ),
    "version 1, in a container that sees its own group as the root": (
        {
            "proc/self/cgroup": "4:memory:/docker/0123abcd",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000",
        },
        3000,
    ),
    "more used than a limit that was lowered": (
        {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "10", "sys/fs/cgroup/a/memory.current": "20"},
        0,
    ),
    "no limit": (
        {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/memory.current": "20"},
        None,
    ),
    "a file that is not a number": (
        {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "?", "sys/fs/cgroup/a/memory.current": "20"},
        None,
    ),
    "no groups": ({}, None),
}


@pytest.mark.parametrize("machine", GROUPS)
def test_the_smallest_memory_limit_of_nested_cgroups_counts(machine: str, tmp_path: Path) -> None:
    files, free = GROUPS[machine]
    write_tree(tmp_path, files)
    assert host_memory._left_in_group(tmp_path) == free
