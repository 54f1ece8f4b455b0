"""Where populations run: here, one after the other or in processes, or on a Ray cluster.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Literal, NamedTuple

from valueshare.errors import InvalidInput
from valueshare.files import refuse_link
from valueshare.runs.storage.places import Place

_MOST_SHARDS = 100_000


class Shard(NamedTuple):
    """One of so many parts of a table of agents, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class EngineOptions:
    """Where the populations run, and how the table is cut; nothing of it changes a number."""

    engine: Literal["local", "ray"] = "local"
    """local: on this machine; ray: on a cluster."""
    workers: int = 1
    """Processes on a CPU, about one per core: populations run side by side, split where too few."""
    ray_address: str = "auto"
    """HOST:PORT of the cluster; auto: the one that this machine is a node of."""
    ray_cpus: int = 0
    """CPUs of one population, and its threads; 0: one, or with GPUs its share of a node's."""
    ray_gpus: float = 1.0
    """GPUs of one population where training is on CUDA; 0.5 puts two on a GPU."""
    ray_retries: int = 3
    """How often a population whose worker was lost begins again from its last checkpoint."""
    population_agents: int = 0
    """At most so many agents per population; 0: all that can share one, on Ray all that fit."""
    shard: str = ""
    """Part of the table to run, 1/N to N/N, in a folder of its own; left out: all of it."""

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise InvalidInput(f"engine = {self.engine!r}: write local or ray")
        for name in ("workers", "ray_cpus", "ray_gpus", "ray_retries", "population_agents"):
            value = getattr(self, name)
            if not isinstance(value, Real if name == "ray_gpus" else Integral):
                raise InvalidInput(f"{name.replace('_', '-')} = {value!r}: write a number")
        if not isinstance(self.shard, str):
            raise InvalidInput(f"shard = {self.shard!r}: write a text like '2/8', or leave it out")
        if self.workers < 1:
            raise InvalidInput(f"workers = {self.workers}: write a number >= 1, or leave it out")
        if self.workers > 1 and self.engine != "local":
            raise InvalidInput(
                f"workers = {self.workers} is for the local engine: on Ray, a population is a task "
                "already; leave it out"
            )
        if self.ray_cpus < 0:
            raise InvalidInput(f"ray-cpus = {self.ray_cpus}: write a number >= 1, or leave it out")
        if not (0 < self.ray_gpus < math.inf) or (self.ray_gpus > 1 and self.ray_gpus % 1):
            raise InvalidInput(
                f"ray-gpus = {self.ray_gpus:g}: write a whole number, or a fraction below 1"
            )
        if self.ray_retries < 0:
            raise InvalidInput(f"ray-retries = {self.ray_retries}: write a number >= 0")
        if self.population_agents < 0:
            raise InvalidInput(
                f"population-agents = {self.population_agents}: write a number >= 1, or leave it "
                "out"
            )
        if self.engine != "ray":
            self._refuse_options_of_ray()
        _ = self.own_shard

    def _refuse_options_of_ray(self) -> None:
        """Who forgets --engine ray would have the work done by the machine that was to ask."""
        for field in fields(self):
            if field.name.startswith("ray_") and getattr(self, field.name) != field.default:
                name = field.name.replace("_", "-")
                raise InvalidInput(f"{name} is for a cluster: add --engine ray, or leave it out")

    @property
    def own_shard(self) -> Shard | None:
        """The shard, if only one is to be run."""
        return parse_shard(self.shard) if self.shard else None


def parse_shard(text: str) -> Shard:
    """2/8 -> the second of eight."""
    number, slash, count = text.partition("/")
    if not (slash and number.strip().isdecimal() and count.strip().isdecimal()):
        raise InvalidInput(f"shard = {text!r}: write the part and how many there are, like 2/8")
    shard = Shard(int(number), int(count))
    if not 1 <= shard.number <= shard.of or shard.of > _MOST_SHARDS:
        raise InvalidInput(
            f"shard = {text!r}: parts are counted from 1, so write 1/{shard.of} to "
            f"{shard.of}/{shard.of}"
            if 1 <= shard.of <= _MOST_SHARDS
            else f"shard = {text!r}: write between 1 and {_MOST_SHARDS:,} parts"
        )
    return shard


def shard_folder(out: Place, shard: Shard | None) -> Place:
    """Where a shard goes: a run folder of its own in the folder of all of them."""
    if shard is None:
        return out
    width = len(str(shard.of))
    name = f"shard-{shard.number:0{width}d}-of-{shard.of}"
    if isinstance(out, Path):
        refuse_link(out / name)
    return out / name
