"""Options of the Atari studies.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from dataclasses import dataclass
from typing import Literal

from tyro.conf import FlagCreatePairsOff

from valueshare.runs.options import Count, NameList

AtariScale = Literal["smoke", "small", "paper"]
Flag = FlagCreatePairsOff[bool]


@dataclass(frozen=True)
class AtariOptions:
    """Options that are left out have the values of the scale."""

    scale: AtariScale = "small"
    """smoke: Pong for 300 steps, under a minute; small: a million, for a GPU; paper: 50 million."""
    games: NameList = ()
    """Names like Pong or NameThisGame; left out: the scale's own."""
    seeds: Count = None
    """Agents per combination; left out: the scale's own."""
    steps: Count = None
    """Steps per agent; left out: the scale's own."""
    eval_interval: Count = None
    """Steps between evaluations and checkpoints; left out: the scale's own."""
    eval_timesteps: Count = None
    """Timesteps per evaluation of one agent; left out: the scale's own."""
    replay_capacity: Count = None
    """Transitions in the replay of one agent, 7.1 kB each; left out: the scale's own."""
    replay_device: Literal["auto", "cpu", "cuda", "disk"] = "auto"
    """Memory that holds the replay; auto: that of the training device. It changes no number."""
    agents_at_once: int = 16
    """Most agents per population. It changes no agent's random numbers."""
    atari_protocol: str = "machado-2018"
    """Protocol by which games are played and scored; machado-2018 is the paper's."""
    delayed_actor: Flag = False
    """Act with the weights from before the last update, so that acting never waits for one."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    compile: Flag = False
    """Compile acting and learning; takes a minute, then it is faster."""
    tf32: Flag = False
    """CUDA: TensorFloat-32 matrix products; faster, with 10-bit mantissas."""
