"""Trained agents of a run folder: their weights, and policies made of them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor

from valueshare.envs import announce_imports, environment_spec
from valueshare.errors import InvalidInput
from valueshare.population.checkpoints.loading import read_newest_state
from valueshare.population.networks import NetworkFactory
from valueshare.population.policy import Policy
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import make_population
from valueshare.records import AGENTS, CheckpointPaths
from valueshare.runs.locks import refuse_if_trained
from valueshare.runs.plan import Plan
from valueshare.runs.run_folder import open_plan
from valueshare.runs.storage.locations import Location
from valueshare.text import resume_command

T = TypeVar("T")


def read_policy(
    folder: Path,
    agent: int,
    network: NetworkFactory | None = None,
    before_import: Callable[[Sequence[str]], None] = announce_imports,
) -> Policy:
    """An agent of the run in a folder, as of its last checkpoint.

    `network` makes the custom network, if the run has one. `before_import` gets the name of the environment before a
    module that it names is imported: a line is printed.
    """
    plan = open_plan(folder)
    spec = population_of(plan, agent, folder)
    check_network_factory(folder, plan, network)
    weights, step = _agent_weights(folder, spec, agent)
    table = spec.agents.filter(spec.agents["agent"] == agent)
    env = table["env"][0]
    before_import([env])
    env_spec = environment_spec(env, spec.backend, spec.settings.atari_protocol)
    population = make_population(table, spec.settings, env_spec, torch.device("cpu"), network)
    return Policy(population, weights, step)


def read_weights(folder: Path, agent: int) -> tuple[dict[str, Tensor], int]:
    """The state dictionary of one agent's network as of its last checkpoint, and the step of that."""
    return _agent_weights(folder, population_of(open_plan(folder), agent, folder), agent)


def _agent_weights(folder: Path, spec: PopulationSpec, agent: int) -> tuple[dict[str, Tensor], int]:
    row = spec.agents["agent"].index_of(agent)
    assert row is not None
    weights, step = read_newest(folder, spec.name, agent, lambda file: stored_weights(file, [row]))
    return {name: tensor[0] for name, tensor in weights.items()}, step


def read_newest(
    folder: Path, population: str, agent: int, read: Callable[[Path], T], *, warn: bool = True, remedy: str = ""
) -> T:
    """The result of `read` for the newest state file of an agent's population, which may be training.

    Damaged ones are skipped, which is logged as a warning unless `warn` is off; it ends with the `remedy`.
    """
    result = read_newest_state(CheckpointPaths(folder, population), read, warn=warn, remedy=remedy)
    if result is None:
        refuse_if_trained(folder)  # until its first checkpoint
        raise InvalidInput(f"agent {agent} has no checkpoint: {resume_command(folder)} first")
    return result


def policy_step(folder: Path, population: str) -> int | None:
    """The step of the policies of a population; None without an intact checkpoint."""

    def step(file: Path) -> int:
        with safe_open(file, "pt") as stored:
            return int(stored.get_tensor("step"))

    with suppress(InvalidInput):
        return read_newest_state(CheckpointPaths(folder, population), step, warn=False)
    return None


def stored_weights(file: Path, rows: Sequence[int]) -> tuple[dict[str, Tensor], int]:
    """The weights of some agents of a population in its state file, by their rows there, and the step of that."""
    with safe_open(file, "pt") as stored:
        weights = {}
        for name in stored.keys():  # noqa: SIM118 (it is not a dictionary)
            for prefix in ("online.parameters.", "online.buffers."):
                if name.startswith(prefix):
                    agents = stored.get_slice(name)
                    weights[name.removeprefix(prefix)] = torch.stack([agents[row] for row in rows])  # reads only these
        return weights, int(stored.get_tensor("step"))


def population_of(plan: Plan, agent: int, location: Location) -> PopulationSpec:
    """The population of an agent of the run at a location."""
    for spec in plan.populations.values():
        if agent in spec.agents["agent"]:
            return spec
    raise unknown_agent(plan, agent, location)


def unknown_agent(plan: Plan, agent: int, location: Location) -> InvalidInput:
    numbers = plan.agents["agent"].to_list()
    known = f"{min(numbers)} to {max(numbers)}, see {AGENTS} there"
    return InvalidInput(f"there is no agent {agent} in {location}: its agents are {known}")


def check_network_factory(folder: Path, plan: Plan, network: NetworkFactory | None) -> None:
    """Refuse a run of a custom network without its factory, and a factory for any other run."""
    if (plan.network is None) != (network is None):
        raise InvalidInput(
            f"the run in {folder} uses a built-in network: do not pass `network`"
            if plan.network is None
            else f"the run in {folder} uses a custom network, {plan.network}: pass it from Python, network=..."
        )
