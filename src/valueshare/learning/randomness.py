"""Random numbers as a function of (agent seed, stream name, counter, index), and nothing else.

There is no generator and no state: the number for index i at step t is a hash,

    value = mix(mix(key ^ mix(t)) ^ i),

with mix the finaliser of SplitMix64. So an agent draws the same numbers alone and among others, on
a CPU and on a GPU, in eager and compiled code, before and after a resume; and nothing waits for the
host. PyTorch has no unsigned 64-bit arithmetic: int64 wraps around the same way, bit for bit.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

# Odd constants of SplitMix64, as signed 64-bit numbers.
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def stream_key(seed: int, stream: str) -> int:
    """The key of one agent's stream: 64 well-mixed bits of (seed, stream), as a signed integer.

    The same on every machine and in every version of Python.
    """
    digest = hashlib.blake2b(f"{int(seed)}/{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def stream_keys(seeds: Sequence[int], stream: str, device: torch.device | str | None = None) -> Tensor:
    """The keys of one stream for many agents. Shapes: seeds [P] -> [P] int64."""
    keys = [stream_key(seed, stream) for seed in seeds]
    return torch.tensor(keys, dtype=torch.int64, device=device)


def bits(keys: Tensor, counter: Tensor | int, count: int) -> Tensor:
    """64 random bits for each agent and index.

    `counter` is a 0-d int64 tensor on the keys' device, or [P] for one per agent; or a number, but
    not in compiled code, where it would be compiled in. Shapes: keys [P] -> [P, count] int64.
    """
    index = torch.arange(count, device=keys.device)
    if not isinstance(counter, Tensor):
        counter = torch.full((), counter, dtype=torch.int64, device=keys.device)
    row = _mix(keys ^ _mix(counter))  # [P]
    return _mix(row.unsqueeze(-1) ^ index)


def uniform(keys: Tensor, counter: Tensor | int, count: int) -> Tensor:
    """Numbers in [0, 1), multiples of 2^-24. Shapes: keys [P] -> [P, count] float32."""
    return _shift(bits(keys, counter, count), 40).to(torch.float32) * 2.0**-24


def integers(keys: Tensor, counter: Tensor | int, count: int, high: Tensor | int) -> Tensor:
    """Integers in [0, high), 1 <= high < 2^31; `high` is a number or [P].

    floor(u·high / 2^32) for 32 random bits u: no probability is further than 2^-32 from 1/high.
    Shapes: keys [P] -> [P, count] int64.
    """
    if isinstance(high, Tensor):
        high = high.to(torch.int64).unsqueeze(-1)  # [P, 1]
    return _shift(bits(keys, counter, count), 32) * high >> 32


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """Shift right as if unsigned: the mask clears the copies of the sign that `>>` brings in."""
    shifted: Tensor = (x >> by) & (2 ** (64 - by) - 1)
    return shifted
