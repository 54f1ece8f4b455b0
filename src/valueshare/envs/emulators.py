"""ale-py's emulators: protocols as their options, their actions and seeds."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import mix_to_int32
from valueshare.envs.protocols import AtariProtocol
from valueshare.extras import importing

_UNLIMITED = 2**30  # frames; never reached: `envs/atari.py` counts steps


def emulator_options(protocol: AtariProtocol) -> dict[str, Any]:
    """A protocol as options of ALE's vector environment, without those of images.

    Lives and episode limits are counted by the caller, and rewards are clipped by the agents.
    """
    return {
        "autoreset_mode": "SameStep",
        "repeat_action_probability": protocol.sticky,
        "full_action_space": protocol.full_actions,
        "frameskip": protocol.frame_skip,
        "maxpool": protocol.frame_max_pool,
        "noop_max": protocol.max_noops + 1 if protocol.max_noops else 0,  # it draws below this number
        "use_fire_reset": protocol.fire_at_start,
        "episodic_life": False,
        "life_loss_info": False,
        "reward_clipping": False,
        "max_num_frames_per_episode": _UNLIMITED,
        "stack_num": 1,
    }


def emulator_seeds(keys: NDArray[np.uint64]) -> NDArray[np.int32]:
    """ALE's `random_seed` of each key, from 0 to 2^31 - 1."""
    return (mix_to_int32(keys).view(np.uint32) & np.uint32(2**31 - 1)).astype(np.int32)


def emulator_indices(vector: Any, actions: int) -> list[int]:
    """Index of each ALE action 0, 1, ... in the action set of a vector environment."""
    return indices([int(action.value) for action in vector.ale.get_action_set()], actions)


def indices(codes: Sequence[int], actions: int) -> list[int]:
    """Index of each ALE action 0, 1, ... in a game's action set `codes`; a missing action maps to no-op."""
    if len(codes) == actions:  # all, or the minimal ones, in the game's order
        return list(range(actions))
    return [codes.index(code) if code in codes else codes.index(0) for code in range(actions)]


@cache
def action_count(rom: str, full: bool) -> int:
    """The number of actions of a game: its minimal action set, or ALE's `full` one."""
    if full:
        return 18
    ale = _ale()
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    emulator = ale.ALEInterface()
    emulator.loadROM(ale.roms.get_rom_path(rom))
    return len(emulator.getMinimalActionSet())


def _ale() -> Any:
    """The package, imported on first use: it is an extra."""
    with importing("ale-py", "atari"):
        import ale_py
        import ale_py.roms
    return ale_py


def vector_environment() -> Any:
    """The class of vector environments."""
    _ale()
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv
