"""Random numbers of C++'s `std::mt19937`, from which EnvPool draws, so that episodes are those of EnvPool.

The generator is MT19937 (Matsumoto and Nishimura, 1998).
"""

from typing import Any

import numpy as np

from valueshare.envs.lunar_lander.geometry import rule

WORDS, MIDDLE = 624, 397
U32 = np.uint32
TWIST, UPPER, LOWER = U32(0x9908B0DF), U32(0x80000000), U32(0x7FFFFFFF)
FIRST, SECOND = U32(0x9D2C5680), U32(0xEFC60000)
ONE, THIRTY = U32(1), U32(30)
S7, S11, S15, S18 = U32(7), U32(11), U32(15), U32(18)
MULTIPLIER = U32(1812433253)

TWISTER_FIELDS = {"words": (np.uint32, WORDS), "next_word": np.int32}


@rule
def seed(state: Any, number: Any) -> None:
    """Start from a seed of 32 bits."""
    words = state.words
    words[0] = number
    for i in range(1, WORDS):
        before = words[i - 1]
        words[i] = U32(MULTIPLIER * (before ^ (before >> THIRTY)) + U32(i))
    state.next_word = WORDS


@rule
def twist(words: Any) -> None:
    for i in range(WORDS):
        mixed = (words[i] & UPPER) | (words[(i + 1) % WORDS] & LOWER)
        odd = TWIST if mixed & ONE else U32(0)
        words[i] = words[(i + MIDDLE) % WORDS] ^ (mixed >> ONE) ^ odd


@rule
def draw_word(state: Any) -> Any:
    if state.next_word == WORDS:
        twist(state.words)
        state.next_word = 0
    x = state.words[state.next_word]
    state.next_word += 1
    x ^= x >> S11
    x ^= (x << S7) & FIRST
    x ^= (x << S15) & SECOND
    return U32(x ^ (x >> S18))


@rule
def uniform(state: Any, low: float, high: float) -> float:
    """A double in [low, high), as libstdc++ makes it from two words."""
    first = np.float64(draw_word(state))
    second = np.float64(draw_word(state))
    return (first + second * 4294967296.0) / 18446744073709551616.0 * (high - low) + low
