"""Networks called with the weights of all agents at once, against each agent's module alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import stack_module_state

from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn.heads import plain_network
from valueshare.nn.stacking import Linear, stacked_network
from valueshare.nn.torsos import NetworkShape

AGENTS, BATCH, QUANTILES = 3, 5, 4
SHAPE = NetworkShape((6,), actions=4, hidden=(8, 7), observation_scale=0.5)
FRAMES = NetworkShape((4, 40, 37), actions=4, hidden=(8,))  # the network of the Nature DQN
SMALL = NetworkShape((3, 10, 9), actions=4, hidden=(8,))  # that of MinAtar


@pytest.mark.parametrize("shape", [SHAPE, FRAMES, SMALL], ids=["vectors", "frames", "small"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_agent_gets_what_its_own_module_returns(name: str, shape: NetworkShape) -> None:
    torch.manual_seed(1)
    modules = [ALGORITHMS[name].build(shape, float(k)) for k in range(AGENTS)]
    if len(shape.observation) == 1:
        obs = torch.randn(AGENTS, BATCH, 6)
    else:
        obs = torch.randint(0, 256, (AGENTS, BATCH, *shape.observation), dtype=torch.uint8)
    inputs = [obs]
    if ALGORITHMS[name].is_quantile:
        inputs.append(torch.rand(AGENTS, BATCH, QUANTILES))
    network = stacked_network(modules[0].to("cpu"))
    assert network is not None
    outputs = network(*stack_module_state(modules), *inputs)
    for i, module in enumerate(modules):
        alone: Tensor = module(*(values[i] for values in inputs))
        torch.testing.assert_close(outputs[i], alone)


def test_the_module_has_its_own_weights_again() -> None:
    module = plain_network(SHAPE)
    before = dict(module.named_parameters())
    network = stacked_network(module)
    assert network is not None
    weights, buffers = stack_module_state([plain_network(SHAPE) for _ in range(AGENTS)])
    network(weights, buffers, torch.zeros(AGENTS, BATCH, 6))
    with pytest.raises(RuntimeError):  # observations of the wrong size
        network(weights, buffers, torch.zeros(AGENTS, BATCH, 5))
    assert all(value is before[name] for name, value in module.named_parameters())


def test_modules_with_other_layers_are_left_to_vmap() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = plain_network(SHAPE)

    class Changed(Linear):
        pass

    shared = Linear(6, 6)
    assert stacked_network(Own()) is None
    assert stacked_network(nn.Sequential(Changed(6, 4))) is None
    assert stacked_network(nn.Sequential(nn.Linear(6, 4))) is None  # takes no stacked weights
    assert stacked_network(nn.Sequential(shared, shared)) is None
    assert stacked_network(nn.Sequential(Linear(6, 6), nn.ReLU(), Linear(6, 4))) is not None
