"""Cutting a plan: into shards for machines that know nothing of each other, and into populations.

Agents are independent of their neighbours, so a cut changes no number, only who runs what.
"""

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
    if shard.count > plan.agents.height:
        raise InvalidInput(
            f"shard = {shard}: the table has {plan.agents.height:,} agents; write at most so many "
            "shards"
        )
    members = [part.agents["agent"].to_numpy() for part in parts(plan)]
    steps = [part.settings.total_steps for part in parts(plan)]
    lengths = np.repeat(np.array(steps, np.float64), [len(rows) for rows in members])
    middles = np.cumsum(lengths) - lengths / 2
    place = np.minimum(np.floor(middles / lengths.sum() * shard.count), shard.count - 1)
    own = np.concatenate(members)[place == shard.number - 1]
    if not len(own):
        raise InvalidInput(f"shard = {shard}: it has no agents; write fewer shards")
    agents = plan.agents.filter(pl.col("agent").is_in(own.tolist()))
    envs = agents["env"].unique(maintain_order=True).to_list()
    return plan._replace(
        agents=agents,
        settings={env: plan.settings[env] for env in envs},
        backends={env: plan.backends[env] for env in envs},
        families={env: name for env, name in plan.families.items() if env in envs},
        pieces={},
        shard=str(shard),
    )


def cut(plan: Plan, most: int | Mapping[str, int]) -> Plan:
    """The plan with populations of at most so many agents each, or by the population's name."""
    pieces = {}
    for part in parts(plan._replace(pieces={})):
        limit = most if isinstance(most, int) else most.get(part.name, part.agents.height)
        if limit < part.agents.height:
            pieces[part.name] = -(-part.agents.height // limit)
    return plan._replace(pieces=pieces)


def longest_first(seconds: Mapping[str, float]) -> Sequence[str]:
    """Names by how long they take: what begins last is then short, and little time is idle."""
    return sorted(seconds, key=lambda name: -seconds[name])
