"""Population optimisers against torch.optim of each agent alone, and against loops in NumPy."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from valueshare.learning import fused, optim
from valueshare.learning.optim import Moments, adam_, rmsprop_, zero_moments

P = 4
SHAPES = {"weight": (3, 2), "bias": (3,), "scalar": ()}
STEP_SIZE = torch.tensor([1e-3, 1e-2, 3e-4, 0.5])
ALL = torch.ones(P, dtype=torch.bool)
UPDATES: dict[str, Callable[..., None]] = {"adam": adam_, "rmsprop": rmsprop_}
torch.set_num_threads(1)


@pytest.fixture(autouse=True, params=["one pass", "operations of PyTorch"])
def _both_forms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is one of both forms: that of a CPU, and that of a GPU and the compiler."""
    if request.param == "operations of PyTorch":
        monkeypatch.setattr(optim, "_use_fused", lambda *tensors: False)


def stacked(seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(P, *shape, generator=generator) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_adam_is_torch_adam_of_each_agent_alone(scale: float) -> None:
    parameters = stacked(0)
    alone = [{name: p[i].clone() for name, p in parameters.items()} for i in range(P)]
    optimizers = [
        torch.optim.Adam(agent.values(), lr=STEP_SIZE[i].item(), eps=3.125e-4) for i, agent in enumerate(alone)
    ]
    moments = zero_moments(parameters)
    for t in range(20):
        gradients = stacked(100 + t, scale)
        adam_(parameters, gradients, moments, STEP_SIZE, ALL, epsilon=3.125e-4)
        for i, agent in enumerate(alone):
            for name, p in agent.items():
                p.grad = gradients[name][i]
            optimizers[i].step()
            for name, p in agent.items():
                torch.testing.assert_close(parameters[name][i], p, rtol=2e-5, atol=2e-6)
    assert moments.updates.tolist() == [20] * P


def test_adam_without_memory_is_sign_descent() -> None:
    """With both betas 0, m̂ = g and v̂ = g² at every step: p -= alpha·g/(|g| + eps)."""
    parameters = stacked(0)
    expected = {name: p.clone() for name, p in parameters.items()}
    moments = zero_moments(parameters)
    for t in range(3):
        gradients = stacked(100 + t)
        adam_(parameters, gradients, moments, STEP_SIZE, ALL, beta1=0.0, beta2=0.0, epsilon=0.5)
        for name, p in expected.items():
            for i in range(P):
                g = gradients[name][i]
                p[i] -= STEP_SIZE[i] * g / (g.abs() + 0.5)
            torch.testing.assert_close(parameters[name], p)


def test_adams_first_step_by_hand() -> None:
    """m̂ = g, v̂ = g²: the step is alpha·g/(|g| + eps), here 0.1·3/(3 + 1) = 0.075."""
    parameters = {"w": torch.tensor([[1.0]])}
    adam_(
        parameters,
        {"w": torch.tensor([[3.0]])},
        zero_moments(parameters),
        torch.tensor([0.1]),
        torch.tensor([True]),
        epsilon=1.0,
    )
    assert parameters["w"].item() == pytest.approx(1 - 0.075, abs=1e-7)


def test_rmsprop_against_a_loop_with_epsilon_inside_the_root() -> None:
    parameters = {name: p.double() for name, p in stacked(1).items()}
    moments = zero_moments(parameters)
    expected = {name: p.numpy().copy() for name, p in parameters.items()}
    m = {name: np.zeros_like(p) for name, p in expected.items()}
    v = {name: np.zeros_like(p) for name, p in expected.items()}
    for t in range(20):
        gradients = {name: g.double() for name, g in stacked(200 + t).items()}
        rmsprop_(parameters, gradients, moments, STEP_SIZE.double(), ALL)
        for name, p in expected.items():
            g = gradients[name].numpy()
            m[name] = 0.95 * m[name] + 0.05 * g
            v[name] = 0.95 * v[name] + 0.05 * g * g
            for i in range(P):
                root = np.sqrt(v[name][i] - m[name][i] ** 2 + 0.01)
                p[i] -= STEP_SIZE[i].item() * g[i] / root
            np.testing.assert_allclose(parameters[name].numpy(), p, rtol=1e-9, atol=1e-12)


def test_rmsprops_first_step_by_hand() -> None:
    """m = 0.1, v = 0.2, g = 2: step 1·2/sqrt(0.2 - 0.01 + 0.01) = 4.472; outside it were 4.486."""
    parameters = {"w": torch.tensor([[0.0]])}
    rmsprop_(
        parameters,
        {"w": torch.tensor([[2.0]])},
        zero_moments(parameters),
        torch.tensor([1.0]),
        torch.tensor([True]),
    )
    assert parameters["w"].item() == pytest.approx(-2 / 0.2**0.5, rel=1e-6)


def test_rmsprop_survives_rounding_of_a_constant_gradient() -> None:
    """v - m² of a constant gradient tends to 0, and in float32 may end below it."""
    parameters = {"w": torch.zeros(1, 64)}
    moments = zero_moments(parameters)
    constant = {"w": torch.linspace(900, 1100, 64).unsqueeze(0)}
    for _ in range(500):
        rmsprop_(parameters, constant, moments, torch.tensor([1e-3]), torch.tensor([True]))
    assert (moments.second["w"] - moments.first["w"] ** 2).min() < -0.01  # where it would be NaN
    assert torch.isfinite(parameters["w"]).all()


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moments_of_a_gradient_that_stays_0_end_at_0(update: Callable[..., None], dtype: torch.dtype) -> None:
    """Not at a subnormal number, with which a CPU computes slowly: rounded to nearest, 0.9 times 5e-324 is 5e-324."""
    parameters = {"w": torch.zeros(P, 2, dtype=dtype)}
    moments = zero_moments(parameters)
    both = moments.first["w"], moments.second["w"]
    for moment in both:
        moment[:] = torch.tensor([torch.finfo(dtype).smallest_normal, 1.0], dtype=dtype)
    moments.first["w"][1] *= -1
    before = copies(*both)
    active = torch.tensor([True, True, True, False])
    update(parameters, {"w": torch.zeros_like(parameters["w"])}, moments, STEP_SIZE.to(dtype), active)
    for moment, old in zip(both, before, strict=True):
        assert moment[:3, 0].tolist() == [0.0] * 3
        assert (moment[:3, 1].abs() > 0.89).all()
        assert torch.equal(moment[3], old[3])


def test_small_moments_of_half_precision_are_kept() -> None:
    """Where numbers end at 6e-5, there are none to spare."""
    parameters = {"w": torch.zeros(P, 2, dtype=torch.float16)}
    moments = zero_moments(parameters)
    moments.first["w"][:] = 0.5
    ones = torch.ones(P, dtype=torch.float16)
    adam_(parameters, {"w": torch.zeros_like(parameters["w"])}, moments, ones, ones > 0)
    assert (moments.first["w"] - 0.45).abs().max() < 1e-3


def copies(*trees: Any) -> Any:
    return copy.deepcopy(trees)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_frozen_agents_keep_everything_and_the_others_go_on(update: Callable[..., None], poison: float) -> None:
    parameters = stacked(2)
    moments = zero_moments(parameters)
    for t in range(3):
        update(parameters, stacked(300 + t), moments, STEP_SIZE, ALL)
    moments.second["bias"][1] = float("inf")  # an agent may be frozen after its moments overflowed
    before, before_moments = copies(parameters, moments)
    active = torch.tensor([True, False, True, True])
    gradients = stacked(400)
    poisoned = {name: g.clone() for name, g in gradients.items()}
    for g in poisoned.values():
        g[1] = poison
    update(parameters, poisoned, moments, STEP_SIZE, active)
    for name in SHAPES:
        assert torch.equal(parameters[name][1], before[name][1])
        assert torch.equal(moments.first[name][1], before_moments.first[name][1])
        assert torch.equal(moments.second[name][1], before_moments.second[name][1])
    assert moments.updates.tolist() == [4, 3, 4, 4]
    update(before, gradients, before_moments, STEP_SIZE, ALL)
    for name in SHAPES:
        for i in (0, 2, 3):
            assert torch.equal(parameters[name][i], before[name][i])


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
def test_an_agent_frozen_from_the_start_stays_where_it_was(update: Callable[..., None]) -> None:
    parameters = stacked(3)
    before = copy.deepcopy(parameters)
    active = torch.tensor([False, True, True, True])
    update(parameters, stacked(4), zero_moments(parameters), STEP_SIZE, active)
    for name in SHAPES:
        assert torch.equal(parameters[name][0], before[name][0])
        assert not torch.equal(parameters[name][1], before[name][1])


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
def test_an_agent_alone_takes_the_same_steps(update: Callable[..., None]) -> None:
    parameters = stacked(5)
    alone = {name: p[2:3].clone() for name, p in parameters.items()}
    moments, alone_moments = zero_moments(parameters), zero_moments(alone)
    for t in range(5):
        gradients = stacked(500 + t)
        update(parameters, gradients, moments, STEP_SIZE, ALL)
        own = {name: g[2:3] for name, g in gradients.items()}
        update(alone, own, alone_moments, STEP_SIZE[2:3], ALL[2:3])
    for name in SHAPES:
        assert torch.equal(parameters[name][2:3], alone[name])


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
def test_compiled_whole_and_equal(update: Callable[..., None]) -> None:
    """Without a break in the graph: nothing is read on the host.

    Not to the bit: the compiler splits fused multiply-adds.
    """
    compiled = torch.compile(update, fullgraph=True, backend="eager")
    first, second = stacked(6), stacked(6)
    moments, others = zero_moments(first), zero_moments(second)
    for t in range(3):
        update(first, stacked(600 + t), moments, STEP_SIZE, ALL)
        compiled(second, stacked(600 + t), others, STEP_SIZE, ALL)
    for name in SHAPES:
        torch.testing.assert_close(first[name], second[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_compiled_updates_leave_frozen_agents_alone_too(update: Callable[..., None], poison: float) -> None:
    """A compiled Adam on a CPU is written in another way."""
    compiled = torch.compile(update, fullgraph=True, backend="eager")
    parameters, gradients = stacked(7), stacked(700)
    moments = zero_moments(parameters)
    moments.second["bias"][1] = float("inf")
    for g in gradients.values():
        g[1] = poison
    before, before_moments = copies(parameters, moments)
    compiled(parameters, gradients, moments, STEP_SIZE, torch.tensor([True, False, True, True]))
    for name in SHAPES:
        assert torch.equal(parameters[name][1], before[name][1])
        assert torch.equal(moments.first[name][1], before_moments.first[name][1])
        assert torch.equal(moments.second[name][1], before_moments.second[name][1])
        for i in (0, 2, 3):
            assert not torch.equal(parameters[name][i], before[name][i])
            assert parameters[name][i].isfinite().all()


def test_moments_start_at_zero_and_share_nothing() -> None:
    parameters = stacked(7)
    moments: Moments = zero_moments(parameters)
    for name, p in parameters.items():
        assert moments.first[name].shape == moments.second[name].shape == p.shape
        assert not moments.first[name].any()
        assert moments.first[name].data_ptr() != moments.second[name].data_ptr()
    assert moments.updates.tolist() == [0] * P


@pytest.mark.parametrize("update", UPDATES.values())
def test_threads_and_the_order_of_memory_change_no_bit(
    update: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights [P, out, in] that are stored as [P, in, out], gradients of another layout, and shares of threads."""
    monkeypatch.setattr(fused, "WEIGHTS_PER_THREAD", 1)
    gradient = torch.randn(P, 3, 5, generator=torch.Generator().manual_seed(1))
    results = []
    for transposed, threads in ((False, 1), (True, 1), (True, 3)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        weight = torch.linspace(-1, 1, P * 15).reshape(P, 3, 5)
        parameters = {"w": weight.mT.contiguous().mT if transposed else weight}
        moments = zero_moments(parameters)
        for _ in range(2):
            update(parameters, {"w": gradient}, moments, STEP_SIZE, ALL)
        assert parameters["w"].stride() == ((15, 1, 3) if transposed else (15, 5, 1))
        results.append((parameters["w"], moments.first["w"], moments.second["w"]))
    for others in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(results[0], others, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", ["agents innermost", "every other number"])
def test_other_layouts_and_types_are_updated_too(layout: str, dtype: torch.dtype) -> None:
    """Weights that are not one block per agent: the same numbers as with weights that are."""
    plain = torch.linspace(-1, 1, P * 6, dtype=dtype).reshape(P, 6)
    other = plain.T.contiguous().T if layout == "agents innermost" else torch.empty(P, 12, dtype=dtype)[:, ::2]
    other.copy_(plain)
    gradient = torch.randn(P, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    for weights in (plain, other):
        adam_({"w": weights}, {"w": gradient}, zero_moments({"w": weights}), STEP_SIZE, ALL)
    torch.testing.assert_close(other, plain, rtol=1e-6 if dtype != torch.bfloat16 else 1e-2, atol=1e-6)
