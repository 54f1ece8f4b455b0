"""Value metrics against hand arithmetic and naive loops."""

import numpy as np
import pytest

from valueshare.errors import InvalidInput
from valueshare.value_metrics import (
    action_gap,
    discounted_returns,
    norms,
    overestimation,
    relative_action_gap,
)


def test_overestimation_of_a_terminated_episode_by_hand() -> None:
    # returns: 4, 0 + 0.5·4 = 2, 1 + 0.5·2 = 2
    difference = overestimation([3.0, 2.0, 1.0], [1.0, 0.0, 4.0], discount=0.5)
    assert difference.tolist() == [1.0, 0.0, -3.0]


def test_overestimation_of_a_truncated_episode_bootstraps_from_the_final_value() -> None:
    # returns: 4 + 0.5·8 = 8, 0 + 4 = 4, 1 + 2 = 3
    difference = overestimation([3.0, 2.0, 1.0], [1.0, 0.0, 4.0], discount=0.5, final_value=8.0)
    assert difference.tolist() == [0.0, -2.0, -7.0]


def test_returns_against_the_sum_written_out() -> None:
    rng = np.random.default_rng(0)
    rewards, final = rng.normal(size=40), 2.5
    for t, found in enumerate(discounted_returns(rewards, 0.97, final)):
        expected = sum(0.97 ** (i - t) * rewards[i] for i in range(t, 40)) + 0.97 ** (40 - t) * final
        assert found == pytest.approx(expected, abs=1e-12)


def test_many_episodes_at_once_side_by_side_and_in_a_row() -> None:
    rng = np.random.default_rng(1)
    q, rewards, final = rng.normal(size=(9, 3)), rng.normal(size=(9, 3)), rng.normal(size=3)
    beside = overestimation(q, rewards, 0.9, final)
    for i in range(3):
        single = overestimation(q[:, i], rewards[:, i], 0.9, final[i])
        np.testing.assert_allclose(beside[:, i], single, atol=1e-12)
    discount = np.full(9, 0.9)
    discount[3] = 0.0  # an episode of 4 steps that terminates, then one of 5
    in_a_row = discounted_returns(rewards[:, 0], discount, 1.0)
    np.testing.assert_allclose(in_a_row[:4], discounted_returns(rewards[:4, 0], 0.9))
    np.testing.assert_allclose(in_a_row[4:], discounted_returns(rewards[4:, 0], 0.9, 1.0))


def test_perfect_values_are_not_overestimated() -> None:
    rewards = np.random.default_rng(2).normal(size=30)
    assert not overestimation(discounted_returns(rewards, 0.99), rewards, 0.99).any()


def test_values_and_rewards_must_match() -> None:
    with pytest.raises(InvalidInput, match=r"q_values of shape \[2\] and rewards of shape \[3\]"):
        overestimation([1.0, 2.0], [1.0, 2.0, 3.0], 0.9)
    with pytest.raises(InvalidInput, match="one value and one reward per step"):
        overestimation(1.0, 1.0, 0.9)


def test_action_gap_is_best_minus_second_best() -> None:
    q = [[1.0, 5.0, 3.5], [2.0, 2.0, 0.0], [-1.0, -4.0, -9.0]]
    assert action_gap(q).tolist() == [1.5, 0.0, 3.0]
    random = np.random.default_rng(3).normal(size=(4, 5, 6))
    ordered = np.sort(random, axis=-1)
    np.testing.assert_array_equal(action_gap(random), ordered[..., -1] - ordered[..., -2])


def test_one_action_has_no_gap() -> None:
    with pytest.raises(InvalidInput, match="at least 2 actions"):
        action_gap([[1.0], [2.0]])


def test_relative_action_gap_by_hand() -> None:
    # mean gap 2, mean value -8
    assert relative_action_gap([1.0, 3.0], [-10.0, -6.0]) == pytest.approx(0.25, rel=1e-8)
    # values of opposite signs cancel before the absolute value is taken
    assert relative_action_gap([1.0], [5.0, -5.0]) == pytest.approx(1e8)


def test_norms_of_the_papers_example() -> None:
    """Figure 1: z = (3, 1), k = 2, q = (7, 5)."""
    found = norms([7.0, 5.0], 2.0)
    assert found.q_mean == 6.0
    assert found.z_mean == pytest.approx(2.0)
    assert found.q_norm == pytest.approx(74**0.5)
    assert found.z_norm == pytest.approx(10**0.5)


def test_norms_with_one_k_an_agent() -> None:
    q = np.random.default_rng(4).normal(size=(3, 10, 4)) + 2
    k = np.array([0.0, 1.0, 4.0])
    found = norms(q, k[:, None])
    for i in range(3):
        for b in range(10):
            z = np.linalg.solve(np.eye(4) + k[i] / 4, q[i, b])
            assert found.z_mean[i, b] == pytest.approx(z.mean())
            assert found.z_norm[i, b] == pytest.approx(np.linalg.norm(z))
            assert found.q_norm[i, b] == pytest.approx(np.linalg.norm(q[i, b]))
    np.testing.assert_allclose(found.z_norm[0], found.q_norm[0])
    assert (found.z_norm[1:] < found.q_norm[1:]).all()  # the mean is not 0
