"""Options of the launchers: this process, worker processes, a Ray cluster, and shards.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_type_hints

from valueshare.errors import InvalidInput
from valueshare.files import refuse_link
from valueshare.option_groups import in_group
from valueshare.runs.storage.locations import Location
from valueshare.setting import as_count, as_float

_MAX_SHARDS = 100_000


class Shard(NamedTuple):
    """One of several shards of a table of agents, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class LauncherOptions:
    """Options of where populations run, and how the table is split; none of them changes results."""

    launcher: Literal["local", "ray"] = "local"
    """local: on this machine; ray: on a cluster."""
    workers: Annotated[int, in_group("execution")] = 0
    """CPU worker processes (0: one per core, but 1 for short runs and on CUDA)."""
    ray_address: str = "auto"
    """HOST:PORT of the cluster; auto: the cluster that this machine belongs to."""
    ray_cpus: int = 0
    """CPUs and threads per task, which is a population; 0: one, or with GPUs its share of the node's CPUs."""
    ray_gpus: float = 1.0
    """GPUs per population when training on CUDA; 0.5: two populations share a GPU."""
    ray_retries: int = 3
    """How many times a task is run again, from its last checkpoint, after its worker is lost."""
    population_agents: Annotated[int, in_group("execution")] = 0
    """Maximum agents per population (0: all that can share one; on Ray that fit into memory; in Atari studies 16)."""
    shard: str = ""
    """Shard to run, 1/N to N/N, in its own folder; default: the whole table of agents."""

    def __post_init__(self) -> None:
        if self.launcher not in ("local", "ray"):
            raise InvalidInput(f"`launcher = {self.launcher!r}`: write local or ray")
        for name in ("workers", "ray_cpus", "ray_retries", "population_agents"):
            as_count(name, getattr(self, name), minimum=0)
        if not isinstance(self.shard, str):
            raise InvalidInput(f"`shard = {self.shard!r}`: write a text like '2/8', or leave it out")
        if self.workers > 1 and self.launcher != "local":
            raise InvalidInput(
                f"`workers = {self.workers}` is for the local launcher: on Ray, a population is a "
                "task already; leave it out"
            )
        if not (0 < as_float("ray_gpus", self.ray_gpus) < math.inf) or (self.ray_gpus > 1 and self.ray_gpus % 1):
            raise InvalidInput(f"`ray_gpus = {self.ray_gpus:g}`: write a whole number, or a fraction below 1")
        for field in fields(self) if self.launcher == "local" else ():
            if field.name.startswith("ray_") and getattr(self, field.name) != field.default:
                raise InvalidInput(f"`{field.name}` is for a cluster: add `launcher = 'ray'`, or leave it out")
        _ = self.selected_shard

    @property
    def selected_shard(self) -> Shard | None:
        """The shard, if only one runs."""
        return parse_shard(self.shard) if self.shard else None


# In Python, signatures and help show plain types, not the command line's groups.
LauncherOptions.__init__.__annotations__ = {**get_type_hints(LauncherOptions.__init__), "return": None}
LOCAL = LauncherOptions()


def parse_shard(text: str) -> Shard:
    """2/8 -> the second of eight."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*", text)
    if match is None:
        raise InvalidInput(f"`shard = {text!r}`: write its number and how many there are, like 2/8")
    number, of = int(match[1]), int(match[2])
    if not 1 <= of <= _MAX_SHARDS:
        raise InvalidInput(f"`shard = {text!r}`: write between 1 and {_MAX_SHARDS:,} shards")
    if not 1 <= number <= of:
        raise InvalidInput(f"`shard = {text!r}`: shards are counted from 1, so write 1/{of} to {of}/{of}")
    return Shard(number, of)


def shard_folder(out: Location, shard: Shard | None) -> Location:
    """The location of a shard: a run folder of its own in the folder of all of them."""
    if shard is None:
        return out
    width = len(str(shard.of))
    name = f"shard-{shard.number:0{width}d}-of-{shard.of}"
    if isinstance(out, Path):
        refuse_link(out / name)
    return out / name
