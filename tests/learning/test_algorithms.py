"""Losses of whole algorithms against loops, and each agent's gradient against its own alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from valueshare.algorithm_info import ALGORITHM_INFO, setting_readers, unread_settings, without_layer
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import ALGORITHMS, Forward, LossSettings, QuantileCounts, Taus, draw_taus
from valueshare.learning.randomness import stream_keys
from valueshare.nn.torsos import NetworkShape
from valueshare.population.settings import GENERIC, PER_AGENT, SETTINGS
from valueshare.replay.transitions import Batch

torch.set_num_threads(1)
P, B, D, A = 3, 8, 6, 4
IMAGE = (2, 36, 40)
SAMPLES = QuantileCounts(learn=7, target=6, act=5)
# What losses read: shared settings at their defaults, per-agent ones different for each agent.
SETTINGS_OF_LOSSES = LossSettings(
    **{
        name: GENERIC[name] * torch.tensor([0.5, 1.0, 2.0]) if name in PER_AGENT else GENERIC[name]
        for name in LossSettings._fields
    }
)._replace(beta=torch.tensor([0.0, 0.001, 0.5]))
KEYS = stream_keys(range(P), "tau")
# Which algorithms share a network and a loss, and what each reads beside the settings that all read. Written out and
# not derived, so that a mistake in the code is seen; a new algorithm needs no entry.
FAMILIES = [["double-dqn", "ib-double-dqn"], ["dqn", "ib-dqn"], ["dueling-dqn"], ["iqn", "ib-iqn"], ["rdq"]]
_IQN = {"quantiles", "target_quantiles", "acting_quantiles", "kappa"}
READS: dict[str, set[str]] = {
    "dqn": set(),
    "ib-dqn": {"k"},
    "double-dqn": set(),
    "ib-double-dqn": {"k"},
    "dueling-dqn": set(),
    "rdq": {"beta"},
    "iqn": _IQN,
    "ib-iqn": {"k"} | _IQN,
}


def networks_of(algorithm: str, first_seed: int, image: bool = False) -> list[nn.Module]:
    ks = [0.0, 1.0, 4.0] if ALGORITHMS[algorithm].uses_k else [0.0] * P
    shape = NetworkShape(IMAGE, A, (16,)) if image else NetworkShape((D,), A, (16, 12))
    networks = []
    for i, k in enumerate(ks):
        torch.manual_seed(first_seed + i)
        networks.append(ALGORITHMS[algorithm].build(shape, k))
    return networks


def batch_of(seed: int = 0, image: bool = False) -> Batch:
    g = torch.Generator().manual_seed(seed)

    def observations() -> Tensor:
        if image:
            return torch.randint(0, 256, (P, B, *IMAGE), generator=g, dtype=torch.uint8)
        return torch.randn(P, B, D, generator=g)

    discount = 0.9 * (torch.rand(P, B, generator=g) > 0.3).float()  # some transitions terminate
    return Batch(
        observations(),
        torch.randint(0, A, (P, B), generator=g),
        torch.randn(P, B, generator=g),
        discount,
        observations(),
    )


def taus_of(algorithm: str) -> Taus | None:
    return draw_taus(KEYS, 3, B, SAMPLES if ALGORITHMS[algorithm].is_quantile else QuantileCounts())


def row(batch: Batch, i: int) -> Batch:
    return Batch(*(x[i : i + 1] for x in batch))


def of_agent(i: int, **others: Any) -> LossSettings:
    """The settings of one agent, for a population of one."""
    own: list[Any] = [x[i : i + 1] if isinstance(x, Tensor) else x for x in SETTINGS_OF_LOSSES]
    return LossSettings(*own)._replace(**others)


def alone(network: nn.Module) -> Forward:
    """The forward pass of one module, for a population of one."""

    def forward(obs: Tensor, tau: Tensor | None) -> Tensor:
        outputs: Tensor = network(obs[0]) if tau is None else network(obs[0], tau[0])
        return outputs.unsqueeze(0)

    return forward


def together(network: nn.Module, state: dict[str, Tensor]) -> Forward:
    def forward(obs: Tensor, tau: Tensor | None) -> Tensor:
        inputs = (obs,) if tau is None else (obs, tau)

        def one(state: dict[str, Tensor], *inputs: Tensor) -> Tensor:
            outputs: Tensor = functional_call(network, state, inputs)
            return outputs

        outputs: Tensor = vmap(one)(state, *inputs)
        return outputs

    return forward


def naive_error(error: str, e: float) -> float:
    if error == "huber" and abs(e) > 1:
        return abs(e) - 0.5
    return 0.5 * e * e


def naive_loss(
    algorithm: str, online: nn.Module, target: nn.Module, t: Batch, b: int, error: str, beta: float
) -> float:
    """One transition's loss, from the modules and Python's arithmetic."""
    before, after = online(t.obs_tm1[b]).tolist(), target(t.obs_t[b]).tolist()
    selector = online(t.obs_t[b]).tolist() if "double" in algorithm else after
    penalty = 0.0
    if algorithm == "rdq":
        penalty = 0.5 * beta * sum(x * x for x in before)
        before = [z + before[-1] for z in before[:-1]]
        after = selector = [z + after[-1] for z in after[:-1]]
    best = max(range(A), key=selector.__getitem__)
    r, d, a = t.r_t[b].item(), t.discount_t[b].item(), int(t.a_tm1[b])
    return naive_error(error, r + d * after[best] - before[a]) + penalty


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if "iqn" not in a])
@pytest.mark.parametrize("error", ["half-squared", "huber"])
def test_loss_of_every_transition_against_a_loop(algorithm: str, error: str) -> None:
    online, target = networks_of(algorithm, 0), networks_of(algorithm, 50)
    batch = batch_of()
    for i in range(P):
        settings = of_agent(i, loss=error)
        loss, outputs_tm1 = ALGORITHMS[algorithm].loss(
            alone(online[i]), alone(target[i]), row(batch, i), settings, None
        )
        assert loss.shape == (1, B)
        torch.testing.assert_close(outputs_tm1[0], online[i](batch.obs_tm1[i]))
        own = Batch(*(x[i] for x in batch))
        for b in range(B):
            expected = naive_loss(algorithm, online[i], target[i], own, b, error, settings.beta.item())
            assert loss[0, b].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("algorithm", ["iqn", "ib-iqn"])
@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_quantile_loss_of_every_transition_against_a_loop(algorithm: str, kappa: float) -> None:
    online, target = networks_of(algorithm, 0), networks_of(algorithm, 50)
    batch, tau = batch_of(), draw_taus(KEYS, 3, B, SAMPLES)
    assert tau is not None
    for i in range(P):
        own_tau = Taus(*(x[i : i + 1] for x in tau))
        settings = of_agent(i, kappa=kappa)
        loss, outputs_tm1 = ALGORITHMS[algorithm].loss(
            alone(online[i]), alone(target[i]), row(batch, i), settings, own_tau
        )
        torch.testing.assert_close(outputs_tm1[0], online[i](batch.obs_tm1[i], tau.learn[i]))
        for b in range(B):
            before = online[i](batch.obs_tm1[i, b], tau.learn[i, b])[:, batch.a_tm1[i, b]].tolist()
            choice = int(target[i](batch.obs_t[i, b], tau.act[i, b]).mean(0).argmax())
            after = target[i](batch.obs_t[i, b], tau.target[i, b])[:, choice].tolist()
            total = 0.0
            for quantile, share in zip(before, tau.learn[i, b].tolist(), strict=True):
                for value in after:
                    r, d = batch.r_t[i, b].item(), batch.discount_t[i, b].item()
                    e = r + d * value - quantile
                    size = abs(e)
                    h = 0.5 * e * e if size <= kappa else kappa * (size - 0.5 * kappa)
                    total += abs(share - (e < 0)) * h / kappa / len(after)
            assert loss[0, b].item() == pytest.approx(total, rel=1e-4, abs=1e-5)


def population_gradients(algorithm: str, functional: bool, image: bool) -> dict[str, Tensor]:
    """Gradients of the sum over agents of the mean over the batch."""
    online, target = networks_of(algorithm, 0, image), networks_of(algorithm, 50, image)
    parameters, buffers = stack_module_state(online)
    target_state = {k: v.detach() for part in stack_module_state(target) for k, v in part.items()}
    target_forward = together(target[0], target_state)
    batch, tau, settings = batch_of(image=image), taus_of(algorithm), SETTINGS_OF_LOSSES

    def total(parameters: dict[str, Tensor]) -> Tensor:
        forward = together(online[0], {**parameters, **buffers})
        loss = ALGORITHMS[algorithm].loss(forward, target_forward, batch, settings, tau).loss
        assert loss.shape == (P, B)
        return loss.mean(1).sum()

    if functional:
        detached = {name: p.detach() for name, p in parameters.items()}
        gradients: dict[str, Tensor] = grad(total)(detached)
        return gradients
    values = torch.autograd.grad(total(parameters), list(parameters.values()))
    return dict(zip(parameters, values, strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("image", [False, True], ids=["vector", "image"])
@pytest.mark.parametrize("functional", [False, True], ids=["autograd", "func"])
def test_each_agents_gradient_is_the_one_it_has_alone(algorithm: str, functional: bool, image: bool) -> None:
    gradients = population_gradients(algorithm, functional, image)
    online, target = networks_of(algorithm, 0, image), networks_of(algorithm, 50, image)
    batch, tau = batch_of(image=image), taus_of(algorithm)
    for i in range(P):
        own_tau = None if tau is None else Taus(*(x[i : i + 1] for x in tau))
        settings = of_agent(i)
        loss, _ = ALGORITHMS[algorithm].loss(alone(online[i]), alone(target[i]), row(batch, i), settings, own_tau)
        loss.mean().backward()  # type: ignore[no-untyped-call]
        for name, p in online[i].named_parameters():
            assert p.grad is not None
            assert p.grad.any(), name
            torch.testing.assert_close(gradients[name][i], p.grad, rtol=1e-4, atol=1e-6)
        assert all(p.grad is None for p in target[i].parameters())


@pytest.mark.parametrize("algorithm", ["ib-dqn", "ib-double-dqn", "rdq", "ib-iqn"])  # each loss
def test_loss_compiles_whole(algorithm: str) -> None:
    online, target = networks_of(algorithm, 0), networks_of(algorithm, 50)
    parts = stack_module_state(online)
    state = {k: v.detach() for part in parts for k, v in part.items()}
    other = {k: v.detach() for part in stack_module_state(target) for k, v in part.items()}
    batch, tau, settings = batch_of(), taus_of(algorithm), SETTINGS_OF_LOSSES

    def loss(state: dict[str, Tensor], batch: Batch) -> Tensor:
        forwards = together(online[0], state), together(target[0], other)
        return ALGORITHMS[algorithm].loss(*forwards, batch, settings, tau).loss

    compiled: Callable[..., Tensor] = torch.compile(loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(state, batch), loss(state, batch))


def test_double_targets_differ_from_single_ones_where_the_networks_disagree() -> None:
    """And only there: so that the comparisons with loops above do see the difference."""
    online, target, batch = networks_of("dqn", 0), networks_of("dqn", 50), batch_of()
    differ, disagree = [], []
    for i in range(P):
        forwards, own = (alone(online[i]), alone(target[i])), row(batch, i)
        single = ALGORITHMS["dqn"].loss(*forwards, own, of_agent(0), None).loss
        double = ALGORITHMS["double-dqn"].loss(*forwards, own, of_agent(0), None).loss
        differ += (single != double)[0].tolist()
        choices = [network(batch.obs_t[i]).argmax(-1) for network in (online[i], target[i])]
        disagree += ((choices[0] != choices[1]) & (batch.discount_t[i] > 0)).tolist()
    assert differ == disagree
    assert 3 < sum(disagree) < P * B


def test_every_algorithm_has_its_entry_in_the_table_without_code() -> None:
    assert {name: algorithm.info for name, algorithm in ALGORITHMS.items()} == ALGORITHM_INFO


def test_algorithms_read_the_settings_of_their_papers() -> None:
    known = set().union(*READS.values())
    for name, reads in READS.items():
        assert {setting for setting, readers in setting_readers().items() if name in readers} == reads
        assert unread_settings(name) & known == known - reads
        assert ALGORITHMS[name].uses_k == ("k" in reads)
    assert not unread_settings("ppo")  # of another library: it may read any


def test_algorithms_read_settings_that_exist() -> None:
    assert set(setting_readers()) <= {"k", *SETTINGS}
    for name, info in ALGORITHM_INFO.items():
        assert unread_settings(name) | set(info.reads) == set(setting_readers())
        assert not unread_settings(name) & set(info.reads)


def test_losses_read_settings_that_exist() -> None:
    assert set(LossSettings._fields) <= set(SETTINGS)


def test_what_may_share_a_population() -> None:
    by_key: dict[object, list[str]] = {}
    for name in READS:
        by_key.setdefault(ALGORITHMS[name].population_key, []).append(name)
    assert sorted(by_key.values()) == FAMILIES
    for family in FAMILIES:
        values = [ALGORITHMS[name]._replace(info=ALGORITHM_INFO["dqn"]) for name in family]
        assert all(value == values[0] for value in values)  # one network, one loss


def test_only_the_layer_may_differ_in_a_population() -> None:
    """Of algorithms that are not in the tables above, too."""
    for name, algorithm in ALGORITHMS.items():
        for other, its in ALGORITHMS.items():
            same_but_for_layer = without_layer(name) == without_layer(other)
            assert (algorithm.population_key == its.population_key) == same_but_for_layer
            assert (algorithm._replace(info=its.info) == its) == same_but_for_layer


def test_the_layer_changes_label_and_k_alone() -> None:
    labels = {"ib-dqn": "IB-DQN", "ib-double-dqn": "IB-Double DQN", "ib-iqn": "IB-IQN"}
    assert {name: ALGORITHM_INFO[name].label for name in labels} == labels
    for name in labels:
        plain, layered = ALGORITHM_INFO[without_layer(name)], ALGORITHM_INFO[name]
        assert set(layered.reads) == READS[without_layer(name)] | {"k"}
        assert layered == plain._replace(label=layered.label, reads=layered.reads)
    for name in set(ALGORITHMS) - set(READS):
        plain = ALGORITHM_INFO[without_layer(name)]
        assert ALGORITHM_INFO[name] in (plain, plain._replace(label=f"IB-{plain.label}", reads=("k", *plain.reads)))


def test_taus_are_of_each_agent_its_own_and_split_without_overlap() -> None:
    tau = draw_taus(KEYS, 3, B, SAMPLES)
    assert tau is not None
    assert [tuple(x.shape) for x in tau] == [(P, B, 7), (P, B, 6), (P, B, 5)]
    drawn = torch.cat([x.flatten() for x in tau])
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert len(torch.unique(drawn)) == P * B * 18
    single = draw_taus(KEYS[1:2], 3, B, SAMPLES)
    assert single is not None
    assert torch.equal(single.target, tau.target[1:2])
    assert draw_taus(KEYS, 3, B, QuantileCounts()) is None


def test_a_quantile_loss_without_quantiles_says_what_to_give() -> None:
    forward = alone(networks_of("iqn", 0)[0])
    with pytest.raises(InvalidInput, match="draw_taus"):
        ALGORITHMS["iqn"].loss(forward, forward, row(batch_of(), 0), of_agent(0), None)
