"""Cutting a plan: into shards for machines that know nothing of each other, and into populations.

Agents are independent of their neighbours, so a cut changes no number, only who runs what.
"""

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from valueshare.errors import InvalidInput
from valueshare.runs.engines import Shard
from valueshare.runs.plan import Plan, parts


def shard_plan(plan: Plan, shard: Shard | None) -> Plan:
    """The agents of one shard as a plan of their own; they keep their numbers in the whole table.

    Agents stand in the order of their populations, and every agent is as long as its steps. Cut
    into equal lengths, so that shards are equally long and populations are cut as rarely as can be.
    An agent belongs where its middle lies: to exactly one shard.
    """
    if shard is None:
        return plan
    if shard.of > plan.agents.height:
        raise InvalidInput(
            f"shard = {shard}: the table has {plan.agents.height:,} agents; write at most so many "
            "shards"
        )
    members = [part.agents["agent"].to_numpy() for part in parts(plan)]
    steps = [part.settings.total_steps for part in parts(plan)]
    lengths = np.repeat(np.array(steps, np.float64), [len(rows) for rows in members])
    middles = np.cumsum(lengths) - lengths / 2
    place = np.minimum(np.floor(middles / lengths.sum() * shard.of), shard.of - 1)
    own = np.concatenate(members)[place == shard.number - 1]
    if not len(own):
        raise InvalidInput(f"shard = {shard}: it has no agents; write fewer shards")
    agents = plan.agents.filter(pl.col("agent").is_in(own.tolist()))
    envs = agents["env"].unique(maintain_order=True).to_list()
    whole = plan._replace(
        agents=agents,
        settings={env: plan.settings[env] for env in envs},
        backends={env: plan.backends[env] for env in envs},
        families={env: name for env, name in plan.families.items() if env in envs},
        pieces={},
        shard=str(shard),
    )
    return cut(whole, max(len(rows) for rows in members)) if plan.pieces else whole


def cut(plan: Plan, most: int | Mapping[str, int]) -> Plan:
    """The plan with populations of at most so many agents each, or by the population's name.

    A finer cut that is there already stays.
    """
    pieces = dict(plan.pieces)
    for part in parts(plan._replace(pieces={})):
        limit = most if isinstance(most, int) else most.get(part.name, part.agents.height)
        count = max(pieces.get(part.name, 1), -(-part.agents.height // limit))
        if count > 1:
            pieces[part.name] = count
    return plan._replace(pieces=pieces)


def longest_first(seconds: Mapping[str, float]) -> list[str]:
    """Names by how long they take: what begins last is then short, and little time is idle."""
    return sorted(seconds, key=lambda name: -seconds[name])


def ends(seconds: Sequence[float], places: int) -> list[float]:
    """When each of so many places is done if tasks begin in this order, each where one is free."""
    free = [0.0] * places
    heapq.heapify(free)
    for task in seconds:
        heapq.heapreplace(free, free[0] + task)
    return sorted(free)
