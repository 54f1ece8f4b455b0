"""The meanings of actions, in words."""

from typing import Any

from numpy.typing import NDArray

from valueshare.envs.base import EnvironmentSpec

NAMES = {  # of environments that Gymnasium and EnvPool have
    "CartPole": ("left", "right"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "MountainCar": ("left", "nothing", "right"),
    "Acrobot": ("torque −1", "torque 0", "torque +1"),
}
MINATAR_NAMES = ("nothing", "left", "up", "right", "down", "fire")


def base_name(env_id: str) -> str:
    """CartPole of gym:CartPole-v1."""
    return env_id.rpartition(":")[2].partition("-v")[0]


def action_names(spec: EnvironmentSpec, env_actions: NDArray[Any]) -> tuple[str, ...]:
    """The meaning of each action, its values where it is a bin, or its number."""
    if env_actions.ndim == 2:
        return tuple(", ".join(f"{value:.2g}" for value in action) for action in env_actions)
    names = NAMES.get(base_name(spec.name), ())
    numbers = tuple(f"action {number}" for number in range(spec.actions))
    return names if len(names) == spec.actions else numbers


def atari_words(action: str) -> str:
    """UPRIGHTFIRE -> up right fire."""
    for word in ("NOOP", "UP", "DOWN", "LEFT", "RIGHT", "FIRE"):
        action = action.replace(word, f" {word.lower()}")
    return action.strip().replace("noop", "nothing")
