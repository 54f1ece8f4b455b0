"""The compiled learners: hand arithmetic, gradients, textbook rules, and where they end up."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from replayed_runs import Replay
from scipy import stats

import valueshare as vs
from valueshare import FiniteMDP, gridworld, optimal_values, sweep
from valueshare.tabular import kernels
from valueshare.tabular.kernels import Rule, Runs
from valueshare.tabular.randomness import run_keys
from valueshare.tabular.rules import ALGORITHMS
from valueshare.tabular.sweep import empty_measurements, kernel_table

Floats = NDArray[np.float64]


def residuals_after(
    mdp: FiniteMDP,
    algorithm: str,
    k: float,
    step_size: float,
    steps: int,
    *,
    power: float = 0.0,
    epsilon: float = 0.1,
    seed: int = 0,
) -> Floats:
    """Z of one run after `steps` timesteps. Shape [S, n]."""
    k_of, size_of = np.array([k]), np.array([step_size])
    runs = Runs(run_keys(np.array([seed]), k_of, size_of), k_of, size_of)
    table = kernel_table(mdp)
    states, actions, successors = table.state.shape
    lane: Floats = np.empty((1, states, actions))
    kernels.learn(
        table,
        runs,
        Rule(ALGORITHMS[algorithm], epsilon, power),
        np.array([steps]),
        0,
        1,
        (0,) * actions,
        (0,) * successors,
        lane,
        empty_measurements(1, 1),
    )
    final: Floats = lane[0]
    return final


# By hand.


def corridor(actions: int = 2) -> FiniteMDP:
    """0 -> 1 -> the end, whatever is done; the first step pays 2, the second 4."""
    transition = np.zeros((3, actions, 3))
    transition[0, :, 1] = transition[1:, :, 2] = 1.0
    reward = np.zeros((3, actions, 3))
    reward[0], reward[1] = 2.0, 4.0
    return FiniteMDP(transition, reward, [1, 0, 0], [False, False, True], discount=0.5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", [0.0, 2.0])
def test_two_updates_by_hand(algorithm: str, k: float) -> None:
    """Step size 1/2, n = 2: the action taken moves by 1/2 δ (1 + k/2), the other by 1/2 δ k/2.

    All values begin at 0, so δ = 2 in state 0 and δ = 4 in state 1. With k = 0 the residuals are
    1 and 2 for what was done and 0 for the rest; with k = 2, 2 and 4, and 1 and 2.
    """
    z = residuals_after(corridor(), algorithm, k, 0.5, steps=2)
    done, rest = 1 + k / 2, k / 2
    np.testing.assert_allclose(np.sort(z[0]), [1 * rest, 1 * done], atol=1e-15)
    np.testing.assert_allclose(np.sort(z[1]), [2 * rest, 2 * done], atol=1e-15)
    assert (z[2] == 0).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("k", "expected"), [(0.0, [0.0, 2.0]), (2.0, [2.0, 4.0])])
def test_the_third_update_bootstraps(algorithm: str, k: float, expected: list[float]) -> None:
    """Without exploration all three rules do again what they did, and bootstrap from it.

    k = 0: Q is 1 and 2 for what was done, so δ = 2 + 1/2·2 - 1 = 2, and Z(0, a) = 1 + 1/2·2.
    k = 2: Z(0) = (2, 1) and Q(0) = Z(0) + 3 = (5, 4); Z(1) = (4, 2) and Q(1) = (10, 8). So
    δ = 2 + 1/2·10 - 5 = 2, and Z(0) = (2 + 1/2·2·2, 1 + 1/2·2·1).
    """
    z = residuals_after(corridor(), algorithm, k, 0.5, steps=3, epsilon=0.0)
    np.testing.assert_allclose(np.sort(z[0]), expected, atol=1e-14)


# Against gradients: a slow learner that replays the same random numbers.


def reference(
    mdp: FiniteMDP,
    algorithm: str,
    k: float,
    step_size: float,
    steps: int,
    update: Callable[[Floats, int, float, float, float], Floats],
    *,
    power: float,
    epsilon: float = 0.1,
    seed: int = 0,
) -> Floats:
    """Learn step by step; `update(z(s), a, target, k, step size)` answers the new z(s)."""
    replay = Replay(k, step_size, seed)
    z = np.zeros((mdp.states, mdp.actions))
    visits = np.zeros_like(z)
    state = replay.pick(replay.starts, 0, mdp.start)
    action = None
    for step in range(1, steps + 1):
        if action is None or algorithm != "sarsa":
            action = replay.act(z[state], epsilon, step)
        successor = replay.pick(replay.transitions, step, mdp.transition[state, action])
        ended = bool(mdp.terminal[successor])
        q = vs.expand(z[successor], k)
        following = replay.act(z[successor], epsilon, step + 1)
        value = {
            "q-learning": q.max(),
            "sarsa": q[following],
            "expected-sarsa": (1 - epsilon) * q.max() + epsilon * q.mean(),
        }[algorithm]
        target = mdp.reward[state, action, successor] + mdp.discount * value * (not ended)
        visits[state, action] += 1
        size = step_size / visits[state, action] ** power
        z[state] = update(z[state], action, target, k, size)
        state = replay.pick(replay.starts, step, mdp.start) if ended else successor
        action = None if ended else following
    return z


def by_gradient(z: Floats, action: int, target: float, k: float, step_size: float) -> Floats:
    """A gradient step on half the squared error, the target held constant."""
    residuals = torch.tensor(z, requires_grad=True)
    loss = 0.5 * (target - vs.expand(residuals, k)[action]) ** 2
    (gradient,) = torch.autograd.grad(loss, residuals)
    stepped: Floats = (residuals - step_size * gradient).detach().numpy()
    return stepped


def by_the_textbook(z: Floats, action: int, target: float, k: float, step_size: float) -> Floats:
    """Q(s, a) += α (target - Q(s, a)): the plain rule, which knows no k."""
    q = z.copy()
    q[action] += step_size * (target - q[action])
    return q


@pytest.fixture(scope="module")
def wilderness() -> FiniteMDP:
    """7 states, 3 actions, 3 successors each, 2 starts, 2 ends, random rewards."""
    rng = np.random.default_rng(3)
    transition = np.zeros((7, 3, 7))
    for row in transition.reshape(-1, 7):
        row[rng.choice(7, size=3, replace=False)] = rng.dirichlet([1.0, 1.0, 1.0])
    ends = [False] * 5 + [True] * 2
    start = [0.3, 0.7, 0, 0, 0, 0, 0]
    return FiniteMDP(transition, rng.normal(size=(7, 3, 7)), start, ends, discount=0.9)


@pytest.mark.parametrize("power", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("k", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_learning_is_gradient_descent_through_expand(
    algorithm: str, k: float, power: float, wilderness: FiniteMDP
) -> None:
    settings = (wilderness, algorithm, k, 0.1, 150)
    expected = reference(*settings, by_gradient, power=power)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(residuals_after(*settings, power=power), expected, atol=1e-9)


@pytest.mark.parametrize("power", [0.0, 0.6])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_sharing_it_is_the_textbook_rule(algorithm: str, power: float, wilderness: FiniteMDP) -> None:
    settings = (wilderness, algorithm, 0.0, 0.2, 3_000)
    expected = reference(*settings, by_the_textbook, power=power)
    np.testing.assert_allclose(residuals_after(*settings, power=power), expected, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_always_greedy_and_always_random(algorithm: str, epsilon: float) -> None:
    settings = (gridworld(step_reward=-1.0), algorithm, 2.0, 0.1, 200)
    expected = reference(*settings, by_gradient, power=0.0, epsilon=epsilon)
    np.testing.assert_allclose(residuals_after(*settings, epsilon=epsilon), expected, atol=1e-9)


# Where they end up.


@pytest.fixture(scope="module")
def fork() -> FiniteMDP:
    """Two states, two ends: small enough that every action is tried thousands of times."""
    transition = np.zeros((4, 3, 4))
    transition[0] = [[0.5, 0.3, 0.2, 0.0], [0.1, 0.1, 0.0, 0.8], [0.0, 0.0, 0.5, 0.5]]
    transition[1] = [[0.6, 0.0, 0.4, 0.0], [0.0, 0.2, 0.3, 0.5], [1.0, 0.0, 0.0, 0.0]]
    reward = [[1.0, 0.5, -1.0], [0.0, 1.0, -0.5], [0.0] * 3, [0.0] * 3]
    return FiniteMDP(transition, reward, [0.5, 0.5, 0, 0], [False, False, True, True], 0.8)


@pytest.mark.parametrize("k", [0.0, 2.0])
@pytest.mark.parametrize("epsilon", [0.3, 0.9])
def test_q_learning_finds_the_optimal_values(fork: FiniteMDP, k: float, epsilon: float) -> None:
    """Whatever the behaviour: with 1/visits^0.7 the errors after 300,000 steps are small.

    The step size divided by k + 1 keeps Q(s, a) from moving by more than the TD error.
    """
    settings = (fork, "q-learning", k, 1 / (k + 1), 300_000)
    z = residuals_after(*settings, power=0.7, epsilon=epsilon)
    q = vs.expand(z[:2], k)
    np.testing.assert_allclose(q.max(axis=-1), optimal_values(fork)[:2], atol=0.03)


@pytest.mark.parametrize("k", [0.0, 2.0])
@pytest.mark.parametrize("algorithm", ["sarsa", "expected-sarsa"])
def test_sarsa_finds_the_values_of_its_own_policy(fork: FiniteMDP, algorithm: str, k: float) -> None:
    """The fixed point of eps-greedy in its own values, by iteration: not v*, and far from it."""
    epsilon, live = 0.5, ~fork.terminal
    expected_reward = (fork.transition * fork.reward).sum(axis=-1)
    q = np.zeros((4, 3))
    for _ in range(1_000):
        value = ((1 - epsilon) * q.max(axis=-1) + epsilon * q.mean(axis=-1)) * live
        q = expected_reward + fork.discount * fork.transition @ value
    assert np.abs(q.max(axis=-1) - optimal_values(fork)).max() > 0.5
    settings = (fork, algorithm, k, 1 / (k + 1), 300_000)
    learned = vs.expand(residuals_after(*settings, power=0.7, epsilon=epsilon), k)
    np.testing.assert_allclose(learned[:2], q[:2], atol=0.05)


def test_decaying_step_sizes_bring_the_recorded_error_down() -> None:
    mdp = gridworld(width=3, height=2, step_reward=-1.0)
    table = sweep(
        mdp, k=1.0, step_size=0.5, seeds=4, steps=200_000, epsilon=0.5, step_size_power=0.7,
        record_at=[0, 2_000, 200_000],
    )  # fmt: skip
    rmse = table["value_rmse"].to_numpy().reshape(4, 3).mean(axis=0)  # [seeds, moments]
    visitable = optimal_values(mdp)[mdp.visitable]
    assert rmse[0] == pytest.approx(math.sqrt((visitable**2).mean()))  # Q = 0 before learning
    assert rmse[0] > rmse[1] > 4 * rmse[2]
    assert rmse[2] < 0.05


# How they act.


def bandit() -> FiniteMDP:
    """One state, four actions; every step ends; action 0 pays 1 and the others nothing."""
    transition = np.zeros((5, 4, 5))
    transition[:, :, 1:] = 1 / 4
    reward = np.zeros((5, 4))
    reward[:, 0] = 1.0
    return FiniteMDP(transition, reward, [1, 0, 0, 0, 0], [False] + [True] * 4, 0.9)


@pytest.mark.parametrize(("epsilon", "k"), [(0.0, 0.0), (0.0, 4.0), (1.0, 0.0)])
def test_ties_are_broken_uniformly(epsilon: float, k: float) -> None:
    """The first step of many runs: all values are 0, then the action taken is the lowest."""
    mdp = gridworld(step_reward=-1.0)
    first = [
        residuals_after(mdp, "q-learning", k, 0.5, 1, epsilon=epsilon, seed=seed)[20].argmin() for seed in range(400)
    ]
    assert stats.chisquare(np.bincount(first, minlength=4)).pvalue > 1e-3


def test_ties_among_some_are_broken_among_those() -> None:
    """After an unpaid step of the bandit with rewards 1, 0, 0, 0, all values are still 0; after a
    paid one, action 0 is best and is taken for ever."""
    table = sweep(bandit(), seeds=2_000, steps=40, epsilon=0.0, record_at=[1, 2, 3, 40])
    paid = table["reward_sum"].to_numpy().reshape(-1, 4)
    for step in range(3):  # runs that were never paid before are paid now with chance 1/4
        never = paid[:, step - 1] == 0 if step else np.ones(len(paid), bool)
        now = (paid[never, step] > 0).sum()
        assert stats.binomtest(int(now), int(never.sum()), 1 / 4).pvalue > 1e-3
    early = paid[paid[:, 0] > 0]
    assert (early[:, 3] == 40).all()


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_the_coin_lands_as_often_as_epsilon_says(epsilon: float) -> None:
    """The bandit pays unless the coin says random (epsilon) and the pick is another (3/4)."""
    table = sweep(bandit(), seeds=20, steps=6_000, epsilon=epsilon, record_at=[1_000, 6_000])
    paid = table["reward_sum"].to_numpy().reshape(-1, 2)
    share = np.diff(paid).sum() / (20 * 5_000)
    rate = 1 - epsilon * 3 / 4
    assert abs(share - rate) < 4 * math.sqrt(rate * (1 - rate) / (20 * 5_000))


def test_successors_come_as_often_as_the_table_says() -> None:
    """A draw that the table's rounding leaves over goes to a successor, never to another state.

    The probabilities sum to 1 - 9e-9, which is accepted; row widths differ, so some are padded.
    """
    transition = np.zeros((3, 2, 3))
    transition[0, 0] = [0.2, 0.3, 0.5]
    transition[0, 1] = transition[1] = [0.0, 1 - 9e-9, 0.0]
    table = kernel_table(FiniteMDP(transition, 0.0, [1, 0, 0], [False, False, True], 0.9))
    assert table.cumulative.shape == (3, 2, 3)
    np.testing.assert_allclose(table.cumulative[0, 0], [0.2, 0.5, 1.0])
    assert table.cumulative[0, 1, 0] == table.cumulative[1, 0, 0] == 1.0
    assert table.state[0, 1, 0] == table.state[1, 0, 0] == 1
