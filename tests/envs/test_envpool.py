"""EnvPool's environments: what is not common to all backends."""

import sys

import numpy as np
import pytest

from valueshare.envs.envpool import EnvPoolEnvironments
from valueshare.host_memory import resident_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_the_memory_of_a_closed_pool_is_returned() -> None:
    """A LunarLander takes about 110 kB; of a closed pool of 512, glibc alone would keep 30 MB."""
    pool = EnvPoolEnvironments("LunarLander-v3", 512, threads=2)
    pool.reset(range(512))
    pool.close()
    before = resident_bytes()
    pool.reset(range(512))
    for _ in range(20):
        pool.step(np.full(512, 2))
    assert resident_bytes() - before > 40_000_000
    pool.close()
    assert resident_bytes() - before < 10_000_000
