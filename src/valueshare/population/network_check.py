"""Checks of a caller's own network before a run: many mistakes would train without an error."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn.parameter import is_lazy

from valueshare.errors import InvalidInput, one_line
from valueshare.learning.algorithms import algorithm_named
from valueshare.nn.torsos import NetworkShape
from valueshare.population.networks import NetworkFactory, PopulationForward, Weights, network_on_meta, network_shape
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import torch_dtype

Sizes = dict[str, tuple[int, ...]]  # shapes of parameters and buffers, by name

BATCH = 2  # observations that the check gives to a network
RTOL = 1e-3  # relative to the largest output, between one agent's own pass and its pass in a population
ATOL = 1e-6  # rounding of outputs of order one in float32


def check_network_shapes(spec: PopulationSpec, network: NetworkFactory) -> None:
    """Refuse a factory whose result is not a network or differs with k, without allocating memory."""
    shape = network_shape(spec.settings, spec.env_spec)
    ks = spec.agents["k"].unique(maintain_order=True).to_list()
    shared, *sizes = (_sizes(_make_module(network, shape, k, on_meta=True)) for k in (0.0, *ks))
    for k, sizes_at_k in zip(ks, sizes, strict=True):
        _check_same(k, sizes_at_k, shared)


def check_network(spec: PopulationSpec, network: NetworkFactory) -> None:
    """Refuse a network that does not work in a population, by a forward pass for every k.

    All agents share one module, that of k = 0, and differ in its weights and buffers. So these have
    the same names and shapes for every k and hold all that k does; and a forward pass changes none
    of them and draws no random numbers. The outputs are those that the algorithm reads.
    """
    shape = network_shape(spec.settings, spec.env_spec)
    ks = spec.agents["k"].unique(maintain_order=True).to_list()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # the same weights every time
        shared, *modules = (_make_module(network, shape, k) for k in (0.0, *ks))
    inputs = _inputs(spec)
    for k, module in zip(ks, modules, strict=True):
        _check_same(k, _sizes(module), _sizes(shared))
        outputs = _in_population(shared, module, inputs)
        _check_outputs(spec, outputs)
        alone = module(*inputs)
        # Rounding of a mean that k multiplies is multiplied too.
        if (outputs - alone).abs().max() > RTOL * alone.abs().max() + ATOL * (1 + k):
            raise InvalidInput(
                f"the network depends on k = {k:g} through state that is not a buffer: keep k "
                "in a buffer, as MeanExpansion does"
            )
        if k and torch.equal(_with_random_weights(module, inputs), _with_random_weights(shared, inputs)):
            raise InvalidInput(
                f"the network ignores k (same output for k = {k:g} as for k = 0): end it with "
                "MeanExpansion(k), or give k = 0 alone"
            )


@contextmanager
def _refuse(action: str, hint: str) -> Iterator[None]:
    """Turn any exception of a third-party network into one line."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"the network cannot be {action} ({type(error).__name__}: {one_line(error)}): {hint}"
        ) from error


def _make_module(network: NetworkFactory, shape: NetworkShape, k: float, *, on_meta: bool = False) -> nn.Module:
    """One agent's module, if it is one; its tensors have shapes, and values unless it is built on the meta device.

    A module that a factory keeps between calls has no values: shapes are found on the meta device first.
    """
    with _refuse(f"made for k = {k:g}", "write a function of (shape, k) that returns one agent's module"):
        module: object = network_on_meta(network, shape, k) if on_meta else network(shape, k)
    if not isinstance(module, nn.Module):
        raise InvalidInput(
            f"the network's function returns {type(module).__name__} for k = {k:g}: return one "
            "agent's module, an nn.Module"
        )
    for name, value in _tensors(module):
        if is_lazy(value):
            raise InvalidInput(
                f"the network's {name} has no shape yet, as in LazyLinear: write the sizes, like "
                "nn.Linear(shape.observation[0], 64)"
            )
        if value.is_meta and not on_meta:
            raise InvalidInput(
                f"the network's {name} has no values: sizes are found on PyTorch's meta device "
                "first, so build every module and tensor anew in each call"
            )
    return module


@torch.no_grad()
def _with_random_weights(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Outputs with random weights, the same for every module: a last layer may begin with zeros."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(value.shape, generator=generator, dtype=value.dtype)
        for name, value in module.named_parameters()
    }
    outputs: Tensor = functional_call(module, weights, inputs)
    return outputs


def _check_same(k: float, sizes: Sizes, shared: Sizes) -> None:
    if sizes != shared:
        raise InvalidInput(
            f"the network has other weights or buffers for k = {k:g} than for k = 0: build the "
            "same modules for every k (MeanExpansion(0) is there and changes nothing)"
        )


def _sizes(module: nn.Module) -> Sizes:
    return {name: tuple(value.shape) for name, value in _tensors(module)}


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _inputs(spec: PopulationSpec) -> tuple[Tensor, ...]:
    """Observations [B, ...], and quantiles [B, N] for the algorithms that learn at some."""
    env = spec.env_spec
    count = BATCH * math.prod(env.network_shape)
    values = torch.linspace(1, 2, count).reshape(BATCH, *env.network_shape)
    observation = values.to(torch_dtype(env.observation_dtype))
    if not algorithm_named(spec.algorithm).is_quantile:
        return (observation,)
    return observation, torch.full((BATCH, _quantiles(spec)), 0.5)


def _in_population(shared: nn.Module, module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Outputs [B, ...] of one agent, by the module that all agents share."""
    weights = Weights(*stack_module_state([module]))
    before = {name: value.clone() for name, value in weights.buffers.items()}
    observation, *taus = (value.unsqueeze(0) for value in inputs)
    sizes = ", ".join(["B", *map(str, observation.shape[2:])])
    given = f"forward gets observations of shape [{sizes}]{' and quantiles of shape [B, N]' if taus else ''}"
    with _refuse("run as a population", f"{given}; see docs/training.md, 'Custom networks'"), torch.no_grad():
        try:
            outputs = PopulationForward(shared)(weights, observation, taus[0] if taus else None)[0]
        except RuntimeError as error:
            if "random operation" not in str(error):
                raise
            raise InvalidInput(
                "the network draws random numbers in forward, as Dropout does: remove that layer"
            ) from error
    for name, value in before.items():
        if not torch.equal(value, weights.buffers[name]):
            raise InvalidInput(
                f"the network changes its buffer {name} in forward, as BatchNorm does: leave out "
                "what does (LayerNorm has no such state)"
            )
    return outputs


def _check_outputs(spec: PopulationSpec, outputs: Tensor) -> None:
    actions, algorithm = spec.env_spec.actions, algorithm_named(spec.algorithm)
    quantiles = (_quantiles(spec),) if algorithm.is_quantile else ()
    wanted = (BATCH, *quantiles, actions + algorithm.extra_outputs)
    if tuple(outputs.shape) != wanted:
        raise InvalidInput(
            f"the network's outputs have shape {list(outputs.shape)} where {list(wanted)} is "
            f"wanted: {spec.algorithm} reads {algorithm.outputs_description}"
        )


def _quantiles(spec: PopulationSpec) -> int:
    return spec.env_spec.actions + 1  # other than the actions, so that the two axes cannot be mistaken
