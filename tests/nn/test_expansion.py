"""The layer by k = "n", in TorchScript, transformed and copied, and where it cannot be put."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import valueshare as vs
from valueshare import MeanExpansion, append_mean_expansion


class Dueling(nn.Module):
    """Its value stream, with one output, is registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.advantages, self.value = nn.Linear(6, 4), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.value(x) + self.advantages(x)
        return q


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


# k = "n"


def test_n_is_the_number_of_outputs() -> None:
    net, x = network(), torch.randn(5, 6)
    z = net(x)
    append_mean_expansion(net, "n")
    torch.testing.assert_close(net(x), z @ (torch.eye(4) + torch.ones(4, 4)))  # k/n = 1
    assert "MeanExpansion(k=4)" in repr(net)
    named = append_mean_expansion(network(), "n", after="0")
    assert "MeanExpansion(k=16)" in repr(named)


def test_n_of_the_layer_alone_is_given() -> None:
    assert MeanExpansion("n", n=2)(torch.tensor([3.0, 1.0])).tolist() == [7.0, 5.0]  # Figure 1 of the paper
    assert MeanExpansion(2, n=5).scale == 3  # a number is itself
    with pytest.raises(
        vs.InvalidInput, match=r"^`k = 'n'` is the number of actions, which is not known here: give it as n"
    ):
        MeanExpansion("n")


@pytest.mark.parametrize("k", ["m", b"n", ""])
def test_other_texts_are_no_k(k: object) -> None:
    what = f"`k = {k!r}`" if isinstance(k, str) else "k is given as bytes"
    with pytest.raises(vs.InvalidInput, match=rf"^{what}: write a number, like 4\.0, or 'n'$"):
        append_mean_expansion(network(), k)  # type: ignore[arg-type]


def test_an_input_that_is_no_tensor_of_floats_is_refused() -> None:
    for given, kind in ((np.zeros(3), "ndarray"), (torch.zeros(3, dtype=torch.int64), r"a tensor of torch\.int64")):
        with pytest.raises(vs.InvalidInput, match=f"is {kind}: give a tensor of floats"):
            MeanExpansion(1)(given)


# Value streams.


def test_a_layer_with_one_output_is_refused() -> None:
    structure = repr(Dueling())
    with pytest.raises(vs.InvalidInput, match=r"^this linear layer has one output: .*; give the layer of the action-v"):
        append_mean_expansion(nn.Linear(6, 1), 2)
    for module, name in ((nn.Sequential(nn.Linear(6, 1)), "0"), (dueling := Dueling(), "value")):
        with pytest.raises(vs.InvalidInput, match=rf"^the linear layer '{name}' has one output: a value stream has no"):
            append_mean_expansion(module, 2)
    assert repr(dueling) == structure
    x = torch.randn(5, 6)
    expected = dueling.value(x) + vs.expand(dueling.advantages(x), 2)
    torch.testing.assert_close(append_mean_expansion(dueling, 2, after="advantages")(x), expected)


class Centred(nn.Module):
    """Dueling DQN's head; its advantages are registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(6, 1)
        self.advantages = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.value(x)
        a: torch.Tensor = self.advantages(x)
        return value + a - a.mean(-1, keepdim=True)


def test_advantages_are_no_place_for_the_layer_unless_they_are_named() -> None:
    """The mean that it scales is the one that is subtracted."""
    net, x = Centred(), torch.randn(5, 6)
    expected, structure = net(x), repr(net)
    with pytest.raises(
        vs.InvalidInput,
        match=r"value stream too \('value', one output\): .* Sequential\(network, MeanExpansion\(k, n=3\)\), as it does"
        r" nothing after centred advantages; only if the outputs of 'advantages' are .*, write `after = 'advantages'`$",
    ):
        append_mean_expansion(net, 2)
    assert repr(net) == structure
    torch.testing.assert_close(nn.Sequential(net, MeanExpansion(2, n=3))(x), expected + 2 * expected.mean(-1, True))
    torch.testing.assert_close(append_mean_expansion(net, 2, after="advantages")(x), expected)


# TorchScript.


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_network_with_the_layer_is_scripted_saved_and_loaded(tmp_path: Path) -> None:
    net, x = append_mean_expansion(network(), 3), torch.randn(5, 6, requires_grad=True)
    scripted = torch.jit.script(net)
    torch.jit.save(scripted, tmp_path / "network.pt")
    loaded: nn.Module = torch.jit.load(tmp_path / "network.pt")  # type: ignore[no-untyped-call]
    for compiled in (scripted, loaded):
        assert torch.equal(compiled(x), net(x))
        (found,) = torch.autograd.grad(compiled(x).square().sum(), x)
        (expected,) = torch.autograd.grad(net(x).square().sum(), x)
        torch.testing.assert_close(found, expected)
    layer = torch.jit.script(MeanExpansion(3))
    for shape in ((4,), (2, 4), (2, 3, 4)):
        z = torch.randn(shape)
        torch.testing.assert_close(layer(z), z + 3 * z.mean(-1, keepdim=True))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_network_is_refused() -> None:
    with pytest.raises(
        vs.InvalidInput, match=r"^this network is compiled by TorchScript: put the layer in first, then"
    ):
        append_mean_expansion(torch.jit.script(network()), 2)


def test_a_network_that_goes_on_after_its_last_linear_layer_needs_the_name_of_the_output_layer() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.Unflatten(-1, (1, 3)), nn.Conv1d(1, 1, 1))
    with pytest.raises(vs.InvalidInput, match="Conv1d comes after the last linear layer '0': name the layer of the"):
        append_mean_expansion(network, 1)
    append_mean_expansion(network, 1, after="0")
    assert isinstance(network[0], nn.Sequential)


# Networks whose modules do not say where the action-values are.


class HiddenRegisteredLast(nn.Module):
    """A convolution, and a hidden layer (4 to 8) that is registered after the output layer (8 to 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(8, 3), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.out(torch.relu(self.fc(self.conv(x).mean((-1, -2)))))
        return q


def test_a_hidden_layer_registered_last_is_refused_beside_a_convolution() -> None:
    net, x = HiddenRegisteredLast(), torch.randn(5, 1, 6, 6)
    z = net(x)
    with pytest.raises(
        vs.InvalidInput, match=r"^'fc' is the last linear layer .* if 'out' follows it, write `after = "
    ):
        append_mean_expansion(net, 2)
    torch.testing.assert_close(append_mean_expansion(net, 2, after="out")(x), vs.expand(z, 2))


def test_the_order_of_a_sequence_is_not_doubted() -> None:
    """Its fourth layer takes as many inputs as there are actions."""
    layers = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 96), nn.Linear(96 * 9, 4))
    append_mean_expansion(layers, 3)
    assert [name for name, _ in layers.named_buffers()] == ["4.1.scale"]
    nested = nn.Sequential(nn.Sequential(nn.Linear(4, 96)), nn.LayerNorm(96), nn.Sequential(nn.Linear(95, 4)))
    append_mean_expansion(nested, 3)
    assert [name for name, _ in nested.named_buffers()] == ["2.0.1.scale"]


class Tied(nn.Module):
    """One linear layer as the hidden and as the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 4)
        self.out = self.hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.out(torch.relu(self.hidden(x)))
        return q


def tied_sequence() -> nn.Sequential:
    linear = nn.Linear(4, 3)
    return nn.Sequential(linear, nn.ReLU(), nn.Linear(3, 4), linear)


@pytest.mark.parametrize(("make", "last"), [(Tied, "out"), (tied_sequence, "3")])
def test_a_layer_used_at_two_places_is_expanded_at_the_named_one(make: Callable[[], nn.Module], last: str) -> None:
    net, x = make(), torch.randn(5, 4)
    z, structure = net(x), repr(net)
    with pytest.raises(vs.InvalidInput, match=rf"^the linear layer '{last}' has another name, '(hidden|0)'.* `after`$"):
        append_mean_expansion(net, 2)
    assert repr(net) == structure
    torch.testing.assert_close(append_mean_expansion(net, 2, after=last)(x), vs.expand(z, 2))


def test_a_second_name_for_one_place_is_no_second_place() -> None:
    net, x = nn.ModuleDict({"body": nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 4))}), torch.randn(5, 6)
    net["alias"] = net["body"]
    z = net["body"](x)
    append_mean_expansion(net, 2)
    torch.testing.assert_close(net["alias"](x), vs.expand(z, 2))


def test_a_block_used_twice_cannot_be_expanded_at_one_place() -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    for after in (None, "1.0"):
        net = nn.Sequential(block, block)
        with pytest.raises(vs.InvalidInput, match=r"^the linear layer '1\.0' .*'0\.0'"):
            append_mean_expansion(net, 2, after=after)
    assert isinstance(block[0], nn.Linear)


@pytest.mark.parametrize("wrap", [spectral_norm, weight_norm, orthogonal])
def test_a_parametrized_last_layer_is_the_last_layer(wrap: Callable[[nn.Module], nn.Module]) -> None:
    net, x = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), wrap(nn.Linear(16, 4))), torch.randn(5, 6)
    state = copy.deepcopy(net.state_dict())
    append_mean_expansion(net, 2)
    assert all(torch.equal(net.state_dict()[name.replace("2.", "2.0.", 1)], state[name]) for name in state)
    net.eval()  # spectral_norm changes its estimate in training
    before = nn.Sequential(net[0], net[1], net.get_submodule("2.0"))
    torch.testing.assert_close(net(x), vs.expand(before(x), 2))


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh(), nn.Softplus()])
def test_action_values_have_no_activation(activation: nn.Module) -> None:
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4), activation)
    name = type(activation).__name__
    with pytest.raises(vs.InvalidInput, match=rf"^{name} follows the last linear layer '2', and action-values"):
        append_mean_expansion(net, 2)
    assert isinstance(net[2], nn.Linear)


# n


@pytest.mark.parametrize("n", [2.5, 0, -1, "2", 10**13])
def test_n_is_a_whole_number_from_1(n: Any) -> None:
    message = rf"^`n = '?{n}'?`: write"
    with pytest.raises(vs.InvalidInput, match=message):
        MeanExpansion("n", n=n)
    with pytest.raises(vs.InvalidInput, match=message):
        append_mean_expansion(network(), 2, n=n)


def test_n_may_be_an_integer_of_numpy() -> None:
    n: Any = np.int64(2)
    assert MeanExpansion("n", n=n).scale == 3


@pytest.mark.parametrize("k", [True, np.True_])
def test_a_truth_value_is_no_k(k: Any) -> None:
    for make in (
        lambda: MeanExpansion(k),
        lambda: append_mean_expansion(network(), k),
        lambda: vs.expand([1.0, 2.0], k),
    ):
        with pytest.raises(vs.InvalidInput, match=r"^k is given as bool_?: write a number"):
            make()


def test_the_number_of_actions_is_checked_where_it_is_given() -> None:
    assert "MeanExpansion(k=4)" in repr(append_mean_expansion(network(), "n", n=4))
    quantiles, x = nn.Sequential(nn.Linear(6, 150)), torch.randn(5, 6)
    with pytest.raises(
        vs.InvalidInput, match=r"^the linear layer '0' has 150 outputs, and `n = 3`: .*\[\.\.\., 50, 3\]$"
    ):
        append_mean_expansion(quantiles, "n", n=3)
    with pytest.raises(
        vs.InvalidInput, match=r"^the linear layer '2' has 4 outputs, and `n = 3`: name the layer of the"
    ):
        append_mean_expansion(network(), "n", n=3)
    with pytest.raises(vs.InvalidInput, match=r"^this linear layer has 4 outputs, and `n = 3`: give the layer of the"):
        append_mean_expansion(nn.Linear(6, 4), "n", n=3)
    z = quantiles(x).reshape(5, 50, 3)
    torch.testing.assert_close(MeanExpansion("n", n=3)(z), z @ (torch.eye(3) + torch.ones(3, 3)))  # per quantile


# Tracing.


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_tracing_warns_of_nothing() -> None:
    net, x = append_mean_expansion(network(), "n"), torch.randn(5, 6)
    traced: Any = torch.jit.trace(net, torch.zeros(2, 6))  # type: ignore[no-untyped-call]  # warnings are errors here
    torch.testing.assert_close(traced(x), net(x))


# Copies, files and program transformations.

TRANSFORMATIONS: dict[str, Callable[[nn.Module, torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "torch.compile": lambda net, _: torch.compile(net, fullgraph=True, backend="aot_eager", dynamic=True),
    "torch.export": lambda net, x: torch.export.export(
        net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)
    ).module(),
    "torch.export, strict": lambda net, x: torch.export.export(
        net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=True
    ).module(),
    "torch.fx": lambda net, _: torch.fx.symbolic_trace(net),
    "vmap": lambda net, _: torch.func.vmap(net),
    "compiled vmap": lambda net, _: torch.compile(torch.func.vmap(net), fullgraph=True, backend="eager"),
    "deepcopy": lambda net, _: copy.deepcopy(net),
    "pickle": lambda net, _: pickle.loads(pickle.dumps(net)),  # noqa: S301 (our own bytes)
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("n", [None, 4])
def test_a_transformed_network_has_the_same_values(name: str, n: int | None) -> None:
    net, x = network().append(MeanExpansion(4.0, n=n)), torch.randn(5, 6)
    z = net[:3](x)
    transformed = TRANSFORMATIONS[name](net, x)
    for rows in (5, 3):
        expected = z[:rows] + 4 * z[:rows].mean(-1, keepdim=True)
        torch.testing.assert_close(transformed(x[:rows]), expected)


def test_k_is_in_the_state_dict_and_follows_the_dtype(tmp_path: Path) -> None:
    saved, x = append_mean_expansion(network(), 2.5), torch.randn(5, 6)
    torch.save(saved.state_dict(), tmp_path / "network.pt")
    loaded = append_mean_expansion(network(), 0)
    loaded.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    assert torch.equal(loaded(x), saved(x))
    assert "MeanExpansion(k=2.5)" in repr(loaded)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        q = copy.deepcopy(saved).to(dtype)(x.to(dtype))
        assert q.dtype == dtype
        torch.testing.assert_close(q.float(), saved(x), rtol=0.05, atol=0.05)


def test_a_scalar_has_no_actions() -> None:
    with pytest.raises(vs.InvalidInput, match=r"its input has shape \[\]: give the size of its last axis as n$"):
        MeanExpansion(1.0, n=3)(torch.tensor(1.0))
