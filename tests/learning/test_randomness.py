"""The streams against the same hash in plain integers, and the statistics that they must have."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from valueshare.learning.randomness import bits, integers, stream_key, stream_keys, uniform

WORD = 2**64


def mix(x: int) -> int:
    """The finaliser of SplitMix64, in integers modulo 2^64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % WORD
    return x ^ (x >> 31)


def reference(key: int, counter: int, lane: int) -> int:
    row = mix((key % WORD) ^ mix(counter % WORD))
    return mix(row ^ lane)


KEYS = stream_keys([0, 1, 2, -7, 2**40], "exploration")


@pytest.mark.parametrize("counter", [0, 1, 12345, 2**40])
def test_bits_are_the_hash_written_in_plain_integers(counter: int) -> None:
    drawn = bits(KEYS, torch.tensor(counter), 33).tolist()
    for key, row in zip(KEYS.tolist(), drawn, strict=True):
        assert [value % WORD for value in row] == [reference(key, counter, i) for i in range(33)]


def test_uniform_takes_the_top_24_bits_and_integers_the_top_32() -> None:
    key = stream_key(3, "replay")
    keys = torch.tensor([key])
    words = [reference(key, 5, i) for i in range(200)]
    assert uniform(keys, 5, 200)[0].tolist() == [(w >> 40) / 2**24 for w in words]
    assert integers(keys, 5, 200, 1000)[0].tolist() == [((w >> 32) * 1000) >> 32 for w in words]
    large = 2**31 - 1  # the products stay below 2^63
    assert integers(keys, 5, 200, large)[0].tolist() == [((w >> 32) * large) >> 32 for w in words]


def test_a_counter_may_be_a_number_a_tensor_or_one_an_agent() -> None:
    once = bits(KEYS, 9, 4)
    assert torch.equal(once, bits(KEYS, torch.tensor(9), 4))
    per_agent = bits(KEYS, torch.tensor([9, 8, 9, 9, 9]), 4)
    assert torch.equal(once[0], per_agent[0])
    assert not torch.equal(once[1], per_agent[1])


def test_integers_stay_below_their_own_bound() -> None:
    high = torch.tensor([1, 2, 3, 10, 1000])
    drawn = integers(KEYS, 0, 5000, high)
    assert drawn.dtype == torch.int64
    assert drawn.amin(1).tolist()[:4] == [0, 0, 0, 0]
    assert drawn.amax(1).tolist()[:4] == [0, 1, 2, 9]
    assert 990 <= int(drawn[4].max()) <= 999


def test_an_agents_numbers_do_not_depend_on_its_neighbours() -> None:
    among = uniform(stream_keys(range(32), "tau"), 77, 10)
    alone = uniform(stream_keys([13], "tau"), 77, 10)
    assert torch.equal(among[13:14], alone)
    assert torch.equal(uniform(stream_keys([13], "tau"), 77, 4), alone[:, :4])


def test_keys_are_the_same_in_another_process_and_differ_in_seed_and_stream() -> None:
    code = "from valueshare.learning.randomness import stream_key; print(stream_key(5, 'replay'))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "99"},
    )
    # printf 5/replay | b2sum -l 64, read little-endian
    expected = int.from_bytes(bytes.fromhex("eb2e9065f2a1a639"), "little", signed=True)
    assert int(other.stdout) == stream_key(5, "replay") == expected
    keys = {stream_key(s, name) for s in range(-500, 500) for name in ("a", "b", "1/a")}
    assert len(keys) == 3000


def test_uniform_numbers_are_uniform() -> None:
    keys = stream_keys(range(50), "uniform")
    drawn = torch.cat([uniform(keys, t, 40) for t in range(100)]).flatten().numpy()  # 200,000
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    observed, _ = np.histogram(drawn, bins=256, range=(0, 1))
    assert stats.chisquare(observed).pvalue > 1e-4
    assert abs(drawn.mean() - 0.5) < 4 * math.sqrt(1 / 12 / drawn.size)


def test_integers_are_uniform_and_each_bit_is_fair() -> None:
    keys = stream_keys(range(100), "integers")
    observed = np.bincount(integers(keys, 3, 1000, 18).flatten().numpy(), minlength=18)
    assert stats.chisquare(observed).pvalue > 1e-4
    words = bits(keys, 4, 1000).flatten()
    for position in range(64):
        share = ((words >> position) & 1).double().mean().item()
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(len(words)), f"bit {position}"


@pytest.mark.parametrize("axis", ["lanes", "counters", "seeds", "streams"])
def test_neighbouring_numbers_are_independent(axis: str) -> None:
    """Correlation of each number with the next along one axis: |r| < 5/sqrt(n)."""
    one, n = stream_keys([0], "s"), 20_001
    streams = torch.tensor([stream_key(0, f"s{i}") for i in range(n)])
    rows = {
        "lanes": uniform(one, 0, n)[0],
        "counters": uniform(one.expand(n), torch.arange(n), 1)[:, 0],
        "seeds": uniform(stream_keys(range(n), "s"), 0, 1)[:, 0],
        "streams": uniform(streams, 0, 1)[:, 0],
    }
    x = rows[axis].numpy()
    correlation = float(np.corrcoef(x[:-1], x[1:])[0, 1])
    assert abs(correlation) < 5 / math.sqrt(n - 1)
    pairs, _, _ = np.histogram2d(x[:-1], x[1:], bins=8, range=[[0, 1], [0, 1]])
    assert stats.chisquare(pairs.flatten()).pvalue > 1e-4


def test_rows_of_counters_do_not_overlap() -> None:
    """Lanes of one counter are not a shifted copy of those of another, or of another agent."""
    keys = stream_keys(range(20), "s")
    words = torch.cat([bits(keys, t, 50) for t in range(50)]).flatten()
    assert len(torch.unique(words)) == len(words) == 50_000


def test_no_global_generator_is_read_or_moved() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = uniform(KEYS, 1, 8)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, uniform(KEYS, 1, 8))


def test_compiled_whole_and_equal() -> None:
    def draw(keys: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return uniform(keys, t, 16), integers(keys, t, 16, t + 7)

    compiled = torch.compile(draw, fullgraph=True, backend="eager")
    for t in (torch.tensor(0), torch.tensor(123456)):
        for here, there in zip(draw(KEYS, t), compiled(KEYS, t), strict=True):
            assert torch.equal(here, there)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, while it compiles
def test_compiled_to_machine_code_and_equal() -> None:
    """Signed overflow is undefined in C++: what the compiler makes of it must still wrap around."""
    compiled = torch.compile(lambda keys, t: bits(keys, t, 64), fullgraph=True)
    for t in (0, 5, 2**33):
        assert torch.equal(compiled(KEYS, torch.tensor(t)), bits(KEYS, t, 64))
