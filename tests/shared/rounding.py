"""Processors on which the compiled LunarLander and EnvPool's agree to the last bit."""

import platform

import pytest

# EnvPool's compiler contracts products and sums on Arm, and rounds differently there.
ROUNDS_LIKE_ENVPOOL = platform.machine() in ("x86_64", "AMD64")
to_the_bit = pytest.mark.skipif(not ROUNDS_LIKE_ENVPOOL, reason="EnvPool rounds differently on this processor")
