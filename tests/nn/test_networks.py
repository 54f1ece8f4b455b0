"""Networks: their equations written out, their sizes, and a population against each agent alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import ALGORITHMS, algorithm_named
from valueshare.nn.torsos import MinAtarTorso, NatureTorso, NetworkShape, mlp_torso, torso

torch.set_num_threads(1)
VECTOR, MATRIX, IMAGE = (8,), (4, 2), (4, 84, 84)


def network_of(algorithm: str, shape: Sequence[int], k: float = 0.0, seed: int = 0, actions: int = 4) -> nn.Module:
    hidden = (16, 12) if len(shape) < 3 else (512,)
    torch.manual_seed(seed)
    return ALGORITHMS[algorithm].build(NetworkShape(tuple(shape), actions, hidden), k)


def inputs(algorithm: str, shape: Sequence[int], leading: tuple[int, ...], n: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(9)
    observation = torch.rand(*leading, *shape, generator=generator)
    if len(shape) == 3:
        observation = (observation * 255).to(torch.uint8)
    tau = torch.rand(*leading, n, generator=generator)
    return [observation, tau] if ALGORITHMS[algorithm].is_quantile else [observation]


def state(network: nn.Module) -> dict[str, Any]:
    return {name: value.detach().double().numpy() for name, value in network.state_dict().items()}


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def layer(s: dict[str, Any], name: str, x: Any) -> Any:
    return x @ s[f"{name}.weight"].T + s[f"{name}.bias"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", [VECTOR, MATRIX, IMAGE], ids=["vector", "matrix", "image"])
def test_a_population_gives_each_agent_its_own_outputs(algorithm: str, shape: tuple[int, ...]) -> None:
    ks = [0.0, 1.0, 18.0] if ALGORITHMS[algorithm].uses_k else [0.0] * 3
    networks = [network_of(algorithm, shape, k, seed) for seed, k in enumerate(ks)]
    parameters, buffers = stack_module_state(networks)
    batch = inputs(algorithm, shape, (3, 2), 5)

    def forward(stacked: dict[str, Tensor], *batch: Tensor) -> Tensor:
        outputs: Tensor = functional_call(networks[0], stacked, batch)
        return outputs

    together = vmap(forward)({**parameters, **buffers}, *batch)
    for i, network in enumerate(networks):
        alone = network(*(x[i] for x in batch))
        # batched matrix products add up in another order: equal to rounding, not to the bit
        torch.testing.assert_close(together[i], alone, rtol=1e-5, atol=1e-5)
    q = ALGORITHMS[algorithm].q_values(together)
    assert q.shape == (3, 2, 4)
    assert not torch.allclose(q[0], q[1])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_matrix_is_a_vector_by_rows(algorithm: str) -> None:
    matrix, vector = network_of(algorithm, MATRIX), network_of(algorithm, VECTOR)
    batch, *tau = inputs(algorithm, MATRIX, (3,), 5)
    torch.testing.assert_close(matrix(batch, *tau), vector(batch.reshape(3, 8), *tau))


def test_a_matrix_of_the_size_of_an_image_is_one() -> None:
    message = r"^observations of shape \[84, 84\]: images have an axis of channels here, \[1, 84, 84\]; add it with"
    with pytest.raises(InvalidInput, match=message):
        network_of("dqn", (84, 84))
    with pytest.raises(InvalidInput, match="an axis of channels"):  # before 4 * 10^12 weights are made
        torso(NetworkShape((200_000, 200_000), 2, (100, 100)))


@pytest.mark.parametrize("algorithm", ["dqn", "ib-dqn"])
def test_plain_network_written_out(algorithm: str) -> None:
    k = 3.0 if algorithm == "ib-dqn" else 0.0
    network = network_of(algorithm, VECTOR, k)
    x = np.random.default_rng(0).normal(size=(5, 8))
    s = state(network)
    hidden = relu(layer(s, "head.stream.hidden", relu(layer(s, "torso.1", x))))
    z = layer(s, "head.stream.output", hidden)
    q = z + k / 4 * z.sum(-1, keepdims=True)  # Equation 5
    np.testing.assert_allclose(network(torch.tensor(x)).detach(), q, atol=1e-5)


def two_streams(s: dict[str, Any], x: Any) -> tuple[Any, Any]:
    features = relu(layer(s, "torso.1", x))
    b, z = (
        layer(s, f"head.{name}.output", relu(layer(s, f"head.{name}.hidden", features)))
        for name in ("baseline", "residual")
    )
    return b, z


def test_dueling_network_written_out_and_its_baseline_is_the_mean() -> None:
    network = network_of("dueling-dqn", VECTOR)
    x = np.random.default_rng(1).normal(size=(5, 8))
    b, z = two_streams(state(network), x)
    q = network(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(q, b + z - z.mean(-1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(q.mean(-1, keepdims=True), b, atol=1e-5)


def test_baseline_residual_network_written_out_is_not_centred() -> None:
    network = network_of("rdq", VECTOR)
    x = np.random.default_rng(2).normal(size=(5, 8))
    b, z = two_streams(state(network), x)
    u = network(torch.tensor(x)).detach()
    np.testing.assert_allclose(u, np.concatenate([z, b], -1), atol=1e-5)
    q = ALGORITHMS["rdq"].q_values(u)
    np.testing.assert_allclose(q, z + b, atol=1e-5)


@pytest.mark.parametrize("k", [0.0, 2.0])
def test_quantile_network_written_out(k: float) -> None:
    network = network_of("ib-iqn", VECTOR, k)
    rng = np.random.default_rng(3)
    x, tau = rng.normal(size=(5, 8)), rng.uniform(size=(5, 7))
    s = state(network)
    features = relu(layer(s, "torso.1", x))
    expected = np.empty((5, 7, 4))
    for b in range(5):
        for n in range(7):
            cosines = np.array([math.cos(math.pi * i * tau[b, n]) for i in range(1, 65)])
            mixed = features[b] * relu(layer(s, "embedding.linear", cosines))
            hidden = relu(layer(s, "head.stream.hidden", mixed))
            z = layer(s, "head.stream.output", hidden)
            expected[b, n] = z + k * z.mean()  # over the actions, for each quantile
    found = network(torch.tensor(x), torch.tensor(tau, dtype=torch.float32)).detach()
    np.testing.assert_allclose(found, expected, atol=2e-5)
    q = ALGORITHMS["ib-iqn"].q_values(found)
    np.testing.assert_allclose(q, expected.mean(1), atol=2e-5)


def test_nature_torso_sizes_bytes_and_leading_axes() -> None:
    torso = NatureTorso()
    frames = torch.randint(0, 256, (2, 3, *IMAGE), dtype=torch.uint8)
    features = torso(frames)
    assert features.shape == (2, 3, 3136)
    assert torso.features == 3136
    torch.testing.assert_close(torso(frames.float()), features)
    torch.testing.assert_close(torso(frames[1, 2]), features[1, 2], rtol=1e-4, atol=1e-5)


def parameters_of(algorithm: str) -> int:
    return sum(p.numel() for p in network_of(algorithm, IMAGE, actions=18).parameters())


def test_published_sizes_on_atari() -> None:
    convolutions = (4 * 64 + 1) * 32 + (32 * 16 + 1) * 64 + (64 * 9 + 1) * 64
    dense, output, scalar = (3136 + 1) * 512, (512 + 1) * 18, 512 + 1
    assert parameters_of("dqn") == parameters_of("ib-dqn") == convolutions + dense + output
    assert parameters_of("dueling-dqn") == convolutions + 2 * dense + output + scalar
    assert parameters_of("rdq") == parameters_of("dueling-dqn")
    assert parameters_of("iqn") == convolutions + (64 + 1) * 3136 + dense + output


def image_weights(algorithm: str) -> list[tuple[str, Tensor]]:
    named = network_of(algorithm, IMAGE, actions=18).named_parameters()
    return [(name, p.detach()) for name, p in named if name.endswith("weight")]


def test_streams_on_images_have_a_hidden_layer_each() -> None:
    for algorithm in ("dueling-dqn", "rdq"):
        shapes = {name: list(p.shape) for name, p in image_weights(algorithm) if "head" in name}
        assert shapes == {
            "head.baseline.hidden.weight": [512, 3136],
            "head.baseline.output.weight": [1, 512],
            "head.residual.hidden.weight": [512, 3136],
            "head.residual.output.weight": [18, 512],
        }
    shapes = {name: list(p.shape) for name, p in image_weights("iqn") if "torso" not in name}
    assert shapes == {  # no dense layer before the quantiles come in
        "embedding.linear.weight": [3136, 64],
        "head.stream.hidden.weight": [512, 3136],
        "head.stream.output.weight": [18, 512],
    }


@pytest.mark.parametrize("algorithm", ["ib-dqn", "dueling-dqn", "rdq"])  # each network
def test_published_spread_of_all_weights_on_images(algorithm: str) -> None:
    """LeCun-normal: variance 1 / fan-in, and 32 % beyond one standard deviation."""
    for name, p in image_weights(algorithm):
        units = p.flatten() * math.sqrt(p[0].numel())
        n = len(units)
        assert abs(units.mean().item()) < 5 / math.sqrt(n), name
        assert abs(units.var().item() - 1) < 5 * math.sqrt(2 / n), name
        # 0.3173 for a normal distribution, 0.42 for a uniform one of the same variance
        beyond = (units.abs() > 1).float().mean().item()
        assert abs(beyond - 0.3173) < 5 * math.sqrt(0.3173 * 0.6827 / n), name


# Initial biases of (convolutions, hidden layers, output layers) on images: the authors' own.
PUBLISHED_BIASES = {
    **dict.fromkeys(("dqn", "double-dqn", "ib-dqn", "ib-double-dqn"), (0.1, 0.1, 0.0)),
    **dict.fromkeys(("dueling-dqn", "rdq"), (0.03, 0.0, 0.0)),
}


@pytest.mark.parametrize("algorithm", PUBLISHED_BIASES)
def test_published_biases(algorithm: str) -> None:
    convolution, hidden, output = PUBLISHED_BIASES[algorithm]
    for name, p in network_of(algorithm, IMAGE).named_parameters():
        if name.endswith("bias"):
            kinds = {"output": output, "convolutions": convolution}
            expected = next((bias for kind, bias in kinds.items() if kind in name), hidden)
            assert torch.equal(p, torch.full_like(p, expected)), name
    for name, p in network_of(algorithm, VECTOR).named_parameters():
        assert not name.endswith("bias") or not p.any(), name


@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize(
    ("algorithm", "initialization"),
    [*((name, "pytorch") for name in ALGORITHMS), ("iqn", "paper"), ("ib-iqn", "paper")],
)
def test_pytorch_s_default_initialization(algorithm: str, initialization: str, observation: tuple[int, ...]) -> None:
    """Weights and biases uniform in ±1/sqrt(fan-in): kaiming_uniform_ with a = sqrt(5)."""
    hidden = (256,) if observation == IMAGE else (256, 256)
    shape = NetworkShape(observation, 18, hidden, initialization=initialization)
    torch.manual_seed(4)
    parameters = dict(ALGORITHMS[algorithm].build(shape, 0.0).named_parameters())
    for name, p in parameters.items():
        layer = name.rpartition(".")[0]
        fan_in = parameters[f"{layer}.weight"][0].numel()
        units = p.detach().flatten() * math.sqrt(fan_in)  # uniform in [-1, 1]: variance 1/3
        n = len(units)
        assert units.abs().max().item() <= 1 + 1e-6, name
        assert abs(units.mean().item()) < 5 / math.sqrt(3 * n), name
        # The fourth moment of a uniform number is 1/5, so its square has variance 1/5 - 1/9.
        assert abs(units.square().mean().item() - 1 / 3) < 5 * math.sqrt(4 / 45 / n), name
        if n > 100:
            assert units.abs().max().item() > 0.9, name


def test_vectors_are_scaled_and_of_any_number_type() -> None:
    shape = NetworkShape(VECTOR, 4, (16,))
    torch.manual_seed(1)
    scaled = ALGORITHMS["dqn"].build(shape._replace(observation_scale=0.1), 0.0)
    torch.manual_seed(1)
    plain = ALGORITHMS["dqn"].build(shape, 0.0)
    x = torch.randn(3, 8) * 10
    torch.testing.assert_close(scaled(x), plain(x / 10))
    torch.testing.assert_close(plain(x.double()), plain(x))
    assert plain(torch.ones(3, 8, dtype=torch.uint8)).dtype == torch.float32
    assert not torch.allclose(scaled(x), plain(x))


def test_a_torso_without_layers_is_the_observation() -> None:
    x = torch.randn(2, 5)
    assert torch.equal(mlp_torso(5, ())(x), x)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_equal_seeds_give_equal_weights_and_others_do_not(algorithm: str) -> None:
    first, same, other = (network_of(algorithm, VECTOR, seed=s).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    weights = [name for name in first if name.endswith("weight")]
    assert not any(torch.equal(first[name], other[name]) for name in weights)


def test_small_images_of_bytes_are_divided_by_255_and_bools_are_not() -> None:
    torso = MinAtarTorso((3, 5, 6))
    image = torch.rand(2, 3, 5, 6) < 0.5
    by_hand = nn.functional.conv2d(image.float(), torso.convolution.weight, torso.convolution.bias).relu()
    for pixels in (image, image.to(torch.uint8) * 255):
        torch.testing.assert_close(torso(pixels), by_hand.movedim(1, -1).flatten(1))


@pytest.mark.parametrize(
    ("algorithm", "shape", "k", "message"),
    [
        ("ib-dqn", NetworkShape((8,), 4, (16,)), -1.0, "k = -1"),
        ("dqn", NetworkShape((2, 3, 4, 5), 4, (16,)), 0.0, r"shape \[2, 3, 4, 5\]"),
        ("dqn", NetworkShape((8,), 4, ()), 0.0, r"hidden = \[\]"),
        ("dqn", NetworkShape((8,), 4, (16, 0)), 0.0, r"hidden = \[16, 0\]"),
        ("dqn", NetworkShape((8,), 0, (16,)), 0.0, "actions = 0"),
        ("iqn", NetworkShape((8,), 4, (16,)), 0.0, "at least 2 layers"),
        ("iqn", NetworkShape((8,), 4, ()), 0.0, "at least 2 layers"),
        ("dqn", NetworkShape(IMAGE, 4, (256, 256)), 0.0, "images take one hidden layer"),
        ("dqn", NetworkShape(IMAGE, 4, (512,), 0.1), 0.0, "images take one hidden layer"),
        ("dqn", NetworkShape((4, 20, 50), 4, (512,)), 0.0, "at least 36x36"),
        (
            "dqn",
            NetworkShape((84, 84, 3), 4, (512,)),
            0.0,
            r"shape \(84, 84, 3\): .* channels first here, \(3, 84, 84\)",
        ),
        ("dqn", NetworkShape((0,), 4, (8,)), 0.0, r"shape \[0\] have no numbers: every axis has at least 1"),
        ("dqn", NetworkShape((0, 84), 4, (8,)), 0.0, r"shape \[0, 84\] have no numbers"),
        ("dqn", NetworkShape((0, 84, 84), 4, (512,)), 0.0, r"shape \[0, 84, 84\] have no numbers"),
        ("dqn", NetworkShape((20, 30, 1), 4, (128,)), 0.0, r"shape \(20, 30, 1\): .* \(1, 20, 30\); transpose them"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(
    algorithm: str, shape: NetworkShape, k: float, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as refusal:
        ALGORITHMS[algorithm].build(shape, k)
    assert "\n" not in str(refusal.value)


def test_an_unknown_algorithm_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="`algorithm = 'sarsa'`: write one of dqn, dueling-dqn, ib-dqn, rdq"):
        algorithm_named("sarsa")
