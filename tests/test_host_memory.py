"""Memory of the machine and of this process, and the words of those that run out of it."""

import resource
import subprocess
import sys

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
    with pytest.raises(InvalidInput, match=f"size = {given}: write a size like 4GB or 500MB"):
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
