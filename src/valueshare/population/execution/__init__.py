"""Faster executors of the training loop, which return the same numbers as `population.loop.SerialExecutor`.

Agents are divided into groups, each with environments of its own, so that the environments of one
group run while the device works for another. Groups wait for each other only at updates.

    threaded       a thread per group; for CPUs with several groups, and for GPUs
    asynchronous   a process of environments per group, and all GPU work launched ahead of them
    on_device      environments in JAX on the same GPU: one group, and nothing passes through the host

`evaluators` and `on_device` have the two evaluators in the same way.
"""

import os

# Streams that wait for emulators must not hold up others, which they do where they share one of the few connections
# that CUDA opens by default. It reads this number when it is first used.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
