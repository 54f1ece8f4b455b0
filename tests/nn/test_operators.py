"""The kernels for GPUs against each agent's own module in float64; and where they are used."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import stack_module_state
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from valueshare.envs.base import EnvironmentSpec
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn import operators, plain_operators
from valueshare.nn.kernel_check import KernelMismatch, check_kernels
from valueshare.nn.stacking import Linear, stacked_network
from valueshare.nn.torsos import NetworkShape
from valueshare.population import engine
from valueshare.population.agents import agent_table
from valueshare.population.devices import training_on
from valueshare.population.engine import leave_out_failing_kernels
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import initial_state, make_population

AGENTS, BATCH, QUANTILES = 3, 5, 7
MANY = 40  # states, of whose gradient one sign before a ReLU is a small part
TF32 = 2e-3  # relative to the largest number: TensorFloat-32 has 10 bits of mantissa


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHAPES = {
    "vectors": NetworkShape((6,), actions=5, hidden=(16, 20)),
    "matrices": NetworkShape((2, 3), actions=5, hidden=(24, 16), observation_scale=0.5),
    "three layers": NetworkShape((6,), actions=5, hidden=(16, 12, 20)),
    "unaligned": NetworkShape((6,), actions=5, hidden=(16, 18)),  # 18 is padded to 20 in products
    "frames": NetworkShape((4, 84, 84), actions=18, hidden=(64,), initialization="pytorch"),
    "odd frames": NetworkShape((3, 43, 50), actions=3, hidden=(36,), initialization="pytorch"),
    "small bools": NetworkShape((7, 10, 9), actions=6, hidden=(32,), initialization="pytorch"),
    "small bytes": NetworkShape((4, 9, 11), actions=6, hidden=(32,), initialization="pytorch"),
}


def observations(name: str, batch: int = BATCH) -> Tensor:
    shape = (AGENTS, batch, *SHAPES[name].observation)
    generator = torch.Generator().manual_seed(2)
    if len(SHAPES[name].observation) < 3:
        return torch.randn(shape, generator=generator)
    if name == "small bools":
        return torch.rand(shape, generator=generator) < 0.3
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def inputs_of(algorithm: str, name: str) -> list[Tensor]:
    """In float64, but for bytes and bools."""
    generator = torch.Generator().manual_seed(5)
    observation = observations(name)
    quantiles = torch.rand(AGENTS, BATCH, QUANTILES, dtype=torch.float64, generator=generator)
    exact = observation.double() if observation.is_floating_point() else observation
    return [exact, quantiles] if algorithm == "ib-iqn" else [exact]


def outputs_and_gradients(
    module: nn.Module, inputs: list[Tensor], weights: Tensor
) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Of a sum of the outputs with unequal weights."""
    outputs: Tensor = module(*inputs)
    (outputs * weights).sum().backward()  # type: ignore[no-untyped-call]
    return outputs.detach(), {name: p.grad for name, p in module.named_parameters()}


def assert_close(
    found: Tensor, expected: Tensor | None, what: str, tolerance: float = TF32, order: float = torch.inf
) -> None:
    """In the norm of that order: the largest number, or 2."""
    assert expected is not None
    size, difference = (
        torch.linalg.vector_norm(value, order) for value in (expected.cpu(), found.double().cpu() - expected.cpu())
    )
    assert size > 0, what
    assert difference < tolerance * size, (what, (difference / size).item())


# channels, outputs, kernel, stride, height, width; bytes or not
LAYERS = [
    (4, 32, 8, 4, 84, 84, True),
    (32, 64, 4, 2, 20, 20, False),
    (64, 64, 3, 1, 9, 9, False),
    (3, 17, 6, 3, 19, 22, True),
    (5, 9, 4, 2, 11, 9, False),
    (7, 16, 3, 1, 10, 9, False),
]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions_on_a_gpu(layer: tuple[int, int, int, int, int, int, bool]) -> None:
    channels, outputs, kernel, stride, height, width, in_bytes = layer
    torch.manual_seed(3)
    scale = 1 / 255 if in_bytes else 1.0
    if in_bytes:  # channels first in memory, as replay has them
        image = torch.randint(0, 256, (AGENTS, BATCH, channels, height, width), dtype=torch.uint8).movedim(2, -1)
    else:
        image = torch.randn(AGENTS, BATCH, height, width, channels)
    weight = torch.randn(AGENTS, outputs, channels, kernel, kernel) / (kernel * channels**0.5)
    bias = torch.randn(AGENTS, outputs)
    exact = [
        (image.double() * scale).requires_grad_(),
        weight.double().requires_grad_(),
        bias.double().requires_grad_(),
    ]
    images = exact[0].movedim(-1, 2)
    products = [functional.conv2d(x, w, b, stride) for x, w, b in zip(images, *exact[1:], strict=True)]
    expected = torch.stack(products).movedim(2, -1)  # without the ReLU

    x, w, b = (value.cuda().requires_grad_(value.is_floating_point()) for value in (image, weight, bias))
    found = operators.convolve(x, w, b, stride, scale)
    assert_close(found.detach(), expected.detach().relu(), "outputs")
    gradient = torch.randn_like(found)
    of_products = (gradient * (found > 0)).double().cpu()  # with the ReLU where it is on the GPU
    for name, ours, theirs in zip(
        ("weight", "bias", "image"),
        torch.autograd.grad(found, [w, b] if in_bytes else [w, b, x], gradient),
        torch.autograd.grad(expected, [*exact[1:], exact[0]], of_products),
        strict=False,  # bytes have no gradient
    ):
        assert_close(ours, theirs, name)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("quantiles", "features"), [(64, 3136), (7, 70), (32, 128), (200, 70)])
def test_quantile_features_on_a_gpu(quantiles: int, features: int) -> None:
    torch.manual_seed(4)
    cosines = torch.rand(AGENTS, BATCH, quantiles, 64) * 2 - 1
    inputs = [
        torch.randn(AGENTS, features, 64) / 8,
        torch.randn(AGENTS, features),
        torch.randn(AGENTS, BATCH, features),
    ]
    weight, bias, x = (value.double().requires_grad_() for value in inputs)
    embedding = torch.einsum("pbti,pfi->pbtf", cosines.double(), weight) + bias[:, None, None]
    expected = x.unsqueeze(2) * embedding.relu()

    leaves = [value.cuda().requires_grad_() for value in inputs]
    found = operators.quantile_features(cosines.cuda(), *leaves)
    assert_close(found.detach(), expected.detach(), "outputs")
    gradient = torch.randn_like(found)
    on = (found.detach() != 0).double().cpu()  # the ReLU as it is on the GPU
    ours = torch.autograd.grad(found, leaves, gradient)
    of_exact = gradient.double().cpu() * on
    theirs = torch.autograd.grad(x.unsqueeze(2) * embedding, [weight, bias, x], of_exact)
    for name, a, b in zip(("weight", "bias", "features"), ours, theirs, strict=True):
        assert_close(a, b, name)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("rows", "hidden", "outputs"), [(2048, 512, 18), (1, 64, 1), (70, 36, 33)])
def test_streams_on_a_gpu(rows: int, hidden: int, outputs: int) -> None:
    torch.manual_seed(4)
    inputs = [
        torch.randn(AGENTS, rows, 8),
        torch.randn(AGENTS, hidden, 8) / 8**0.5,
        torch.randn(AGENTS, hidden),
        torch.randn(AGENTS, outputs, hidden) / hidden**0.5,
        torch.randn(AGENTS, outputs),
    ]
    x, hidden_weight, hidden_bias, weight, bias = (value.double().requires_grad_() for value in inputs)
    leaves = [value.cuda().requires_grad_() for value in inputs]
    with training_on(torch.device("cuda"), tf32=True):
        found = operators.stream(leaves[0], (leaves[1], leaves[2]), (leaves[3], leaves[4]))
        # The ReLU as it is on the GPU, where TensorFloat-32 changes signs.
        on = (torch.bmm(leaves[0], leaves[1].mT) + leaves[2].unsqueeze(1) > 0).double().cpu()
        gradient = torch.randn_like(found)
        ours = torch.autograd.grad(found, leaves, gradient)
    numbers = (torch.bmm(x, hidden_weight.mT) + hidden_bias.unsqueeze(1)) * on
    expected = torch.baddbmm(bias.unsqueeze(1), numbers, weight.mT)
    assert_close(found.detach(), expected.detach(), "outputs")
    theirs = torch.autograd.grad(expected, [x, hidden_weight, hidden_bias, weight, bias], gradient.double().cpu())
    for name, a, b in zip(("x", "hidden weight", "hidden bias", "weight", "bias"), ours, theirs, strict=True):
        assert_close(a, b, name)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("rows", "inputs", "features", "hidden", "outputs"),
    [(128, 8, 256, 256, 4), (1, 3, 64, 64, 1), (5, 8, 256, 256, 4), (70, 20, 100, 36, 33), (200, 32, 40, 132, 18)],
)
def test_networks_of_two_layers_on_a_gpu(rows: int, inputs: int, features: int, hidden: int, outputs: int) -> None:
    torch.manual_seed(4)
    tensors = [
        torch.randn(AGENTS, rows, inputs),
        torch.randn(AGENTS, features, inputs) / inputs**0.5,
        torch.randn(AGENTS, features),
        torch.randn(AGENTS, hidden, features) / features**0.5,
        torch.randn(AGENTS, hidden),
        torch.randn(AGENTS, outputs, hidden) / hidden**0.5,
        torch.randn(AGENTS, outputs),
    ]
    x, weight1, bias1, weight2, bias2, weight3, bias3 = (value.double().requires_grad_() for value in tensors)
    on_gpu = [value.cuda() for value in tensors]
    layers = [value.requires_grad_() for value in on_gpu[1:]]
    with training_on(torch.device("cuda"), tf32=True):
        first = operators.UncomputedFeatures(on_gpu[0], layers[0], layers[1])
        found = operators.mlp(first, (layers[2], layers[3]), (layers[4], layers[5]))
        with torch.no_grad():
            acting = operators.mlp(first, (layers[2], layers[3]), (layers[4], layers[5]))
            # The ReLUs as they are on the GPU, where TensorFloat-32 changes signs.
            kept = [units.double().cpu() for units in torch.ops.valueshare.mlp(on_gpu[0], *layers, True)[1:]]
        gradient = torch.randn_like(found)
        ours = torch.autograd.grad(found, layers, gradient)
    numbers = torch.baddbmm(bias1.unsqueeze(1), x, weight1.mT) * (kept[0] > 0)
    numbers = torch.baddbmm(bias2.unsqueeze(1), numbers, weight2.mT) * (kept[1] > 0)
    expected = torch.baddbmm(bias3.unsqueeze(1), numbers, weight3.mT)
    assert_close(found.detach(), expected.detach(), "outputs")
    assert_close(acting, found.detach().double().cpu(), "outputs without a gradient")
    exact = [weight1, bias1, weight2, bias2, weight3, bias3]
    theirs = torch.autograd.grad(expected, exact, gradient.double().cpu())
    names = ("weight1", "bias1", "weight2", "bias2", "weight3", "bias3")
    for name, a, b in zip(names, ours, theirs, strict=True):
        assert_close(a, b, name, 2 * TF32)  # up to three products, one after the other


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("algorithm", ["ib-dqn", "rdq", "ib-iqn"])
def test_a_population_on_a_gpu_has_each_agents_outputs_and_gradients(
    algorithm: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "MIN_MLP_AGENTS", AGENTS)
    torch.manual_seed(1)
    shape = SHAPES[name]
    modules = [ALGORITHMS[algorithm].build(shape, float(k)) for k in range(AGENTS)]
    inputs = [observations(name, MANY)]
    if algorithm == "ib-iqn":
        inputs.append(torch.rand(AGENTS, MANY, QUANTILES))
    network = stacked_network(modules[0])
    assert network is not None
    stacked, buffers = stack_module_state(modules)
    device = torch.device("cuda")
    with training_on(device, tf32=True):
        leaves = {n: p.detach().to(device).requires_grad_() for n, p in stacked.items()}
        outputs = network(leaves, {n: b.to(device) for n, b in buffers.items()}, *(x.to(device) for x in inputs))
        weights = torch.linspace(-1, 2, outputs[0].numel(), dtype=torch.float64).reshape(outputs[0].shape)
        found = torch.autograd.grad((outputs * weights.to(device)).sum(), list(leaves.values()))
    # Where TensorFloat-32 changes the sign of a number before a ReLU, its gradient is another one: with the products
    # of a CPU, rounded as TensorFloat-32 is, gradients differed by up to 0.05 of their norm. So this test sees how the
    # operators are put together; what each computes is tested above.
    for agent, module in enumerate(modules):
        alone = [x[agent].double() if x.is_floating_point() else x[agent] for x in inputs]
        expected, gradients = outputs_and_gradients(module.double(), alone, weights)
        assert_close(outputs[agent].detach(), expected, "outputs", 5 * TF32)
        for (parameter, gradient), ours in zip(gradients.items(), found, strict=True):
            assert_close(ours[agent], gradient, parameter, 0.1, order=2)


@pytest.mark.gpu
@needs_gpu
def test_kernels_are_used_where_tensorfloat_32_is_allowed() -> None:
    weight = torch.zeros(2, 3, device="cuda")
    with training_on(weight.device, tf32=True):
        assert operators.available(weight)
        assert not operators.available(weight.double())
    with training_on(weight.device, tf32=False):
        assert not operators.available(weight)


@pytest.mark.parametrize(("capability", "used"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_gpus_before_ampere_have_no_tensorfloat_32(
    capability: tuple[int, int], used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor bfloat16, which the gradients are computed with; `--tf32` allows it on any GPU."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(operators, "_has_triton", lambda: True)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    weight: Any = SimpleNamespace(is_cuda=True, dtype=torch.float32, device=torch.device("cuda", 0))
    assert operators.available(weight) == used


def test_a_cpu_has_none() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert not operators.available(torch.zeros(2, 3))
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.fixture
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The operators and their derivatives on any device and in float64, with plain PyTorch in place of the kernels."""
    monkeypatch.setattr(operators, "available", lambda weight: True)
    monkeypatch.setattr(operators, "MIN_MLP_AGENTS", 2)
    monkeypatch.setattr(operators, "mlps_worthwhile", lambda observation: True)
    with operators.replaced_by(plain_operators):
        yield


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("algorithm", ["ib-dqn", "dueling-dqn", "rdq", "ib-iqn"])
def test_derivatives_of_the_operators(algorithm: str, name: str) -> None:
    torch.manual_seed(1)
    modules = [ALGORITHMS[algorithm].build(SHAPES[name], float(k)).double() for k in range(AGENTS)]
    network, inputs = stacked_network(modules[0]), inputs_of(algorithm, name)
    assert network is not None
    stacked, buffers = stack_module_state(modules)
    leaves = {n: p.detach().requires_grad_() for n, p in stacked.items()}
    outputs = network(leaves, buffers, *inputs)
    weights = torch.linspace(-1, 2, outputs[0].numel(), dtype=torch.float64).reshape(outputs[0].shape)
    found = torch.autograd.grad((outputs * weights).sum(), list(leaves.values()))
    for agent, module in enumerate(modules):
        expected, gradients = outputs_and_gradients(module, [x[agent] for x in inputs], weights)
        assert_close(outputs[agent].detach(), expected, "outputs", 1e-10)
        for (parameter, gradient), ours in zip(gradients.items(), found, strict=True):
            assert_close(ours[agent], gradient, parameter, 1e-10)


@pytest.mark.parametrize(
    ("hidden", "outputs", "used"), [(64, 18, True), (64, 64, True), (64, 65, False), (18, 4, False)]
)
def test_streams_have_few_outputs_and_hidden_units_that_need_no_padding(
    hidden: int, outputs: int, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "available", lambda weight: True)
    found = operators.streams_available(torch.empty(2, hidden, 8), torch.empty(2, outputs, hidden))
    assert found == used


@pytest.mark.parametrize(
    ("agents", "inputs", "features", "hidden", "used"),
    [
        (2_040, 8, 256, 256, True),
        (16, 8, 256, 256, False),  # too few programs for a GPU
        (2_040, 128, 256, 256, False),  # too many inputs to multiply twice
        (2_040, 8, 18, 256, False),  # not aligned
        (2_040, 8, 1_024, 256, False),
        (2_040, 8, 256, 1_024, False),
    ],
)
def test_networks_of_many_agents_with_few_inputs_are_computed_at_once(
    agents: int, inputs: int, features: int, hidden: int, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "available", lambda weight: True)
    shapes = (agents, features, inputs), (agents, hidden, features), (agents, 4, hidden)
    assert operators.mlps_available(*(torch.empty(shape, device="meta") for shape in shapes)) == used


def test_observations_with_a_gradient_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    observation: Any = SimpleNamespace(is_cuda=True, requires_grad=True)
    assert not operators.mlps_worthwhile(observation)
    with torch.no_grad():
        assert operators.mlps_worthwhile(observation)
    assert operators.mlps_worthwhile(SimpleNamespace(is_cuda=True, requires_grad=False))  # type: ignore[arg-type]
    assert not operators.mlps_worthwhile(torch.empty(2, 3))


@pytest.mark.usefixtures("plain_kernels")
def test_networks_that_were_changed_are_computed_layer_by_layer() -> None:
    network: Any = ALGORITHMS["ib-dqn"].build(SHAPES["vectors"], 2.0)
    x = torch.randn(3, 6)
    expected = network.head(network.torso(x))
    torch.testing.assert_close(network(x), expected)
    torch.testing.assert_close(network[:1](x), network.torso(x))
    network.torso.append(nn.Tanh())
    torch.testing.assert_close(network(x), network.head(network.torso(x)))
    network.torso = nn.Identity()
    torch.testing.assert_close(network(torch.ones(3, 16)), network.head(torch.ones(3, 16)))


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize(
    ("algorithm", "name", "calls"),
    [("ib-dqn", "vectors", 1), ("dueling-dqn", "matrices", 2), ("ib-dqn", "three layers", 0), ("iqn", "vectors", 0)],
)
def test_networks_of_two_layers_are_computed_at_once(
    algorithm: str, name: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two streams of a dueling network have one call each."""
    counted: list[bool] = []

    def mlp(*args: Any) -> Any:
        counted.append(args[-1])
        return plain_operators.mlp(*args)

    kernels = SimpleNamespace(**{**vars(plain_operators), "mlp": mlp})
    modules = [ALGORITHMS[algorithm].build(SHAPES[name], 0.0).double() for _ in range(AGENTS)]
    network, inputs = stacked_network(modules[0]), inputs_of("ib-iqn" if algorithm == "iqn" else algorithm, name)
    assert network is not None
    weights, buffers = stack_module_state(modules)
    with operators.replaced_by(kernels):
        learned = network(weights, buffers, *inputs)
        with torch.no_grad():
            acted = network(weights, buffers, *inputs)
    torch.testing.assert_close(acted, learned)
    assert counted == [True] * calls + [False] * calls  # units are kept for the gradient alone


@pytest.mark.parametrize("outputs", [4, 6])  # 6 is padded to 8
def test_products_and_their_gradients(outputs: int) -> None:
    """Those of GPUs, on any device."""
    layers = [Linear(5, outputs).double() for _ in range(AGENTS)]
    stacked, _ = stack_module_state(layers)
    x = torch.randn(AGENTS, BATCH, 5, dtype=torch.float64, requires_grad=True)
    leaves = [stacked[name].detach().requires_grad_() for name in ("weight", "bias")]
    expected = torch.baddbmm(leaves[1].unsqueeze(1), x, leaves[0].mT)
    weights = torch.randn_like(expected)
    inputs = [x, *leaves]
    with operators.replaced_by(plain_operators):
        found = operators.affine(x, *leaves)
        ours = torch.autograd.grad((found * weights).sum(), inputs)
    torch.testing.assert_close(found, expected)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("outputs", "copies"), [(4, False), (6, True)])
def test_weights_are_copied_only_to_be_padded(outputs: int, copies: bool) -> None:
    x, weight, bias = torch.randn(AGENTS, BATCH, 5), torch.randn(AGENTS, outputs, 5), torch.randn(AGENTS, outputs)
    with operators.replaced_by(plain_operators), Called() as called:
        found = operators.affine(x, weight.requires_grad_(), bias)
        torch.autograd.grad(found.sum(), [weight])
    assert ("aten::constant_pad_nd" in called.names) == copies, called.names
    assert "aten::bmm" in called.names


class Called(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The names of PyTorch's operators that are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name().partition(".")[0])
        return func(*args, **(kwargs or {}))


RESULTS = {
    "convolve": 1,
    "convolve_weight_gradient": 2,
    "convolve_image_gradient": 1,
    "quantile_features": 1,
    "quantile_features_gradient": 3,
    "output_layer": 1,
    "output_layer_gradient": 4,
    "mlp": 3,
    "mlp_gradient_of_hidden": 3,
    "mlp_gradient_of_features": 2,
}
WRONG = [(name, number) for name, count in RESULTS.items() for number in range(count)]


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("wrong", [None, *WRONG])
def test_a_kernel_that_is_wrong_fails_the_check(wrong: tuple[str, int] | None) -> None:
    """Half of a result's columns are missing, as with a tile that is not computed."""
    kernels = SimpleNamespace(**vars(plain_operators))

    if wrong is not None:
        name, number = wrong

        def incomplete(*args: Any) -> Any:
            found = getattr(plain_operators, name)(*args)
            part = found[number] if isinstance(found, tuple) else found
            part.narrow(-1, 0, (part.shape[-1] + 1) // 2).zero_()
            return found

        setattr(kernels, name, incomplete)
    torch.manual_seed(1)
    of_vectors = wrong is not None and wrong[0].startswith("mlp")
    algorithm, shape = ("ib-dqn", "vectors") if of_vectors else ("ib-iqn", "odd frames")
    modules = [ALGORITHMS[algorithm].build(SHAPES[shape], 1.0) for _ in range(2)]
    network = stacked_network(modules[0])
    assert network is not None
    inputs = tuple(x[:2].float() if x.is_floating_point() else x[:2] for x in inputs_of(algorithm, shape))
    run = partial(check_kernels, network, *stack_module_state(modules), inputs, kernels)
    if wrong is None:
        run()
    else:
        with pytest.raises(KernelMismatch, match=f"^{name} differs from plain PyTorch by [0-9.]+ of its norm"):
            run()


def test_a_gpu_whose_kernels_fail_does_without_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A GPU that has no such kernels: this CPU."""
    left_out: list[Tensor] = []
    monkeypatch.setattr(operators, "available", lambda weight: not left_out)
    monkeypatch.setattr(operators, "leave_out", left_out.append)
    spec = EnvironmentSpec("frames", "gymnasium", (3, 40, 40), np.dtype(np.uint8), 4, None, 0)
    settings = TrainingSettings(steps=8, checkpoint_interval=8, eval_interval=8, hidden=(16,), batch_size=4)
    population = make_population(agent_table("frames", "dqn", seeds=range(2)), settings, spec, torch.device("cpu"))
    leave_out_failing_kernels(population, initial_state(population))
    assert len(left_out) == 1
    assert caplog.messages[0].startswith(
        "PyTorch's own products are used in place of this package's GPU kernels: Could not"
    )


def test_kernels_are_checked_with_the_shapes_of_learning_and_acting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel has smaller tiles for one frame."""
    checked: list[tuple[list[tuple[int, ...]], dict[str, bool]]] = []
    monkeypatch.setattr(operators, "available", lambda weight: True)

    def check(*values: Any, **options: bool) -> None:
        checked.append(([tuple(x.shape) for x in values[3]], options))

    monkeypatch.setattr(engine, "check_kernels", check)
    spec = EnvironmentSpec("frames", "gymnasium", (3, 40, 40), np.dtype(np.uint8), 4, None, 0)
    settings = TrainingSettings(steps=8, checkpoint_interval=8, eval_interval=8, hidden=(16,), batch_size=4)
    quantiles = replace(settings, quantiles=6, acting_quantiles=5)
    population = make_population(agent_table("frames", "iqn", seeds=range(3)), quantiles, spec, torch.device("cpu"))
    leave_out_failing_kernels(population, initial_state(population))
    assert checked == [
        ([(2, 4, 3, 40, 40), (2, 4, 6)], {}),
        ([(2, 4, 3, 40, 40), (2, 4, 6)], {"differentiate": False}),
        ([(2, 1, 3, 40, 40), (2, 1, 5)], {"differentiate": False}),
    ]


def test_kernels_of_networks_of_vectors_are_checked_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep their units for a gradient, with other tiles; and few agents would not use them."""
    calls: list[tuple[int, int, bool]] = []

    def mlp(x: Tensor, *rest: Any) -> Any:
        calls.append((x.shape[0], x.shape[1], rest[-1]))
        return plain_operators.mlp(x, *rest)

    monkeypatch.setattr(operators, "available", lambda weight: True)
    monkeypatch.setattr(operators, "mlps_worthwhile", lambda observation: True)
    kernels = SimpleNamespace(**{**vars(plain_operators), "mlp": mlp})
    monkeypatch.setattr(engine, "check_kernels", partial(check_kernels, kernels=kernels))
    spec = EnvironmentSpec("vectors", "gymnasium", (6,), np.dtype(np.float32), 4, None, 0)
    settings = TrainingSettings(steps=8, checkpoint_interval=8, eval_interval=8, hidden=(16, 16), batch_size=5)
    agents = agent_table("vectors", "dqn", seeds=range(operators.MIN_MLP_AGENTS + 2))
    population = make_population(agents, settings, spec, torch.device("cpu"))
    leave_out_failing_kernels(population, initial_state(population))
    checked = operators.MIN_MLP_AGENTS
    assert calls == [(checked, 5, True), (checked, 5, False), (checked, 1, False)]


def test_memory_that_is_missing_is_not_the_kernels_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run that is resumed where there is more would compute with other products."""

    def fails(*args: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(operators, "available", lambda weight: True)
    monkeypatch.setattr(engine, "check_kernels", fails)
    monkeypatch.setattr(operators, "leave_out", lambda weight: pytest.fail("left out"))
    spec = EnvironmentSpec("frames", "gymnasium", (3, 40, 40), np.dtype(np.uint8), 4, None, 0)
    settings = TrainingSettings(steps=8, checkpoint_interval=8, eval_interval=8, hidden=(16,), batch_size=4)
    population = make_population(agent_table("frames", "dqn", seeds=range(2)), settings, spec, torch.device("cpu"))
    with pytest.raises(torch.OutOfMemoryError):
        leave_out_failing_kernels(population, initial_state(population))
