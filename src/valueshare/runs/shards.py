"""Cutting a plan: into shards for machines that know nothing of each other, and into populations.

Agents are independent of their neighbours, so a cut changes no number, only who runs what.
"""

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from valueshare.errors import InvalidInput
from valueshare.runs.engines import Shard
from valueshare.runs.plan import Part, Plan, parts
from valueshare.text import how_many

# A tick costs something whatever the number of agents: as much as so many agents more. On a busy
# CPU, with a network of 128-128, that was between 3 and 12.
TICK_AGENTS = 8


def shard_plan(plan: Plan, shard: Shard | None) -> Plan:
    """The agents of one shard as a plan of their own; they keep their numbers in the whole table.

    Agents stand in the order of their populations, and every agent is as long as its steps. Cut
    into equal lengths, so that shards are equally long and populations are cut as rarely as can be.
    An agent belongs where its middle lies: to exactly one shard.
    """
    own = shard_plans([plan], shard)[0]
    assert own is not None  # a shard without agents is refused
    return own


def shard_plans(plans: Sequence[Plan], shard: Shard | None) -> list[Plan | None]:
    """One shard of several plans that are one study, laid end to end; None where it has none of it.

    So most shards have agents of one plan alone, in populations as large as they were.
    """
    if shard is None:
        return list(plans)
    total = sum(plan.agents.height for plan in plans)
    if shard.of > total:
        agents = how_many(total, "agent")
        raise InvalidInput(f"shard = {shard}: the table has {agents}; write at most so many shards")
    cuts = [parts(plan) for plan in plans]
    members = [[part.agents["agent"].to_numpy() for part in own] for own in cuts]
    steps = [(float(part.settings.total_steps), part.agents.height) for own in cuts for part in own]
    lengths = np.concatenate([np.full(agents, each) for each, agents in steps])
    middles = np.cumsum(lengths) - lengths / 2
    place = np.minimum(np.floor(middles / lengths.sum() * shard.of), shard.of - 1)
    is_own = place == shard.number - 1
    if not is_own.any():
        raise InvalidInput(f"shard = {shard}: it has no agents; write fewer shards")
    ends = np.cumsum([plan.agents.height for plan in plans])[:-1]
    return [
        _only(plan, np.concatenate(rows)[own].tolist(), shard, max(len(part) for part in rows))
        for plan, rows, own in zip(plans, members, np.split(is_own, ends), strict=True)
    ]


def _only(plan: Plan, own: list[int], shard: Shard, most: int) -> Plan | None:
    """The plan with these agents alone; where it was cut, its populations stay as small."""
    if not own:
        return None
    agents = plan.agents.filter(pl.col("agent").is_in(own))
    envs = agents["env"].unique(maintain_order=True).to_list()
    whole = plan._replace(
        agents=agents,
        settings={env: plan.settings[env] for env in envs},
        backends={env: plan.backends[env] for env in envs},
        families={env: name for env, name in plan.families.items() if env in envs},
        pieces={},
        shard=str(shard),
    )
    return cut(whole, most) if plan.pieces else whole


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


def balanced(plan: Plan, places: int) -> Plan:
    """The plan, its populations cut so that so many places, side by side, are done soonest.

    Large populations are the fast ones, so they are cut only where that leaves less to wait for:
    into pieces of at most a place's share of all work or a fraction of it, or each for all places.
    """
    whole = parts(plan._replace(pieces={}))
    total = sum(part.agent_steps for part in whole)
    limits = [
        {part.name: _up(total, places * finer * part.settings.total_steps) for part in whole}
        for finer in (1, 2, 3, 4)
    ]
    limits.append({part.name: _up(part.agents.height, places) for part in whole})

    def wall(made: Plan) -> float:
        lengths = {part.name: length(part) for part in parts(made)}
        return ends([lengths[name] for name in longest_first(lengths)], places)[-1]

    return min((plan, *(cut(plan, limit) for limit in limits)), key=wall)


def length(part: Part) -> float:
    """How long a population takes on a CPU, in steps of one agent."""
    return float(part.settings.total_steps * (part.agents.height + TICK_AGENTS))


def _up(count: int, by: int) -> int:
    return -(-count // by)


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
