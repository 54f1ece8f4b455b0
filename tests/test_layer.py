"""The mean-expansion layer: a buffer, not a parameter, and at home in any network.

Legend: P agents, B batch, n actions.
"""

import copy
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

import valueshare as vs
from valueshare import MeanExpansion, append_mean_expansion
from valueshare.benchmarks.layer import measure, nature_network
from valueshare.extras import install_command


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b)


# The layer by itself.


def test_the_layer_is_the_papers() -> None:
    """Figure 1: (3, 1) has mean 2; with k = 2 the mean becomes 6 and the differences stay."""
    assert MeanExpansion(2)(torch.tensor([3.0, 1.0])).tolist() == [7.0, 5.0]


@pytest.mark.parametrize("k", [0, 1, 18, 0.1, 32_768])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_layer_is_expand(k: float, dtype: torch.dtype) -> None:
    z = torch.randn(7, 18, dtype=dtype)
    for layer in (MeanExpansion(k, dtype=dtype), MeanExpansion(k)):  # a float32 scale rounds once
        q = layer(z)
        assert q.dtype == dtype
        tolerance = max(torch.finfo(dtype).eps, 2**-23) * (k + 1)
        torch.testing.assert_close(q, vs.expand(z, k), rtol=0, atol=4 * tolerance)
    assert torch.equal(MeanExpansion(k, dtype=dtype)(z), vs.expand(z, k))


def test_the_scale_is_a_buffer() -> None:
    layer = MeanExpansion(4)
    assert list(layer.parameters()) == []
    assert [name for name, _ in layer.named_buffers()] == ["scale"]
    assert layer.state_dict()["scale"].item() == 5  # k + 1
    other = MeanExpansion(0)
    other.load_state_dict(layer.state_dict())
    assert other(torch.tensor([3.0, 1.0])).tolist() == [11.0, 9.0]  # mean 2 -> 10


def test_the_scale_follows_to() -> None:
    layer = MeanExpansion(4).to(torch.float64)
    assert layer.scale.dtype == torch.float64
    assert layer.to("meta").scale.is_meta


def test_the_gradient_is_the_symmetric_matrix() -> None:
    z = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    q = MeanExpansion(2)(z)
    (gradient,) = torch.autograd.grad(q[1], z)  # row 1 of I + (2/4) J
    assert gradient.tolist() == [0.5, 1.5, 0.5, 0.5]


@pytest.mark.parametrize(("k", "shown"), [(0, "k=0"), (18, "k=18"), (0.1, "k=0.1"), (32_768, "k=32768")])
def test_repr_shows_k(k: float, shown: str) -> None:
    assert repr(MeanExpansion(k)) == f"MeanExpansion({shown})"
    assert repr(MeanExpansion(k).to("meta")) == "MeanExpansion(k=one per agent)"


@pytest.mark.parametrize(("k", "dtype"), [(1e300, torch.float32), (1e300, None), (1e5, torch.float16)])
def test_a_k_beyond_the_numbers_of_the_layer_is_refused(k: float, dtype: torch.dtype | None) -> None:
    with pytest.raises(vs.InvalidInput, match=r"k \+ 1 is larger than any number of torch\.float"):
        MeanExpansion(k, dtype=dtype)
    assert torch.isfinite(MeanExpansion(1e300, dtype=torch.float64).scale)


@pytest.mark.parametrize("k", [-1, -0.5, float("nan"), float("inf"), torch.tensor(-2.0)])
def test_k_outside_its_range_is_refused(k: float) -> None:
    rule = rf"^`k = {float(k):g}.*`: the mean-scaling coefficient is a finite number >= 0"
    with pytest.raises(ValueError, match=rule):
        MeanExpansion(k)
    with pytest.raises(ValueError, match=rule):
        append_mean_expansion(nn.Linear(2, 2), k)


# One k an agent, and compilation.


def small_network(k: float) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4), MeanExpansion(k)).double()


def test_stacked_agents_have_their_own_k() -> None:
    ks = [0.0, 1.0, 4.0, 100.0]
    agents = [small_network(k) for k in ks]
    params, buffers = torch.func.stack_module_state(agents)
    assert buffers["3.scale"].tolist() == [1, 2, 5, 101]  # [P]
    template = copy.deepcopy(agents[0]).to("meta")
    x = torch.randn(4, 5, 6, dtype=torch.float64)  # [P, B, features]

    def loss(
        params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q = torch.func.functional_call(template, (params, buffers), (x,))
        return q.square().mean(), q

    grads, q = torch.func.vmap(torch.func.grad(loss, has_aux=True))(params, buffers, x)
    for p, agent in enumerate(agents):
        alone = agent(x[p])
        close(q[p], alone)
        alone.square().mean().backward()
        for name, weight in agent.named_parameters():
            assert weight.grad is not None
            close(grads[name][p], weight.grad)


def compiled_matches(backend: str) -> None:
    network, x = small_network(18), torch.randn(5, 6, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(network, fullgraph=True, backend=backend)
    weight = network.get_parameter("0.weight")
    (expected,) = torch.autograd.grad(network(x).square().sum(), weight)
    (found,) = torch.autograd.grad(compiled(x).square().sum(), weight)
    close(compiled(x), network(x))
    close(found, expected)


def test_the_layer_compiles_without_a_graph_break() -> None:
    compiled_matches("aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated:DeprecationWarning")  # PyTorch's own use
def test_the_layer_compiles_to_machine_code() -> None:
    compiled_matches("inductor")


# Appending the layer to networks of every form.


class Attributes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.torso = nn.Linear(6, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.head(torch.relu(self.torso(x)))
        return q


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"net": Attributes()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.inner["net"](x)
        return q


class Listed(nn.Module):
    """Its last layer has two names, and `forward` uses the second."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 16), nn.Linear(16, 4)])
        self.head = self.layers[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.head(torch.relu(self.layers[0](x)))
        return q


class Keyed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"torso": nn.Linear(6, 16), "q": nn.Linear(16, 4)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.layers["q"](torch.relu(self.layers["torso"](x)))
        return q


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "sequential": lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)),
    "activation last": lambda: nn.Sequential(nn.Linear(6, 4), nn.Identity()),
    "named sequential": lambda: nn.Sequential(
        OrderedDict(torso=nn.Linear(6, 16), head=nn.Sequential(nn.ReLU(), nn.Linear(16, 4)))
    ),
    "attribute": Attributes,
    "nested": Nested,
    "list": Listed,
    "dictionary": Keyed,
    "sequential of one layer": lambda: nn.Sequential(nn.Linear(6, 4)),
}
every_network = pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS.keys())


@every_network
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_appending_expands_the_output(build: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    network, x = build().to(dtype).eval(), torch.randn(5, 6, dtype=dtype)
    z = network(x).detach()
    expanded = append_mean_expansion(network, 0.1)
    q = expanded(x)
    assert q.dtype == dtype
    assert torch.equal(q, vs.expand(z, 0.1))
    assert not any(m.training for m in expanded.modules())  # eval() before stays eval() after


@every_network
def test_appending_copies_nothing(build: Callable[[], nn.Module]) -> None:
    network = build()
    before = list(network.parameters())
    places = [p.data_ptr() for p in before]
    expanded = append_mean_expansion(network, 3)
    after = list(expanded.parameters())
    assert all(a is b for a, b in zip(after, before, strict=True))
    assert [p.data_ptr() for p in after] == places
    assert expanded is network


@every_network
def test_an_earlier_optimizer_goes_on(build: Callable[[], nn.Module]) -> None:
    network, x = build(), torch.randn(5, 6)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    network = append_mean_expansion(network, 3)
    bias = list(network.parameters())[-1]  # of the last linear layer: q = ... + M_k bias
    start = bias.detach().clone()
    network(x)[0, 0].backward()
    optimizer.step()
    # the gradient of q_0 in the bias is row 0 of I + (3/4) J, times lr 0.5
    close(start - bias.detach(), torch.tensor([0.875, 0.375, 0.375, 0.375]))


@every_network
def test_a_second_layer_is_refused(build: Callable[[], nn.Module]) -> None:
    network = append_mean_expansion(build(), 3)
    structure = repr(network)
    with pytest.raises(vs.InvalidInput, match="has a mean-expansion layer already"):
        append_mean_expansion(network, 3)
    assert repr(network) == structure


def test_after_names_another_layer() -> None:
    network, x = Attributes(), torch.randn(5, 6)
    hidden = network.torso(x)
    append_mean_expansion(network, 3, after="torso")
    close(network.torso(x), vs.expand(hidden, 3))
    assert isinstance(network.head, nn.Linear)


def test_after_reaches_into_nested_networks() -> None:
    network = Nested()
    append_mean_expansion(network, 3, after="inner.net.torso")
    assert [name for name, _ in network.named_buffers()] == ["inner.net.torso.1.scale"]


def test_after_must_name_a_linear_layer() -> None:
    for wrong in ("body", "", "head.weight"):
        with pytest.raises(vs.InvalidInput, match=rf"^`after = '{wrong}'`: .* are torso, head$"):
            append_mean_expansion(Attributes(), 3, after=wrong)


def in_order(**layers: nn.Module) -> nn.Module:
    """A module with these layers, in this order of registration."""
    network = nn.Module()
    for name, layer in layers.items():
        network.add_module(name, layer)
    return network


def test_a_hidden_layer_that_was_registered_last_is_refused() -> None:
    network = in_order(out=nn.Linear(16, 4), first=nn.Linear(8, 32), second=nn.Linear(32, 16))
    message = r"^'second' is the last .* but 'out' .* write `after = 'out'`; if not, `after = 'second'`$"
    with pytest.raises(vs.InvalidInput, match=message):
        append_mean_expansion(network, 3)
    append_mean_expansion(network, 3, after="out")
    assert [name for name, _ in network.named_buffers()] == ["out.1.scale"]


@pytest.mark.parametrize("widths", [(4, 64, 4), (4, 64, 32, 4), (4, 4), (4, 4, 4)])
def test_as_many_actions_as_observations_are_no_reason_to_refuse(widths: tuple[int, ...]) -> None:
    network = in_order(**{f"layer{i}": nn.Linear(a, b) for i, (a, b) in enumerate(pairwise(widths))})
    append_mean_expansion(network, 3)
    assert [name for name, _ in network.named_buffers()] == [f"layer{len(widths) - 2}.1.scale"]


# Networks in which the layer would have no effect, or only on other outputs.


def test_a_network_of_one_linear_layer_is_refused() -> None:
    """It cannot be changed in place, and a caller who ignores the returned network would train without the layer."""
    network, x = nn.Linear(6, 4), torch.randn(5, 6)
    message = r"^a network that is one linear layer .* torch\.nn\.Sequential\(network, MeanExpansion\(k, n=4\)\)$"
    with pytest.raises(vs.InvalidInput, match=message):
        append_mean_expansion(network, "n")
    close(nn.Sequential(network, MeanExpansion("n", n=4))(x), vs.expand(network(x), 4))  # what the message says


def mlp(*widths: int) -> nn.Sequential:
    first, *rest = (nn.Linear(*pair) for pair in pairwise(widths))
    return nn.Sequential(first, *(module for linear in rest for module in (nn.ReLU(), linear)))


SIDE_BY_SIDE: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "an auxiliary output": (lambda: in_order(q=nn.Linear(4, 3), aux=nn.Linear(4, 5)), "q", "aux"),
    "twin heads": (lambda: in_order(fc=nn.Linear(4, 64), q1=nn.Linear(64, 2), q2=nn.Linear(64, 2)), "q1", "q2"),
    "as many actions as inputs": (
        lambda: in_order(fc=nn.Linear(4, 64), q1=nn.Linear(64, 4), q2=nn.Linear(64, 4)),
        "q1",
        "q2",
    ),
    "an output of one network": (
        lambda: in_order(body=mlp(4, 64, 64), q=nn.Linear(64, 2), reward=nn.Linear(64, 6), aux=nn.Linear(64, 3)),
        "q",
        "aux",
    ),
    "a gate before one of them": (
        lambda: in_order(fc=nn.Linear(4, 128), glu=nn.GLU(), q=nn.Linear(64, 8), aux=nn.Linear(64, 5)),
        "q",
        "aux",
    ),
    "twin networks": (lambda: nn.ModuleDict({"q1": mlp(4, 64, 64, 2), "q2": mlp(4, 64, 64, 2)}), "q1.4", "q2.4"),
    "an ensemble": (lambda: nn.ModuleList(nn.Linear(8, 3) for _ in range(4)), "0", "3"),
}


@pytest.mark.parametrize(("make", "first", "last"), SIDE_BY_SIDE.values(), ids=SIDE_BY_SIDE.keys())
def test_output_layers_side_by_side_are_refused_until_one_is_named(
    make: Callable[[], nn.Module], first: str, last: str
) -> None:
    network = make()
    structure = repr(network)
    with pytest.raises(
        vs.InvalidInput,
        match=rf"^'{first}' and '{last}' seem to stand .*: name the layer, `after = '{first}'` or `after = '{last}'`;",
    ):
        append_mean_expansion(network, 3)
    assert repr(network) == structure
    for name in (first, last):
        named = append_mean_expansion(make(), 3, after=name)
        assert [buffer for buffer, _ in named.named_buffers()] == [f"{name}.1.scale"]


class Attention(nn.Module):
    """A block of a transformer: no layer has 48 inputs, but the three parts of the first one's outputs are 16 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.projection = nn.Linear(16, 48), nn.Linear(16, 16)


IN_A_CHAIN: dict[str, Callable[[], nn.Module]] = {
    "hidden layers of one width": lambda: in_order(a=nn.Linear(8, 64), b=nn.Linear(64, 64), c=nn.Linear(64, 4)),
    "a bottleneck": lambda: in_order(a=nn.Linear(64, 8), b=nn.Linear(8, 64), c=nn.Linear(64, 4)),
    "a sequence": lambda: nn.Sequential(nn.Linear(64, 32), nn.Unflatten(-1, (2, 16)), nn.Flatten(), nn.Linear(64, 4)),
    "a recurrent layer": lambda: nn.ModuleDict({"a": nn.Linear(64, 32), "gru": nn.GRU(32, 64), "q": nn.Linear(64, 4)}),
    "attention": lambda: nn.ModuleDict({"embed": nn.Linear(6, 16), "block": Attention(), "q": nn.Linear(16, 4)}),
    "a gated layer": lambda: in_order(
        torso=nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 128), nn.GLU()), q=nn.Linear(64, 4)
    ),
    "a gate of its own name": lambda: in_order(
        a=nn.Linear(8, 64), b=nn.Linear(64, 128), glu=nn.GLU(), q=nn.Linear(64, 4)
    ),
    "quantiles": lambda: in_order(
        state=nn.Linear(64, 32), tau=nn.Linear(64, 32), fc=nn.Linear(32, 64), q=nn.Linear(64, 4)
    ),
}


@pytest.mark.parametrize("make", IN_A_CHAIN.values(), ids=IN_A_CHAIN.keys())
def test_layers_one_after_the_other_are_not_doubted(make: Callable[[], nn.Module]) -> None:
    network = make()
    last = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)][-1]
    append_mean_expansion(network, 3)
    assert [name for name, _ in network.named_buffers()] == [f"{last}.1.scale"]


def test_a_forward_that_reads_the_weights_finds_them_in_the_first_part() -> None:
    network = Attributes()
    weight = network.head.weight
    append_mean_expansion(network, 3)
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'weight'"):
        _ = network.head.weight
    assert network.get_submodule("head.0").weight is weight


class Squashed(nn.Module):
    """One that registers what makes probabilities after its layers, wherever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.torso, self.head, self.squash = nn.Linear(6, 4), nn.Linear(4, 3), nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.head(self.squash(self.torso(x)))
        return q


@pytest.mark.parametrize("last", [nn.Softmax(-1), nn.LogSoftmax(-1), nn.Sigmoid()])
def test_probabilities_are_no_action_values(last: nn.Module) -> None:
    network = nn.Sequential(nn.Linear(6, 4), nn.Sigmoid(), nn.Linear(4, 3), nn.Identity(), last)
    structure = repr(network)
    message = rf"^{type(last).__name__} follows the linear layer '2', and probabilities are no"
    for after in (None, "2"):
        with pytest.raises(vs.InvalidInput, match=message):
            append_mean_expansion(network, 3, after=after)
    nested = nn.Sequential(nn.Sequential(nn.Linear(6, 3)), last)
    with pytest.raises(vs.InvalidInput, match=r"follows the linear layer '0\.0'"):
        append_mean_expansion(nested, 3)
    assert repr(network) == structure
    append_mean_expansion(network[:3], 3)  # what is squashed inside does not matter


def test_an_activation_registered_last_is_no_output_where_the_layer_is_named() -> None:
    with pytest.raises(vs.InvalidInput, match=r"name the output layer with `after`$"):
        append_mean_expansion(Squashed(), 3)
    network, x = Squashed(), torch.randn(5, 6)
    before = network(x)
    close(append_mean_expansion(network, 3, after="head")(x), vs.expand(before, 3))


@pytest.mark.parametrize("network", ["net", None, 3, nn.Linear])
def test_only_modules_are_networks(network: object) -> None:
    with pytest.raises(vs.InvalidInput, match=r"^module is given as \w+: give a torch\.nn\.Module$"):
        append_mean_expansion(network, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", ["3", None, [1.0], torch.ones(2)])
def test_only_numbers_are_k(k: object) -> None:
    network = Attributes()
    with pytest.raises(vs.InvalidInput, match=r"^(k is given as \w+|`k = '3'`): write a number, like 4\.0, or 'n'$"):
        append_mean_expansion(network, k)  # type: ignore[arg-type]
    assert isinstance(network.head, nn.Linear)


def test_a_layer_that_knows_n_refuses_another_number_of_actions() -> None:
    for k in ("n", 2.0):
        layer, z = MeanExpansion(k, n=3), torch.randn(5, 4)
        for function in (layer, torch.compile(layer, backend="eager", fullgraph=True)):
            close(function(z[:, :3]), vs.expand(z[:, :3], 3.0 if k == "n" else k))
        with pytest.raises(vs.InvalidInput, match=r"^the layer is made for n = 3 actions, and its input has shape"):
            layer(z)
    close(MeanExpansion(2)(z), vs.expand(z, 2))  # any number
    close(torch.jit.script(MeanExpansion("n", n=4))(z), vs.expand(z, 4))


def test_n_may_be_a_capital_letter() -> None:
    assert MeanExpansion("N", n=3).scale.item() == 4.0
    assert append_mean_expansion(nn.Sequential(nn.Linear(6, 5)), "N").state_dict()["0.1.scale"].item() == 6.0


def test_a_network_without_a_linear_layer_is_refused() -> None:
    for network in (nn.Conv2d(3, 4, 1), nn.Sequential(), nn.Sequential(nn.ReLU())):
        with pytest.raises(vs.InvalidInput, match=r"^no torch\.nn\.Linear in this network"):
            append_mean_expansion(network, 3)


def test_without_torch_the_message_says_what_to_install() -> None:
    program = """
import sys
sys.modules["torch"] = None
import valueshare
assert valueshare.expand([3.0, 1.0], 2).tolist() == [7.0, 5.0]  # the transform needs no PyTorch
valueshare.MeanExpansion
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    message = f"the mean-expansion layer needs PyTorch: {install_command('torch')}"
    assert last == f"ModuleNotFoundError: {message}"


# The benchmark of its cost.


def test_the_benchmark_times_the_nature_network() -> None:
    # 4·32·64 + 32, 32·64·16 + 64, 64·64·9 + 64, 3136·512 + 512, 512·18 + 18 weights and biases
    weights = 8_224 + 32_832 + 36_928 + 1_606_144 + 9_234
    assert sum(p.numel() for p in nature_network(18).parameters()) == weights
    rows = measure("cpu", repeats=2, batch_size=1, actions=3)
    assert [row.part for row in rows] == ["without, cpu", "without, again, cpu", "with, cpu", "the layer alone, cpu"]
    assert rows[0].share == 1
    assert all(row.ms > 0 and row.rate == pytest.approx(1e3 / row.ms) for row in rows)
    assert rows[3].ms < rows[0].ms
    low, high = re.findall(r"[0-9.]+", rows[2].note)[1:3]
    assert float(low) <= round(1 / (rows[2].share or 0), 3) <= float(high)
    assert rows[3].share is None
