"""The kernels for GPUs against each agent's own module in float64; and where they are used."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import stack_module_state

from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn import operators
from valueshare.nn.stacking import Linear, stacked_network
from valueshare.nn.torsos import NetworkShape
from valueshare.population.devices import training_on

AGENTS, BATCH, QUANTILES = 3, 5, 7
TOLERANCE = 5e-3  # of the largest number: TensorFloat-32 has 10 bits of mantissa, and there are up to five layers


def needs_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """Skip a test, with the reason, where there is no GPU."""
    skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
    marked: Callable[..., None] = pytest.mark.gpu(skipped(test))
    return marked


SHAPES = {
    "vectors": NetworkShape((6,), actions=5, hidden=(16, 18)),
    "frames": NetworkShape((4, 84, 84), actions=18, hidden=(64,), initialization="pytorch"),
    "odd frames": NetworkShape((3, 43, 50), actions=3, hidden=(33,), initialization="pytorch"),
    "small bools": NetworkShape((7, 10, 9), actions=6, hidden=(32,), initialization="pytorch"),
    "small bytes": NetworkShape((4, 9, 11), actions=6, hidden=(32,), initialization="pytorch"),
}


def observations(name: str) -> Tensor:
    shape = (AGENTS, BATCH, *SHAPES[name].observation)
    generator = torch.Generator().manual_seed(2)
    if name == "vectors":
        return torch.randn(shape, generator=generator)
    if name == "small bools":
        return torch.rand(shape, generator=generator) < 0.3
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def outputs_and_gradients(
    module: nn.Module, inputs: list[Tensor], weights: Tensor
) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Of a sum of the outputs with unequal weights."""
    outputs: Tensor = module(*inputs)
    (outputs * weights).sum().backward()  # type: ignore[no-untyped-call]
    return outputs.detach(), {name: p.grad for name, p in module.named_parameters()}


def assert_close(found: Tensor, expected: Tensor | None, what: str) -> None:
    assert expected is not None
    difference = (found.double().cpu() - expected).abs().max() / expected.abs().max()
    assert difference < TOLERANCE, (what, difference.item())
    assert expected.abs().max() > 0, what


@needs_gpu
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("algorithm", ["ib-dqn", "rdq", "ib-iqn"])
def test_a_population_on_a_gpu_has_each_agents_outputs_and_gradients(algorithm: str, name: str) -> None:
    torch.manual_seed(1)
    shape = SHAPES[name]
    modules = [ALGORITHMS[algorithm].build(shape, float(k)) for k in range(AGENTS)]
    inputs = [observations(name)]
    if algorithm == "ib-iqn":
        inputs.append(torch.rand(AGENTS, BATCH, QUANTILES))
    network = stacked_network(modules[0])
    assert network is not None
    stacked, buffers = stack_module_state(modules)
    device = torch.device("cuda")
    with training_on(device, tf32=True):
        leaves = {n: p.detach().to(device).requires_grad_() for n, p in stacked.items()}
        outputs = network(leaves, {n: b.to(device) for n, b in buffers.items()}, *(x.to(device) for x in inputs))
        weights = torch.linspace(-1, 2, outputs[0].numel(), dtype=torch.float64).reshape(outputs[0].shape)
        found = torch.autograd.grad((outputs * weights.to(device)).sum(), list(leaves.values()))
    for agent, module in enumerate(modules):
        alone = [x[agent].double() if x.is_floating_point() else x[agent] for x in inputs]
        expected, gradients = outputs_and_gradients(module.double(), alone, weights)
        assert_close(outputs[agent].detach(), expected, "outputs")
        for (parameter, gradient), ours in zip(gradients.items(), found, strict=True):
            assert_close(ours[agent], gradient, parameter)


@needs_gpu
def test_kernels_are_used_where_tensorfloat_32_is_allowed() -> None:
    weight = torch.zeros(2, 3, device="cuda")
    with training_on(weight.device, tf32=True):
        assert operators.available(weight)
        assert not operators.available(weight.double())
    with training_on(weight.device, tf32=False):
        assert not operators.available(weight)


def test_a_cpu_has_none() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert not operators.available(torch.zeros(2, 3))
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("outputs", [4, 6])  # 6 is padded to 8
def test_products_and_their_gradients(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of GPUs, on any device."""
    monkeypatch.setattr(operators, "_ops", lambda: _OnCPU)
    layers = [Linear(5, outputs).double() for _ in range(AGENTS)]
    stacked, _ = stack_module_state(layers)
    x = torch.randn(AGENTS, BATCH, 5, dtype=torch.float64, requires_grad=True)
    leaves = [stacked[name].detach().requires_grad_() for name in ("weight", "bias")]
    expected = torch.baddbmm(leaves[1].unsqueeze(1), x, leaves[0].mT)
    weights = torch.randn_like(expected)
    found = operators.affine(x, *leaves)
    torch.testing.assert_close(found, expected)
    inputs = [x, *leaves]
    ours, theirs = (torch.autograd.grad((y * weights).sum(), inputs) for y in (found, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


class _OnCPU:
    product_in_order = staticmethod(torch.bmm)
