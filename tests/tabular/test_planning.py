"""Optimal values against policy iteration and linear programming, which know no sweeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from valueshare import FiniteMDP, InvalidInput, gridworld, optimal_values

Floats = NDArray[np.float64]


def by_policy_iteration(mdp: FiniteMDP) -> Floats:
    """Solve (I - discount P) v = r for a policy, make it greedy, until it stays."""
    live = ~mdp.terminal
    expected_reward = (mdp.transition * mdp.reward).sum(axis=-1)  # [S, A]
    index = np.arange(mdp.states)
    policy = np.zeros(mdp.states, int)
    while True:
        follows = mdp.transition[index, policy] * live[:, None] * live  # into live states alone
        values: Floats = np.linalg.solve(
            np.eye(mdp.states) - mdp.discount * follows, expected_reward[index, policy] * live
        )
        q = expected_reward + mdp.discount * mdp.transition @ values  # [S, A]
        better = q.max(axis=-1) > q[index, policy] + 1e-10
        if not (better & live).any():
            return values
        policy = np.where(better, q.argmax(axis=-1), policy)


def by_linear_program(mdp: FiniteMDP) -> Floats:
    """The least v with v(s) >= r(s, a) + discount P(s, a) v for every live s and all a."""
    live = np.flatnonzero(~mdp.terminal)
    expected_reward = (mdp.transition * mdp.reward).sum(axis=-1)
    above, bound = [], []
    for s in live:
        for a in range(mdp.actions):
            above.append(mdp.discount * mdp.transition[s, a, live] - (live == s))
            bound.append(-expected_reward[s, a])
    answer = linprog(np.ones(len(live)), A_ub=np.array(above), b_ub=bound, bounds=(None, None))
    assert answer.success
    values = np.zeros(mdp.states)
    values[live] = answer.x
    return values


@st.composite
def mdps(draw: st.DrawFn) -> FiniteMDP:
    states, actions = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sparse = rng.random((states, actions, states)) < draw(st.floats(0.1, 1.0))
    transition = rng.random((states, actions, states)) * sparse + 1e-3 * np.eye(states)[:, None]
    terminal = rng.random(states) < 0.3
    terminal[0] = False
    return FiniteMDP(
        transition / transition.sum(axis=-1, keepdims=True),
        draw(st.sampled_from([0.0, 1.0, 1e3])) * rng.normal(size=transition.shape),
        np.eye(states)[0],
        terminal,
        draw(st.sampled_from([0.0, 0.3, 0.9, 0.99])),
    )


@settings(deadline=None, max_examples=60)
@given(mdps())
def test_values_of_random_mdps(mdp: FiniteMDP) -> None:
    values = optimal_values(mdp)
    assert (values[mdp.terminal] == 0).all()
    np.testing.assert_allclose(values, by_policy_iteration(mdp), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(values, by_linear_program(mdp), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "mdp",
    [
        gridworld(),
        gridworld(step_reward=-1.0),
        gridworld(step_reward=-1.0, discount=1.0),
        FiniteMDP.from_gymnasium("FrozenLake-v1"),
        FiniteMDP.from_gymnasium("FrozenLake8x8-v1", discount=0.999),
        FiniteMDP.from_gymnasium("CliffWalking-v1"),
    ],
    ids=lambda mdp: f"{mdp.name}-{mdp.discount}",
)
def test_values_of_known_environments(mdp: FiniteMDP) -> None:
    expected = by_linear_program(mdp)
    if mdp.discount < 1:  # the first policy tried need not end, and then has no values
        np.testing.assert_allclose(by_policy_iteration(mdp), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(optimal_values(mdp), expected, rtol=1e-6, atol=1e-7)


def test_values_of_taxi() -> None:
    mdp = FiniteMDP.from_gymnasium("Taxi-v4", discount=0.9)
    np.testing.assert_allclose(optimal_values(mdp), by_policy_iteration(mdp), atol=1e-9)


def test_without_a_discount_values_are_expected_sums() -> None:
    """Each step ends with probability 1/4 and pays -1: 4 steps on average, so v* = -4."""
    mdp = FiniteMDP([[[0.75, 0.25]], [[0.0, 1.0]]], -1.0, [1, 0], [False, True], discount=1.0)
    assert optimal_values(mdp) == pytest.approx([-4.0, 0.0], abs=1e-9)


def test_values_that_grow_for_ever_are_refused() -> None:
    """One can stay and be paid 1 for ever."""
    rows = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0]] * 2]
    mdp = FiniteMDP(rows, 1.0, [1, 0], [False, True], discount=1.0, name="endless")
    with pytest.raises(InvalidInput, match="the optimal values of endless do not converge"):
        optimal_values(mdp, sweeps=1_000)
