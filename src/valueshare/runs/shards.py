"""Shards of a plan for machines that know nothing of each other, and splits that balance workers.

Agents are independent of their neighbours, so neither changes a number, only where agents run.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from valueshare.errors import InvalidInput
from valueshare.integers import ceil_div
from valueshare.population.spec import PopulationSpec
from valueshare.runs.launcher_options import Shard
from valueshare.runs.plan import Plan, split
from valueshare.text import pluralize

# The fixed cost of a step, in agents: 3 to 12 were measured on a busy CPU, with a network of 128-128.
STEP_OVERHEAD_AGENTS = 8


def shard_plan(plan: Plan, shard: Shard | None) -> Plan:
    """The agents of one shard as a separate plan; they keep their numbers in the whole table.

    Agents stand in the order of their populations, each as long as its steps. The line is divided into equal lengths,
    so shards take equally long and few populations are split. An agent belongs to the one shard that holds its middle.
    """
    selected = shard_plans([plan], shard)[0]
    assert selected is not None  # a shard without agents is refused
    return selected


def shard_plans(plans: Sequence[Plan], shard: Shard | None) -> list[Plan | None]:
    """One shard of several plans of a study, laid end to end, so that most are of one plan; None without agents."""
    if shard is None:
        return list(plans)
    total = sum(plan.agents.height for plan in plans)
    if shard.of > total:
        agents = pluralize(total, "agent")
        raise InvalidInput(f"`shard = {shard}`: the table has {agents}; write at most as many shards")
    specs = [list(plan.populations.values()) for plan in plans]
    numbers = [[spec.agents["agent"].to_numpy() for spec in plan_specs] for plan_specs in specs]
    lengths = np.concatenate(
        [np.full(spec.agents.height, float(spec.settings.steps)) for plan_specs in specs for spec in plan_specs]
    )
    middles = np.cumsum(lengths) - lengths / 2
    shards = np.minimum(np.floor(middles / lengths.sum() * shard.of), shard.of - 1)
    in_shard = shards == shard.number - 1
    if not in_shard.any():
        raise InvalidInput(f"`shard = {shard}`: it has no agents; write fewer shards")
    ends = np.cumsum([plan.agents.height for plan in plans])[:-1]
    return [
        _only(plan, np.concatenate(rows)[mask].tolist(), shard, max(map(len, rows)))
        for plan, rows, mask in zip(plans, numbers, np.split(in_shard, ends), strict=True)
    ]


def _only(plan: Plan, agents: list[int], shard: Shard, most: int) -> Plan | None:
    """The plan with these agents alone; where it was split, its populations stay as small."""
    if not agents:
        return None
    table = plan.agents.filter(pl.col("agent").is_in(agents))
    envs = table["env"].unique(maintain_order=True).to_list()
    unsplit = replace(
        plan,
        agents=table,
        settings={env: plan.settings[env] for env in envs},
        backends={env: plan.backends[env] for env in envs},
        families={env: name for env, name in plan.families.items() if env in envs},
        actions={env: count for env, count in plan.actions.items() if env in envs},
        chunks={},
        shard=str(shard),
    )
    return split(unsplit, most) if plan.chunks else unsplit


def balance(plan: Plan, workers: int) -> Plan:
    """The plan, its populations split so that `workers` workers, side by side, finish soonest.

    Large populations are faster per agent, so they are split only where that shortens the run: into chunks of at most
    one worker's share of all work, a fraction of it, or one for each worker.
    """
    specs = plan.unsplit_populations
    total = sum(spec.agent_steps for spec in specs.values())
    shares = [
        {name: ceil_div(total, workers * finer * spec.settings.steps) for name, spec in specs.items()}
        for finer in (1, 2, 3, 4)
    ]
    shares.append({name: ceil_div(spec.agents.height, workers) for name, spec in specs.items()})

    def wall_time(candidate: Plan) -> float:
        lengths = {name: estimated_cost(spec) for name, spec in candidate.populations.items()}
        return end_times([lengths[name] for name in longest_first(lengths)], workers)[-1]

    return min((plan, *(split(plan, limit) for limit in shares)), key=wall_time)


def estimated_cost(spec: PopulationSpec) -> float:
    """The cost of a population on a CPU, in steps of one agent."""
    return float(spec.settings.steps * (spec.agents.height + STEP_OVERHEAD_AGENTS))


def longest_first(seconds: Mapping[str, float]) -> list[str]:
    """Names by how long they take: the last to begin are short, so little time is idle."""
    return sorted(seconds, key=lambda name: -seconds[name])


def end_times(seconds: Sequence[float], workers: int) -> list[float]:
    """The end time of each worker that is needed, if tasks begin in this order, each on the first free worker."""
    free = [0.0] * max(1, min(workers, len(seconds)))
    for task in seconds:
        heapq.heapreplace(free, free[0] + task)
    return sorted(free)
