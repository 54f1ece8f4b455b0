"""Options of the Atari studies.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from dataclasses import dataclass
from typing import Literal

AtariScale = Literal["smoke", "small", "paper"]


@dataclass(frozen=True)
class AtariOptions:
    """Options that are left out have the values of the scale."""

    scale: AtariScale = "small"
    """smoke: Pong for 300 steps, under a minute; small: a million, for a GPU; paper: 50 million."""
    games: tuple[str, ...] = ()
    """Names like Pong or NameThisGame; left out: the scale's own."""
    seeds: int | None = None
    """Agents per combination; left out: the scale's own."""
    steps: int | None = None
    """Steps per agent; left out: the scale's own."""
    eval_interval: int | None = None
    """Steps between evaluations, which are the phases too; left out: the scale's own."""
    eval_timesteps: int | None = None
    """Timesteps per evaluation of one agent; left out: the scale's own."""
    replay_capacity: int | None = None
    """Transitions that the replay of one agent holds, 7.1 kB each; left out: the scale's own."""
    replay_device: Literal["auto", "cpu", "cuda", "disk"] = "auto"
    """Memory that holds the replay; auto: that of the training device."""
    agents_at_once: int = 16
    """Most agents of one population; it changes no number."""
    atari_protocol: str = "machado-2018"
    """Name of the protocol of the games: machado-2018 is the paper's."""
    delayed_actor: bool = False
    """Act with the weights from before the last update: acting never waits for one."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    compile: bool = False
    """Compile the step of the agents; takes a minute, then it is faster."""
    tf32: bool = False
    """CUDA: TensorFloat-32 matrix products; faster, with 10-bit mantissas."""
