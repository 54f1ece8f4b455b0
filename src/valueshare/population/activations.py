"""The activations that a forward pass saves for its backward pass, counted without a batch of them in memory."""

import math

import torch
from torch import Tensor, nn

from valueshare.envs.base import EnvironmentSpec
from valueshare.population.networks import init_network, is_built_in, network_shape
from valueshare.population.state import Population, torch_dtype

SMALL_NETWORK = 256_000_000  # bytes of weights, times quantiles; the activations of a state take less
SMALL_OBSERVATION = 100_000  # numbers


def network_to_measure(population: Population) -> nn.Module:
    """One agent's network for `saved_bytes`: on the CPU if it is small and of this package, else on the meta device.

    On the meta device a network of any size takes no memory, but PyTorch imports its compiler to run it, which takes
    longer than everything else that a short command does.
    """
    weights = sum(p.nbytes for p in population.network.parameters())
    is_small = weights * max(1, *population.quantile_counts) <= SMALL_NETWORK
    is_small &= math.prod(population.env.network_shape) <= SMALL_OBSERVATION
    if not (is_small and is_built_in(population.factory)):
        return population.network
    return init_network(population.factory, network_shape(population.settings, population.env), 0.0, seed=0)


def saved_bytes(network: nn.Module, env: EnvironmentSpec, batch_size: int, quantiles: int) -> int:
    """Bytes that the forward pass of a batch saves, without weights; on the CPU, found from batches of one and two."""
    if next(network.parameters()).is_meta:
        return _saved_bytes(network, env, batch_size, quantiles)
    bytes_for_one, bytes_for_two = (_saved_bytes(network, env, states, quantiles) for states in (1, 2))
    # Some of it, like rearranged weights, does not grow with the batch.
    return bytes_for_one + (batch_size - 1) * (bytes_for_two - bytes_for_one)


def _saved_bytes(network: nn.Module, env: EnvironmentSpec, states: int, quantiles: int) -> int:
    saved = 0
    weights = {p.untyped_storage()._cdata for p in network.parameters()}

    def count(tensor: Tensor) -> Tensor:
        nonlocal saved
        saved += 0 if tensor.untyped_storage()._cdata in weights else tensor.nbytes
        return tensor

    device = next(network.parameters()).device
    inputs = [torch.zeros((states, *env.network_shape), dtype=torch_dtype(env.observation_dtype), device=device)]
    if quantiles:
        inputs.append(torch.zeros((states, quantiles), device=device))
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        network(*inputs)
    return saved
