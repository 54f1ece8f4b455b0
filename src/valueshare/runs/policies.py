"""Trained agents of a run folder as policies."""

from pathlib import Path

import torch

from valueshare.envs import announce_imports, environment_spec
from valueshare.errors import InvalidInput
from valueshare.population.networks import NetworkFactory
from valueshare.population.policy import Policy
from valueshare.population.state import make_population
from valueshare.runs.plan import Plan
from valueshare.runs.run_folder import open_plan, read_weights


def read_policy(folder: Path, agent: int, network: NetworkFactory | None = None) -> Policy:
    """An agent of the run in a folder, as of its last finished phase.

    `network` is the run's own factory, if it has one. A line is printed before a module that the run names is imported.
    """
    plan = open_plan(folder)
    part = next((part for part in plan.populations.values() if agent in part.agents["agent"]), None)
    if part is None:
        numbers = plan.agents["agent"].to_list()
        raise InvalidInput(
            f"there is no agent {agent} in {folder}: its agents are {min(numbers)} to "
            f"{max(numbers)}, see agents.parquet there"
        )
    check_own_network(folder, plan, network)
    tensors, step = read_weights(folder, agent)
    table = part.agents.filter(part.agents["agent"] == agent)
    env = table["env"][0]
    announce_imports([env])
    spec = environment_spec(env, part.backend, part.settings.atari_protocol)
    population = make_population(table, part.settings, spec, torch.device("cpu"), network)
    return Policy(population, tensors, step)


def check_own_network(folder: Path, plan: Plan, network: NetworkFactory | None) -> None:
    """Refuse a run without the factory of its own that it needs, or with one too many."""
    if (plan.network is None) != (network is None):
        raise InvalidInput(
            f"the run in {folder} has no network of its own: leave network out"
            if plan.network is None
            else f"the run in {folder} has a network of its own, {plan.network}: give it from Python, network=..."
        )
