"""Steps of several environments of one game, one after the other; compiled with the rules of each game.

Random numbers are a function of (the environment's key, its number of steps, the draw within the step). So an
environment depends on its own seed and actions alone, never on its neighbours or on the thread that steps it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from valueshare import splitmix
from valueshare.envs import compiled
from valueshare.envs.compiled import StepOutput
from valueshare.splitmix import S32, Bits, bits, randint, source_type, uniform

IN_REPEAT, IN_GAME, IN_RESET = range(3)  # the streams of a step
NOT_STARTED = -1  # elapsed steps of an environment that is still to be reset

# Compiled into every game from files that Numba's cache does not check: it checks the file of the game only.
SOURCES = (Path(__file__), Path(__file__).with_name("tables.py"), Path(splitmix.__file__), Path(compiled.__file__))

rule = njit(error_model="numpy")  # a function that is compiled into a kernel
# Numba looks for cached code under the name of the kernel, and reads the old types of its arguments before it checks
# anything: who renames StepInput or StepOutput must rename the kernels too, or an old cache raises AttributeError.
kernel = njit(nogil=True, cache=True, error_model="numpy")


class StepInput(NamedTuple):
    """The input of a step of E environments."""

    actions: NDArray[np.int64]  # [E]
    active: NDArray[np.bool_]  # [E]
    limit: int  # steps after which an episode is truncated
    sticky: float  # probability that the action before is repeated


def record(**fields: Any) -> np.dtype[Any]:
    """The type of one environment's state: the fields of a game, after those that all games have.

    The last field is that of `source_type`: an edit of one of SOURCES compiles the games again.
    """
    shared = [("key", np.uint64), ("steps", np.int64), ("elapsed", np.int32), ("action", np.int8)]
    of_game = [(name, *field) if isinstance(field, tuple) else (name, field) for name, field in fields.items()]
    return np.dtype([*shared, *of_game, *source_type(*SOURCES).descr], align=True)


@njit(inline="always")
def choice(random: Bits, number: int, count: int) -> int:
    """An integer in [0, count), from the random number `number` of a step."""
    return randint(bits(random, number) >> S32, count)


@njit(inline="always")
def step_rows(
    reset: Callable[[Any, Bits], None],
    step: Callable[[Any, int, Bits], tuple[float, bool]],
    draw: Callable[[Any, Any], None],
    states: Any,
    rows: NDArray[np.int64],
    inputs: StepInput,
    outputs: StepOutput,
) -> None:
    """One step of the environments `states`, which are these rows of all."""
    for i in range(len(rows)):
        row, state = rows[i], states[i]
        picture = outputs.observation[row]
        reward, terminated, truncated = 0.0, False, False
        if state.elapsed == NOT_STARTED:
            begin(reset, state)
        elif inputs.active[row]:
            state.steps += 1
            state.elapsed += 1
            key = bits(state.key, state.steps)
            if uniform(key, IN_REPEAT) >= inputs.sticky:
                state.action = inputs.actions[row]
            reward, terminated = step(state, state.action, bits(key, IN_GAME))
            truncated = not terminated and state.elapsed >= inputs.limit
        if terminated or truncated:
            outputs.last[row] = False
            draw(state, outputs.last[row])
            begin(reset, state)
        picture[:] = False
        draw(state, picture)
        outputs.reward[row], outputs.terminated[row], outputs.truncated[row] = reward, terminated, truncated


@njit(inline="always")
def begin(reset: Callable[[Any, Bits], None], state: Any) -> None:
    """Start an episode."""
    state.elapsed = 0
    reset(state, bits(bits(state.key, state.steps), IN_RESET))
