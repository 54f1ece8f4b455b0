"""Options of the Atari studies.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from valueshare.option_groups import AutoCompile, Device, in_group
from valueshare.population.settings import SETTINGS

AtariScale = Literal["smoke", "small", "paper"]


def _help(setting: str, more: str = "") -> Parameter:
    """The help of a training setting; a switch of train can be switched off here too."""
    negative = f"--no-{setting.replace('_', '-')}" if SETTINGS[setting].kind is bool else ()
    declared = SETTINGS[setting]
    return in_group(declared.group, help=declared.help.removesuffix(".") + more + ".", negative=negative)


SCALES = "; default: that of the scale"


@dataclass(frozen=True)
class AtariOptions:
    """Options that are left out have the values of the scale."""

    scale: AtariScale = "small"
    """smoke: Pong for 300 steps, under a minute; small: a million steps, for a GPU; paper: 50 million steps."""
    env: Annotated[tuple[str, ...], in_group("environment")] = ()
    """Atari games, like Pong or NameThisGame; default: those of the scale."""
    seeds: Annotated[int | None, in_group("algorithm")] = None
    """Number of seeds (agents per combination); default: that of the scale."""
    steps: Annotated[int | None, _help("steps", SCALES)] = None
    eval_interval: Annotated[int | None, _help("eval_interval", SCALES)] = None
    eval_timesteps: Annotated[int | None, in_group("evaluation")] = None
    """Environment steps per evaluation of one agent; default: that of the scale."""
    replay_capacity: Annotated[int | None, _help("replay_capacity", ", 7.1 kB each" + SCALES)] = None
    replay_device: Annotated[Literal["cpu", "cuda", "disk"] | None, _help("replay_device")] = None
    atari_protocol: Annotated[str, _help("atari_protocol")] = "machado-2018"
    delayed_actor: Annotated[bool, _help("delayed_actor")] = False
    device: Device = "auto"
    compile: AutoCompile = None
    tf32: Annotated[bool, _help("tf32")] = False
