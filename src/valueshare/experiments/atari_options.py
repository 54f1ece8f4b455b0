"""What the Atari studies can be given; nothing heavy is imported here.

The command line reads it before it knows the command.
"""

from dataclasses import dataclass
from typing import Literal

AtariScale = Literal["smoke", "small", "paper"]


@dataclass(frozen=True)
class AtariOptions:
    """What is left out is the scale's own."""

    scale: AtariScale = "small"
    """smoke: Pong for 300 steps, under a minute; small: a million, for a GPU; paper: 50 million."""
    games: tuple[str, ...] = ()
    """Names like Pong or NameThisGame; left out: the scale's own."""
    seeds: int | None = None
    """Agents of each combination; left out: the scale's own."""
    steps: int | None = None
    """Of each agent; left out: the scale's own."""
    eval_interval: int | None = None
    """Steps between evaluations, which are the phases too; left out: the scale's own."""
    eval_timesteps: int | None = None
    """Of an evaluation, an agent; left out: the scale's own."""
    replay_capacity: int | None = None
    """Transitions an agent remembers, 7.1 kB each; left out: the scale's own."""
    replay_device: Literal["auto", "cpu", "cuda", "disk"] = "auto"
    """Where they are kept; auto is where training is. It changes no agent's random numbers."""
    agents_at_once: int = 16
    """At most so many agents are one population. It changes no agent's random numbers."""
    atari_protocol: str = "machado-2018"
    """How games are played and scored, for all of the study: machado-2018 is the paper's."""
    delayed_actor: bool = False
    """Act by the weights before the last update until the next begins: never wait for learning."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    compile: bool = False
    """Compile what agents do at a step; takes a minute, then it is faster."""
    tf32: bool = False
    """On CUDA, matrix products with 10-bit mantissas."""
