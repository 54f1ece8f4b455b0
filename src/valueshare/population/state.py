"""A population: the constants of its agents (`Population`), and their variables (`State`).

`Population` is fixed: the settings, and the hyperparameters that differ per agent, as [P] tensors.
`State` is everything that changes: stacked tensors with the agents first, updated in place, so that
a checkpoint is a flat dictionary of them and a CUDA graph can refer to them.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.func import stack_module_state

from valueshare.envs.base import EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import Algorithm, LossSettings, QuantileCounts, algorithm_named
from valueshare.learning.optim import Moments, zero_moments
from valueshare.learning.randomness import stream_keys
from valueshare.population.gradients import LossGradient
from valueshare.population.networks import (
    NetworkFactory,
    PopulationForward,
    Tensors,
    Weights,
    init_network,
    network_on_meta,
    network_shape,
    shared_network,
    stack_shapes,
)
from valueshare.population.settings import PER_AGENT, TrainingSettings
from valueshare.replay import transitions
from valueshare.replay.transitions import Transitions

# The relative action gap divides by the mean of this many batches' action-values.
ACTION_VALUE_WINDOW = 1_000
VALUE_METRICS = ("action_gap", "q_mean", "q_norm", "z_mean", "z_norm")


class Keys(NamedTuple):
    """One key per agent for every stream of random numbers, [P] each."""

    explore: Tensor  # whether to explore
    action: Tensor  # the random action
    replay: Tensor  # transitions to learn from
    quantiles: Tensor  # quantiles to learn at
    acting_quantiles: Tensor
    measure: Tensor  # transitions to measure on
    measure_quantiles: Tensor
    evaluation: Tensor  # exploration in evaluation
    evaluation_action: Tensor
    evaluation_quantiles: Tensor


@dataclass(frozen=True)
class Population:
    """The fixed part of P agents."""

    agents: pl.DataFrame  # P rows of the table
    settings: TrainingSettings
    env: EnvironmentSpec  # the same for all agents but for its name, which is in the table
    algorithm: Algorithm
    network: nn.Module  # one agent's, without weights: on the meta device
    forward: PopulationForward  # (weights, observation, tau) -> outputs of all agents
    differentiate: LossGradient
    factory: NetworkFactory
    hyperparameters: Tensors  # [P] each: k, and those of `AgentSettings`, by name
    keys: Keys
    device: torch.device

    @property
    def size(self) -> int:
        """P. Not the height of the table: compiled steps ask for it, and cannot trace Polars."""
        return self.hyperparameters["k"].shape[0]

    @property
    def seeds(self) -> list[int]:
        return self.agents["seed"].to_list()

    @property
    def replay_on_host(self) -> bool:
        """Whether replay is on the host, which then samples batches for the device that learns."""
        return self.settings.replay_device in ("cpu", "disk")

    @property
    def quantile_counts(self) -> QuantileCounts:
        """Quantile samples per state; 0 for algorithms without."""
        settings = self.settings
        if not self.algorithm.is_quantile:
            return QuantileCounts()
        return QuantileCounts(settings.quantiles, settings.target_quantiles, settings.acting_quantiles)

    @property
    def loss_settings(self) -> LossSettings:
        values: dict[str, Any] = {
            name: self.hyperparameters[name] if name in PER_AGENT else getattr(self.settings, name)
            for name in LossSettings._fields
        }
        return LossSettings(**values)

    def q_values(self, weights: Weights, observation: Tensor, tau: Tensor | None) -> Tensor:
        """Action-values. Shapes: observation [P, B, ...], tau [P, B, K] or None -> [P, B, A]."""
        return self.algorithm.q_values(self.forward(weights, observation, tau))


class State(NamedTuple):
    """The part of a population that changes while it learns: tensors only."""

    online: Weights
    target: Tensors  # parameters; buffers are shared with the online network and constant
    moments: Moments
    replay: Transitions
    step: Tensor  # []  steps taken so far
    updates: Tensor  # []
    diverged_at: Tensor  # [P]  the step at which an agent was frozen, -1 while it learns
    recent_action_values: Tensor  # [P, ACTION_VALUE_WINDOW]  mean action-value of the last batches, a ring
    metric_sums: Tensor  # [P, VALUE_METRICS]  sums since the last evaluation
    metric_count: Tensor  # []  number of these sums
    train_returns: Tensor  # [P]  sum over training episodes since the last evaluation, unscaled
    train_episodes: Tensor  # [P]  how many finished


def make_population(
    agents: pl.DataFrame,
    settings: TrainingSettings,
    env: EnvironmentSpec | Sequence[EnvironmentSpec],
    device: torch.device,
    network: NetworkFactory | None = None,
) -> Population:
    """The fixed part of a population from its rows of the table.

    Agents of several environments give the specs of all: they must be equal but for the name.
    """
    specs = [env] if isinstance(env, EnvironmentSpec) else list(env)
    check_alike(specs)
    names = agents["algorithm"].unique().sort().to_list()
    algorithms = [algorithm_named(name) for name in names]
    if len({a.population_key for a in algorithms}) != 1:
        raise InvalidInput(f"{', '.join(names)} cannot share a population: see populations(table)")
    if agents["env"].n_unique() != len(specs):
        raise InvalidInput(
            f"{agents['env'].n_unique()} environments and {len(specs)} specs: give one spec per environment"
        )
    algorithm = algorithms[0]
    factory = network or algorithm.build

    def column(name: str) -> Tensor:
        return torch.tensor(agents[name].to_list(), dtype=torch.float32, device=device)

    seeds = agents["seed"].to_list()
    module = shared_network(factory, network_shape(settings, specs[0]), device)
    forward = PopulationForward(module)
    return Population(
        agents=agents,
        settings=settings,
        env=specs[0],
        algorithm=algorithm,
        network=module,
        forward=forward,
        differentiate=LossGradient(forward, algorithm),
        factory=factory,
        hyperparameters={name: column(name) for name in ("k", *PER_AGENT)},
        keys=Keys(*(stream_keys(seeds, name, device) for name in Keys._fields)),
        device=device,
    )


def check_alike(specs: Sequence[EnvironmentSpec]) -> None:
    """Refuse environments that cannot share a population."""
    for spec in specs[1:]:
        if replace(spec, name=specs[0].name) != specs[0]:
            raise InvalidInput(
                f"{specs[0].name} and {spec.name} cannot share a population: their observations, "
                "actions, limits or protocols differ; train them apart"
            )


def initial_state(population: Population, scratch: Path | None = None) -> State:
    """A population before its first step; each agent's weights are drawn from its own seed.

    On the meta device these are shapes alone, and nothing is drawn or allocated.
    `scratch` is the folder of a replay that is on disk; None: that of temporary files.
    """
    p, settings, env, device = (population.size, population.settings, population.env, population.device)
    on_host = population.replay_on_host and device.type != "meta"
    on_disk = on_host and settings.replay_device == "disk"
    folder = (scratch or Path(tempfile.gettempdir())) if on_disk else None
    factory, shape = population.factory, network_shape(settings, env)
    modules = [
        network_on_meta(factory, shape, k).to("meta")
        if device.type == "meta"
        else init_network(factory, shape, k, seed)
        for k, seed in zip(population.agents["k"].to_list(), population.seeds, strict=True)
    ]
    stacked, buffers = stack_shapes(modules[0], p) if device.type == "meta" else stack_module_state(modules)
    parameters = {name: _transposed_layout(value.detach().to(device)) for name, value in stacked.items()}

    def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return State(
        online=Weights(parameters, {name: value.to(device) for name, value in buffers.items()}),
        target={name: value.clone() for name, value in parameters.items()},
        moments=zero_moments(parameters),
        replay=transitions.empty(
            p,
            settings.replay_transitions,
            env.observation_shape,
            torch_dtype(env.observation_dtype),
            stack=env.stack,
            rows=replay_rows(settings, env.stack),
            device="cpu" if on_host else device,
            folder=folder,
        ),
        step=zeros(),
        updates=zeros(),
        diverged_at=torch.full((p,), -1, device=device),
        recent_action_values=zeros(p, ACTION_VALUE_WINDOW, dtype=torch.float32),
        metric_sums=zeros(p, len(VALUE_METRICS), dtype=torch.float32),
        metric_count=zeros(),
        train_returns=zeros(p, dtype=torch.float64),
        train_episodes=zeros(p),
    )


def replay_rows(settings: TrainingSettings, stack: int) -> int:
    """Rows of replay per agent: enough for its capacity, or for all that a run can write if that is less.

    So a run shorter than the capacity evicts nothing that a longer run would keep, and can be extended. Every step
    writes a row, the end of an episode another one, and a phase begins with one. Stacked frames are large: rows are for
    episodes of eight steps or more on average.
    """
    ends = settings.steps // 8 if stack else settings.steps
    most = settings.steps + ends + settings.phases + stack + 4
    return min(transitions.default_rows(settings.replay_capacity, stack), most)


def with_delayed_actor(state: State) -> State:
    """A state that shares all tensors but for the online weights: a copy, with which agents act."""
    online = state.online
    copies = {name: value.clone() for name, value in online.parameters.items()}
    return state._replace(online=Weights(copies, online.buffers))


def state_dict(state: State) -> Tensors:
    """Every tensor of a state by name; of replay the cursors only."""
    named = {
        ".".join(path): value
        for path, value in _leaves(state, ())
        if path[0] != "replay" or path[1] in ("rows", "written", "oldest")
    }
    return dict(sorted(named.items()))


def load_state_dict_(state: State, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors of a `state_dict` into a state, in place."""
    current = state_dict(state)
    if current.keys() != tensors.keys():
        other = ", ".join(sorted(current.keys() ^ tensors.keys()))
        raise InvalidInput(f"this checkpoint holds other tensors ({other}): resume with the run's own network")
    for name, tensor in current.items():
        tensor.copy_(tensors[name])


def all_tensors(state: State) -> list[Tensor]:
    """Every tensor of a state, with those of replay."""
    return [value for _, value in _leaves(state, ())]


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _transposed_layout(weight: Tensor) -> Tensor:
    """Weights whose matrices lie in memory as their gradients will on a CPU: transposed.

    The gradient of x Wᵀ comes as the transpose of a product. In the weights' own layout it is read
    in one pass by the optimiser; in another, a compiled update takes twice as long. Moments and
    targets follow, and checkpoints do not see it. Shapes: [P, out, in] -> [P, out, in].
    """
    matrices = weight.ndim == 3 and weight.device.type == "cpu"
    return weight.mT.contiguous().mT if matrices else weight


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    if isinstance(node, Tensor):
        yield path, node
        return
    children = node if isinstance(node, dict) else node._asdict()
    for name, child in children.items():
        yield from _leaves(child, (*path, name))
