"""Convolutions as matrix products: against `torch.nn.Conv2d`, alone and as a population."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from valueshare.errors import InvalidInput
from valueshare.nn.convolution import Convolution, convolve_by_shifts, patch_weights, patches
from valueshare.nn.torsos import NatureTorso

torch.set_num_threads(1)

# channels, outputs, kernel, stride, height, width; some images have pixels that no patch reaches,
# where (7 - 2) / 2, (19 - 6) / 3 and (22 - 6) / 3 are not whole numbers
LAYERS = [
    (4, 32, 8, 4, 84, 84),
    (32, 64, 4, 2, 20, 20),
    (64, 64, 3, 1, 9, 9),
    (3, 5, 2, 2, 7, 6),
    (2, 3, 6, 3, 19, 22),
    (1, 2, 1, 1, 4, 5),
]


class Usual(nn.Conv2d):
    """PyTorch's convolution, with a ReLU."""

    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image).relu()


def pair(channels: int, outputs: int, kernel: int, stride: int) -> tuple[Convolution, Usual]:
    """The same weights in both."""
    ours = Convolution(channels, outputs, kernel, stride).double()
    usual = Usual(channels, outputs, kernel, stride).double()
    usual.load_state_dict(ours.state_dict())  # equal names and shapes
    return ours, usual


def same(found: Tensor, expected: Tensor | None) -> None:
    """Equal in float64 but for the order of the sums."""
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def gradients(outputs: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Of a sum with unequal weights, so that no two outputs can be exchanged unseen."""
    weights = torch.linspace(-1, 2, outputs.numel(), dtype=outputs.dtype).reshape(outputs.shape)
    return torch.autograd.grad((outputs * weights).sum(), inputs)


@pytest.mark.parametrize("layer", LAYERS)
def test_outputs_and_gradients_are_those_of_the_usual_layer(layer: tuple[int, ...]) -> None:
    channels, _, _, _, height, width = layer
    ours, usual = pair(*layer[:4])
    x = torch.randn(3, channels, height, width, dtype=torch.float64, requires_grad=True)
    found, expected = ours(x.movedim(1, -1)).movedim(-1, 1), usual(x)
    same(found, expected)
    inputs = [[x, *module.parameters()] for module in (ours, usual)]
    for a, b in zip(gradients(found, inputs[0]), gradients(expected, inputs[1]), strict=True):
        same(a, b)


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer[2] == 2 * layer[3]])
def test_shifts_give_what_the_usual_layer_gives(layer: tuple[int, ...]) -> None:
    """The code of GPUs, on any device."""
    channels, _, _, stride, height, width = layer
    _, usual = pair(*layer[:4])
    x = torch.randn(2, 3, channels, height, width, dtype=torch.float64, requires_grad=True)
    found = convolve_by_shifts(x.movedim(-3, -1), patch_weights(usual.weight, stride), stride)
    images = nn.functional.conv2d(x.flatten(0, 1), usual.weight, stride=stride)
    expected = images.reshape(2, 3, *images.shape[1:])
    same(found.movedim(-1, -3), expected)
    inputs = [x, usual.weight]
    for a, b in zip(gradients(found.movedim(-1, -3), inputs), gradients(expected, inputs), strict=True):
        same(a, b)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3)])
def test_any_leading_axes(leading: tuple[int, ...]) -> None:
    ours, usual = pair(3, 5, 4, 2)
    x = torch.randn(*leading, 3, 10, 8, dtype=torch.float64)
    expected = usual(x.reshape(-1, 3, 10, 8)).reshape(*leading, 5, 4, 3)
    same(ours(x.movedim(-3, -1)).movedim(-1, -3), expected)


def test_patches_by_hand() -> None:
    """4x4 pixels 0..15: nine patches of kernel 2 and stride 1, one of kernel 4 and stride 2."""
    image = torch.arange(16).reshape(4, 4, 1)
    small = patches(image, 2, 1)
    assert small.shape == (3, 3, 4)
    assert small[0, 0].tolist() == [0, 1, 4, 5]
    assert small[2, 1].tolist() == [9, 10, 13, 14]
    (whole,) = patches(image, 4, 2).flatten(0, 1).tolist()
    assert whole == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
    # a weight that is its own pixel's number comes out in the same order
    weight = image.reshape(1, 1, 4, 4)
    assert patch_weights(weight, 2)[:, 0].tolist() == whole


def test_patches_against_loops() -> None:
    rng = np.random.default_rng(0)
    image, weight = rng.normal(size=(13, 11, 2)), rng.normal(size=(3, 2, 4, 4))
    expected = np.zeros((5, 4, 3))
    for i, j, o in np.ndindex(5, 4, 3):
        for c, y, x in np.ndindex(2, 4, 4):
            expected[i, j, o] += image[2 * i + y, 2 * j + x, c] * weight[o, c, y, x]
    columns = patch_weights(torch.tensor(weight), 2)
    np.testing.assert_allclose(patches(torch.tensor(image), 4, 2) @ columns, expected, atol=1e-12)


def test_bytes_stay_bytes_until_they_are_patches_and_become_the_weights_own_type() -> None:
    frames = torch.randint(0, 256, (2, 9, 9, 4), dtype=torch.uint8)
    assert patches(frames, 3, 1).dtype == torch.uint8
    layer = Convolution(4, 3, 3, 1, scale=1 / 255)
    assert layer(frames).dtype == torch.float32
    exact = layer.double()
    assert exact(frames).dtype == torch.float64
    plain = Convolution(4, 3, 3, 1).double()
    plain.load_state_dict(exact.state_dict())
    same(exact(frames), plain(frames.double() / 255))


def test_a_population_of_layers_has_each_agents_outputs_and_gradients() -> None:
    layers = [pair(3, 5, 4, 2) for _ in range(4)]
    parameters = {k: v.detach() for k, v in stack_module_state([a for a, _ in layers])[0].items()}
    x = torch.randn(4, 2, 10, 8, 3, dtype=torch.float64)

    def total(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs = vmap(lambda p, x: functional_call(layers[0][0], p, (x,)))(parameters, x)
        squares: Tensor = outputs.square().sum()
        return squares

    found, of_x = grad(total, argnums=(0, 1))(parameters, x)
    for i, (_, usual) in enumerate(layers):
        own = x[i].movedim(-1, 1).clone().requires_grad_()
        usual(own).square().sum().backward()
        assert own.grad is not None
        same(of_x[i].movedim(-1, 1), own.grad)
        for name, p in usual.named_parameters():
            same(found[name][i], p.grad)


def test_a_population_is_one_batched_product_forwards_and_two_backwards() -> None:
    """Convolutions become none: what the whole computation calls is counted."""
    layers = [Convolution(3, 5, 4, 2) for _ in range(4)]
    parameters = {k: v.detach() for k, v in stack_module_state(layers)[0].items()}
    x = torch.randn(4, 2, 10, 8, 3)

    def total(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor = vmap(lambda p, x: functional_call(layers[0], p, (x,)))(parameters, x)
        return outputs.square().sum()

    def called(function: object) -> list[str]:
        nodes = make_fx(function)(parameters, x).graph.nodes  # type: ignore[arg-type]
        return [str(node.target).removeprefix("aten.") for node in nodes]

    assert [name for name in called(total) if "mm" in name or "conv" in name] == ["bmm.default"]
    both = called(grad(total, argnums=(0, 1)))
    assert [name for name in both if "mm" in name or "conv" in name] == ["bmm.default"] * 3
    # what the compiler would turn into atomic additions
    assert not [name for name in both if "index" in name or "as_strided" in name or "fold" in name]


def test_a_stride_that_does_not_divide_the_kernel_is_refused() -> None:
    with pytest.raises(InvalidInput, match="kernel = 5, stride = 2: the kernel must"):
        Convolution(1, 1, 5, 2)


def test_what_it_says_of_itself() -> None:
    assert repr(Convolution(4, 32, 8, 4)) == "Convolution(4, 32, kernel=8, stride=4)"


def usual_torso(ours: NatureTorso, channels: int) -> nn.Sequential:
    """The network as it is usually written, with the same weights."""
    usual = nn.Sequential(
        nn.Conv2d(channels, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
    ).to(next(ours.parameters()).dtype)
    usual.load_state_dict(ours.convolutions.state_dict())
    return usual


@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 101, 66), (2, 36, 36)])
def test_nature_torso_is_the_usual_one_its_features_in_the_usual_order(
    shape: tuple[int, int, int],
) -> None:
    ours = NatureTorso(shape).double()
    usual = usual_torso(ours, shape[0])
    frames = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
    found, expected = ours(frames), usual(frames.double() / 255)
    assert found.shape == (2, ours.features)
    same(found, expected)
    inputs = [list(module.parameters()) for module in (ours, usual)]
    for a, b in zip(gradients(found, inputs[0]), gradients(expected, inputs[1]), strict=True):
        same(a, b)


def test_population_of_nature_torsos() -> None:
    torsos = [NatureTorso((2, 36, 44)) for _ in range(3)]
    parameters, _ = stack_module_state(torsos)
    frames = torch.randint(0, 256, (3, 5, 2, 36, 44), dtype=torch.uint8)
    together = vmap(lambda p, x: functional_call(torsos[0], p, (x,)))(parameters, frames)
    for i, torso in enumerate(torsos):
        expected = usual_torso(torso, 2)(frames[i].float() / 255)
        torch.testing.assert_close(together[i], expected, rtol=1e-4, atol=1e-5)
