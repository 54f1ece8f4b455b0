"""Options of the Atari benchmark.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from dataclasses import dataclass
from typing import Literal

LoopName = Literal[
    "delayed-auto", "serial", "groups-2", "delayed", "delayed-groups-2", "delayed-groups-4", "delayed-groups-8"
]


@dataclass(frozen=True)
class AtariBench:
    """Agents to measure, and how long to measure each part."""

    agents: int = 16
    """Agents that step in lockstep."""
    algorithm: str = "dqn"
    """Algorithm to measure, one of `valueshare train`."""
    env: tuple[str, ...] = ("Pong",)
    """Environments: Atari games, assigned to the agents in turn; the single plain agent plays the first."""
    replay_capacity: int = 1_000_000
    """Replay capacity per agent, in transitions, 7.1 kB each."""
    replay_device: Literal["cpu", "cuda", "disk"] | None = None
    """Where the replay is stored (default: the training device)."""
    loops: tuple[LoopName, ...] = ("delayed-auto", "serial", "groups-2", "delayed")
    """Training loops: one group of agents, or groups-N independent ones; delayed: with a delayed actor; auto: the
    number of groups of a long run, found in a trial."""
    raw_seconds: float = 5.0
    """Seconds to measure the bare emulators."""
    plain_seconds: float = 8.0
    """Seconds to measure one plain agent."""
    part_seconds: float = 2.0
    """Seconds to measure each of learning, acting and storing."""
    loop_seconds: float = 10.0
    """Seconds to measure each loop; the bare emulators beside it take half as long."""

    @property
    def measured_loops(self) -> tuple[LoopName, ...]:
        """The loops to build: without loop_seconds only the first one, for its parts."""
        return self.loops if self.loop_seconds else self.loops[: bool(self.part_seconds)]
