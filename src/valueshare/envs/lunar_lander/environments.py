"""LunarLanders on the CPU."""

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import mix_to_int32
from valueshare.envs.compiled import CompiledEnvironments, StepOutput, share_rows
from valueshare.envs.lunar_lander import engine_table, lunar_lander_spec
from valueshare.envs.lunar_lander.contacts import CONTACT, MOST_CONTACTS
from valueshare.envs.lunar_lander.rules import NOT_STARTED, STATE, StepInput, step_lunar_landers
from valueshare.envs.lunar_lander.state import make_scratch

ENVIRONMENTS_PER_THREAD = 32  # at least: to hand work to a thread costs as much as 10 to 20 steps


def make_lunar_landers(
    env_id: str, count: int, *, threads: int | None = None, episode_limit: int | None = None
) -> CompiledEnvironments:
    spec, engines = lunar_lander_spec(env_id, episode_limit), engine_table(env_id)
    rows, in_background = share_rows(count, threads, ENVIRONMENTS_PER_THREAD)
    assert spec.episode_limit is not None
    shares = [[LanderBlock(share, engines, spec.episode_limit)] for share in rows]
    return CompiledEnvironments(spec, shares, count, in_background=in_background)


class LanderBlock:
    """Environments with neighbouring rows, which one thread steps."""

    def __init__(self, rows: NDArray[np.int64], engines: NDArray[np.float64], limit: int) -> None:
        self._first, self._last = int(rows[0]), int(rows[-1]) + 1
        self.states = np.zeros(len(rows), STATE)
        self._contacts = np.zeros((len(rows), MOST_CONTACTS), CONTACT)
        self._scratch = make_scratch()
        self._engines, self._limit = engines, limit

    def restart(self, keys: NDArray[np.uint64]) -> None:
        self.states["seed"] = mix_to_int32(keys[self._first : self._last]).view(np.uint32)  # as EnvPool gets them
        self.states["elapsed"] = NOT_STARTED

    def step(self, actions: NDArray[np.int64], active: NDArray[np.bool_], outputs: StepOutput) -> None:
        rows = slice(self._first, self._last)
        inputs = StepInput(actions[rows], active[rows], self._engines, self._limit)
        results = StepOutput._make(array[rows] for array in outputs)
        step_lunar_landers(self.states, self._contacts, self._scratch, inputs, results)
