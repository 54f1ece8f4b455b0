"""Networks of one's own: the examples of docs/training.md run, and what cannot work is refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import valueshare
from valueshare import MeanExpansion
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn.torsos import NetworkShape
from valueshare.population import memory
from valueshare.population.network_check import check_network
from valueshare.runs.planning import make_plan

DOCS = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = DOCS.read_text().split("## Custom networks")[1].split("\n## ")[0]
    first, second = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"valueshare": valueshare, "__name__": "page"}
    exec(first, names)
    assert names["run"].finished
    assert names["run"].agents["k"].to_list() == [0, 0, 4, 4]
    exec(second, names)
    for folder in ("own", "own-iqn", "own-rdq"):
        assert valueshare.open_run(tmp_path / "runs" / folder).finished
    again = valueshare.resume("runs/own", network=names["network"], progress=False)
    assert again.records.equals(names["run"].records)


def check(network: Any, algorithm: str = "ib-dqn", k: tuple[float, ...] = (0, 4)) -> None:
    """CartPole-v1: observations [4], 2 actions; algorithms without a k are given none."""
    own = k if ALGORITHMS[algorithm].uses_k else 0.0
    for spec in make_plan("CartPole-v1", algorithm, k=own, seeds=1).populations.values():
        check_network(spec, network)


def linear(outputs: int, *more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, outputs), *more)


class ByQuantile(nn.Module):
    """Outputs [B, N, A], or with the last two axes exchanged."""

    def __init__(self, exchanged: bool) -> None:
        super().__init__()
        self.values, self.exchanged = nn.Linear(4, 2), exchanged

    def forward(self, observation: Tensor, tau: Tensor) -> Tensor:
        outputs: Tensor = self.values(observation).unsqueeze(-2) * tau.unsqueeze(-1)
        return outputs.transpose(-2, -1) if self.exchanged else outputs


class PlainK(nn.Module):
    """The layer's arithmetic with k as a plain number: q = z + k·mean(z)."""

    def __init__(self, k: float) -> None:
        super().__init__()
        self.z, self.k = nn.Linear(4, 2), k

    def forward(self, observation: Tensor) -> Tensor:
        z: Tensor = self.z(observation)
        return z + self.k * z.mean(-1, keepdim=True)


def _all(module: nn.Module, make: Callable[[Tensor], object]) -> None:
    for value in module.parameters():
        make(value)


def test_what_can_be_a_network() -> None:
    check(lambda shape, k: linear(2, nn.LayerNorm(2), MeanExpansion(k)), k=(0, 4, 32_768))
    check(lambda shape, k: linear(3), "rdq")
    check(lambda shape, k: ByQuantile(exchanged=False), "iqn")
    check(lambda shape, k: PlainK(k), k=(0,))  # nothing of it is lost
    zeros = nn.init.zeros_  # outputs are all 0 at first, whatever k is
    check(lambda shape, k: linear(2, MeanExpansion(k)).apply(lambda m: _all(m, zeros)))


@pytest.mark.parametrize(
    ("network", "algorithm", "message"),
    [
        (lambda s, k: linear(3), "ib-dqn", r"shape \[2, 3\] where \[2, 2\] is wanted: ib-dqn"),
        (lambda s, k: linear(2), "rdq", r"\[2, 3\] is wanted: rdq reads .*then the baseline"),
        (lambda s, k: ByQuantile(exchanged=True), "iqn", r"\[2, 2, 3\] where \[2, 3, 2\]"),
        (
            lambda s, k: linear(2),
            "iqn",
            r"cannot be run as a population .TypeError.* \[B, 4\] and quantiles of shape \[B, N\]; see docs",
        ),
        (
            lambda s, k: nn.Linear(3, 2),  # too few inputs
            "dqn",
            r"RuntimeError: .*: forward gets observations of shape \[B, 4\]; see docs/training\.md, 'Custom networks'$",
        ),
        (
            lambda s, k: linear(2, nn.Dropout()),
            "dqn",
            "^the network draws random numbers in forward, as Dropout does: remove that layer$",
        ),
        (lambda s, k: linear(2, nn.BatchNorm1d(2)), "dqn", r"buffer 1\.running_mean in forward"),
        (
            lambda s, k: linear(2, *([MeanExpansion(k)] if k else [])),
            "ib-dqn",
            "other weights or buffers for k = 4 than for k = 0",
        ),
        (lambda s, k: [linear(2)], "dqn", "returns list for k = 0: return one agent's module"),
        (lambda s, k: None, "dqn", "returns NoneType for k = 0"),
        (lambda s, k: nn.LazyLinear(2), "dqn", "weight has no shape yet, as in LazyLinear"),
        (lambda s: linear(2), "dqn", r"cannot be made for k = 0 .TypeError.*function of \(shape"),
        (lambda s, k: PlainK(k), "ib-dqn", "depends on k = 4 through state that is not a buffer"),
        (lambda s, k: linear(2), "ib-dqn", r"ignores k \(same output for k = 4 as for k = 0\)"),
    ],
)
def test_what_cannot(network: Any, algorithm: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        check(network, algorithm)
    assert "\n" not in str(caught.value)


def test_one_that_does_not_fit_is_never_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 100 * 10**6)
    built: list[str] = []

    def network(shape: NetworkShape, k: float) -> nn.Module:
        wide = nn.Linear(2_000, 2_000)  # 16 MB
        built.append(wide.weight.device.type)
        return nn.Sequential(nn.Linear(4, 2_000), wide, nn.Linear(2_000, 2))

    with pytest.raises(InvalidInput, match=r"0 would fit; write smaller layers"):
        valueshare.train("CartPole-v1", "dqn", network=network, out=tmp_path / "run")
    assert set(built) == {"meta"}
    assert list(tmp_path.iterdir()) == []


class Constant(nn.Module):
    """Multiplies by a tensor that is neither a parameter nor a buffer."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, x: Tensor) -> Tensor:
        return x * self.values


def starts_from_number(shape: NetworkShape, k: float) -> nn.Module:
    module = linear(2, MeanExpansion(k))
    scale = float(torch.linspace(1, 2, 3).mean())  # there is no such number on the meta device
    for value in module.parameters():
        nn.init.constant_(value, scale)
    return module


@pytest.mark.parametrize(
    "network",
    [
        starts_from_number,
        lambda s, k: linear(2, Constant(torch.tensor([1.0, 2.0])), MeanExpansion(k)),
        lambda s, k: linear(2, Constant(torch.from_numpy(np.ones(2, "f4"))), MeanExpansion(k)),
    ],
)
def test_what_needs_numbers_is_built_with_them(network: Any, tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = valueshare.train("CartPole-v1", k=[0, 4], seeds=1, network=network, out=tmp_path / "run", **tiny)
    assert run.finished


def test_what_is_kept_between_calls_is_refused(tmp_path: Path) -> None:
    first: list[nn.Module] = []

    def network(shape: NetworkShape, k: float) -> nn.Module:
        first.append(nn.Linear(4, 2))
        return nn.Sequential(first[0], MeanExpansion(k))

    with pytest.raises(InvalidInput, match=r"network's 0\.weight has no values: .* in each call"):
        valueshare.train("CartPole-v1", k=4, network=network, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_it_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is wanted"):
        valueshare.train("CartPole-v1", "dqn", network=lambda s, k: linear(3), out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_trying_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    check(lambda shape, k: linear(2, MeanExpansion(k)))
    assert torch.equal(torch.rand(2), expected)


def test_the_shape_has_the_settings() -> None:
    seen: list[NetworkShape] = []

    def network(shape: NetworkShape, k: float) -> nn.Module:
        seen.append(shape)
        return linear(2)

    plan = make_plan("CartPole-v1", "dqn", seeds=1, hidden=[7, 9], observation_scale=0.5)
    check_network(plan.populations["population-0"], network)
    assert set(seen) == {NetworkShape((4,), 2, (7, 9), 0.5, "pytorch")}
