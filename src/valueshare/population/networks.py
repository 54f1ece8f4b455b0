"""Networks of agents: built from a factory, one module for all agents, stacked weights."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from valueshare.envs.base import EnvironmentSpec
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.learning.randomness import stream_key
from valueshare.nn.stacking import stacked_network
from valueshare.nn.torsos import NetworkShape
from valueshare.population.compilation import TracedWhole
from valueshare.population.settings import TrainingSettings

# A network of one agent from (shape, k): an algorithm's own, or a user's.
NetworkFactory = Callable[[NetworkShape, float], nn.Module]
Tensors = dict[str, Tensor]
RESTORE_CODE = "restore the code of the environment, or of a custom network"


class Weights(NamedTuple):
    """Parameters and buffers of every agent by name, [P, ...] each."""

    parameters: Tensors
    buffers: Tensors


def load_weights(weights: Tensors, stored: Tensors, which: str) -> None:
    """Copy stored tensors into a network's, in place; refused if names or shapes differ."""
    if {name: value.shape for name, value in weights.items()} != {name: value.shape for name, value in stored.items()}:
        raise InvalidInput(f"the weights {which} do not fit the network: {RESTORE_CODE}")
    for name, value in weights.items():
        value.copy_(stored[name])


class PopulationForward:
    """Outputs of every agent's network on its own observations. Shapes: [P, B, ...] -> [P, B, ...].

    A network of layers that take stacked weights is called once. Any other goes through `vmap`, and on a CPU every
    network does where it is compiled: there, the operations of `vmap` cost nothing, and are in an order that the
    compiler fuses better.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network, self.stacked = network, stacked_network(network)
        self._traced = TracedWhole(self.outputs)

    def __call__(self, weights: Weights, observation: Tensor, tau: Tensor | None) -> Tensor:
        outputs = self.outputs if self.stacked is None else self._traced  # the compiler interprets a user's network
        return outputs(*weights, network_inputs(observation, tau), torch.compiler.is_compiling())

    def outputs(self, parameters: Tensors, buffers: Tensors, inputs: tuple[Tensor, ...], compiling: bool) -> Tensor:
        """The same, where PyTorch does not know by itself that it is `compiling`."""
        if self.stacked is not None and (inputs[0].is_cuda or not compiling):
            return self.stacked(parameters, buffers, *inputs)

        def one_agent(parameters: Tensors, buffers: Tensors, *inputs: Tensor) -> Tensor:
            outputs: Tensor = functional_call(self._network, (parameters, buffers), inputs)
            return outputs

        outputs: Tensor = vmap(one_agent)(parameters, buffers, *inputs)
        return outputs


def network_inputs(observation: Tensor, tau: Tensor | None) -> tuple[Tensor, ...]:
    """The arguments of a network: quantile networks have `tau` too."""
    return (observation,) if tau is None else (observation, tau)


def network_shape(settings: TrainingSettings, env: EnvironmentSpec) -> NetworkShape:
    """The sizes of one agent's network, and its initialization."""
    return NetworkShape(
        env.network_shape, env.actions, settings.hidden, settings.observation_scale, settings.initialization
    )


def is_built_in(factory: NetworkFactory) -> bool:
    """Whether a network is one of the algorithms' own, and not a user's."""
    return any(factory is algorithm.build for algorithm in ALGORITHMS.values())


def network_on_meta(factory: NetworkFactory, shape: NetworkShape, k: float) -> nn.Module:
    """One agent's network built on the meta device, where tensors have shapes and take no memory.

    A user's factory may do what needs numbers, like `.item()`: its network is then built as usual.
    That one, or parts that come from NumPy, are not on the meta device.
    """
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # PyTorch warns of stored weights that are not copied
            return init_network(factory, shape, k, seed=0)
    except Exception:
        if is_built_in(factory):
            raise
        return init_network(factory, shape, k, seed=0)


def stack_shapes(module: nn.Module, agents: int) -> tuple[Tensors, Tensors]:
    """`stack_module_state` of as many such modules on the meta device, where that imports PyTorch's compiler."""
    named = dict(module.named_parameters()), dict(module.named_buffers())
    parameters, buffers = ({n: v.new_empty((agents, *v.shape)) for n, v in tensors.items()} for tensors in named)
    return parameters, buffers


def shared_network(factory: NetworkFactory, shape: NetworkShape, device: torch.device) -> nn.Module:
    """The module that all agents share, its weights on the meta device.

    A user's module may hold tensors that are neither parameters nor buffers: where agents learn,
    they need their numbers, so it is built as usual first.
    """
    if device.type == "meta" or is_built_in(factory):
        return network_on_meta(factory, shape, 0.0).to("meta")
    return init_network(factory, shape, 0.0, seed=0).to("meta")


def init_network(factory: NetworkFactory, shape: NetworkShape, k: float, seed: int) -> nn.Module:
    """One agent's network, its weights a function of its seed for any factory.

    The CPU's global generator is seeded, and left as it was found: a module that knows nothing of
    generators draws the right numbers too. Those of GPUs are not touched.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_key(seed, "weights"))
        return factory(shape, k)
