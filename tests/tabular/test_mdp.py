"""Finite MDPs: what is refused, the gridworld by hand, and Gymnasium's tables as it plays them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from valueshare import FiniteMDP, InvalidInput, gridworld
from valueshare.tabular.mdp import PUBLISHED

UP, DOWN, LEFT, RIGHT = range(4)
GOAL, START = 4, 20  # of 5 x 5 states, row by row from the top


def two_states(**changes: Any) -> FiniteMDP:
    """State 0 goes on with action 0 and ends in state 1 with action 1."""
    fields: dict[str, Any] = {
        "transition": [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]],
        "reward": 1.0,
        "start": [1.0, 0.0],
        "terminal": [False, True],
        "discount": 0.9,
    }
    return FiniteMDP(**(fields | changes))


def with_row(row: list[float]) -> list[list[list[float]]]:
    """The transitions of `two_states` with other probabilities for state 0, action 1."""
    return [[[1.0, 0.0], row], [[0.0, 1.0], [0.0, 1.0]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition": [[1.0, 0.0]]}, r"transition has shape \(1, 2\)"),
        ({"transition": np.ones((2, 2, 3))}, r"transition has shape \(2, 2, 3\)"),
        ({"transition": np.ones((2, 0, 2))}, r"transition has shape \(2, 0, 2\).*none of them 0"),
        ({"reward": [1.0, 2.0]}, r"reward has shape \(2,\): it is \[2, 2, 2\], \[2, 2\] or one"),
        ({"reward": np.ones((2, 3))}, r"reward has shape \(2, 3\)"),
        ({"reward": np.inf}, "reward holds a value that is not finite"),
        ({"start": [1.0]}, r"start has shape \(1,\): it is \[2\]"),
        ({"terminal": [True, False, False]}, r"terminal has shape \(3,\): it is \[2\]"),
        ({"transition": with_row([0.5, 0.4])}, r"state 0, action 1 sum to 0\.9, not 1"),
        ({"transition": with_row([1.5, -0.5])}, "transition holds a value that is not a prob"),
        ({"transition": with_row([np.nan, 1.0])}, "transition holds a value that is not a prob"),
        ({"start": [0.7, 0.0]}, r"start probabilities sum to 0\.7, not 1"),
        ({"start": [np.nan, 1.0]}, "start holds a value that is not a probability"),
        ({"start": [0.5, 0.5]}, "start in a terminal state"),
        ({"terminal": [True, True]}, "every state is terminal"),
        ({"discount": 1.5}, r"`discount = 1\.5`: it lies in \[0, 1\]"),
        ({"discount": -0.1}, r"discount = -0\.1"),
        ({"discount": np.nan}, "discount = nan"),
    ],
)
def test_what_is_no_mdp_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    two_states()  # is one
    with pytest.raises(InvalidInput, match=message) as caught:
        two_states(**changes)
    assert "\n" not in str(caught.value)


def test_the_wrong_row_is_named_by_its_own_number() -> None:
    """Terminal rows are skipped in the check, not in the counting: state 2 is named 2."""
    transition = np.zeros((3, 1, 3))
    transition[1, 0, 0] = 1.0
    transition[2, 0, 0] = 0.25
    with pytest.raises(InvalidInput, match=r"state 2, action 0 sum to 0\.25, not 1"):
        FiniteMDP(transition, 0.0, [0, 1, 0], [True, False, False], 0.9)


def test_rows_of_terminal_states_may_hold_anything() -> None:
    rows = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [7.0, np.nan]]]
    assert two_states(transition=rows).visitable.tolist() == [True, False]


def test_rewards_of_state_and_action_are_paid_for_every_successor() -> None:
    mdp = two_states(reward=[[1.0, 2.0], [3.0, 4.0]])
    assert mdp.reward[0].tolist() == [[1.0, 1.0], [2.0, 2.0]]  # [action, successor]


def test_successors_are_the_transitions_packed() -> None:
    rng = np.random.default_rng(0)
    transition = rng.random((6, 2, 6)) * (rng.random((6, 2, 6)) < 0.4) + 0.1 * np.eye(6)[:, None]
    transition /= transition.sum(axis=-1, keepdims=True)
    mdp = FiniteMDP(transition, rng.normal(size=(6, 2, 6)), np.eye(6)[0], np.zeros(6), 0.9)
    packed = mdp.successors
    assert packed.state.shape[-1] == (transition > 0).sum(axis=-1).max()
    for s, a in np.ndindex(6, 2):
        listed = {
            int(state): (float(p), float(r))
            for state, p, r in zip(*(part[s, a] for part in packed), strict=True)
            if p > 0
        }
        assert listed == {t: (transition[s, a, t], mdp.reward[s, a, t]) for t in np.flatnonzero(transition[s, a])}


def test_visitable_states_are_those_an_episode_can_be_in() -> None:
    """0 -> 1 -> 2 (terminal) -> 3, and 4 -> 0: an episode is in 0 or 1 alone."""
    transition = np.zeros((5, 1, 5))
    for state, successor in ((0, 1), (1, 2), (2, 3), (3, 3), (4, 0)):
        transition[state, 0, successor] = 1.0
    mdp = FiniteMDP(transition, 0.0, [1, 0, 0, 0, 0], [False, False, True, False, False], 0.9)
    assert mdp.visitable.tolist() == [True, True, False, False, False]


# The gridworld: 3/4 the chosen way, 1/12 each of the three others.


@pytest.mark.parametrize(
    ("state", "action", "expected"),
    [
        # The start, bottom left: left and down are walls.
        (START, UP, {15: 3 / 4, 21: 1 / 12, START: 2 / 12}),
        (START, RIGHT, {21: 3 / 4, 15: 1 / 12, START: 2 / 12}),
        (START, LEFT, {START: 3 / 4 + 1 / 12, 15: 1 / 12, 21: 1 / 12}),
        (0, DOWN, {5: 3 / 4, 1: 1 / 12, 0: 2 / 12}),  # top left: left and up are walls
        (12, LEFT, {11: 3 / 4, 13: 1 / 12, 7: 1 / 12, 17: 1 / 12}),  # the middle
        (9, UP, {GOAL: 3 / 4, 8: 1 / 12, 14: 1 / 12, 9: 1 / 12}),  # below the goal
    ],
)
def test_gridworld_transitions_by_hand(state: int, action: int, expected: dict[int, float]) -> None:
    row = gridworld().transition[state, action]
    assert {int(s): row[s] for s in np.flatnonzero(row)} == pytest.approx(expected)


def test_gridworld_rewards_start_and_goal() -> None:
    mdp = gridworld(step_reward=-1.0)
    assert (mdp.states, mdp.actions, mdp.discount, mdp.name) == (25, 4, 0.95, "gridworld")
    assert np.flatnonzero(mdp.start).tolist() == [START]
    assert np.flatnonzero(mdp.terminal).tolist() == [GOAL]
    assert (mdp.reward[..., GOAL] == 5.0).all()
    assert (np.delete(mdp.reward, GOAL, axis=-1) == -1.0).all()
    assert (np.delete(gridworld().reward, GOAL, axis=-1) == 0.0).all()


def test_gridworld_of_another_shape() -> None:
    """3 wide, 2 high, no noise: the start is state 3, up is state 0, right of 4 is 5."""
    mdp = gridworld(width=3, height=2, goal_reward=7.0, noise=0.0, discount=0.5)
    assert np.flatnonzero(mdp.start).tolist() == [3]
    assert np.flatnonzero(mdp.terminal).tolist() == [2]
    assert mdp.transition[3, UP, 0] == mdp.transition[4, RIGHT, 5] == 1.0
    assert mdp.reward[5, UP, 2] == 7.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gridworld(width=1, height=1), "a 1 x 1 gridworld has no room"),
        (lambda: gridworld(width=0), "a 0 x 5 gridworld has no room"),
        (lambda: gridworld(noise=1.1), r"`noise = 1\.1`: a probability"),
        (lambda: gridworld(noise=np.nan), "noise = nan"),
        (lambda: gridworld(discount=2.0), r"discount = 2\.0"),
    ],
)
def test_what_is_no_gridworld_is_refused(make: Callable[[], FiniteMDP], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


# Gymnasium.

TABLES: list[tuple[str, dict[str, Any]]] = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"map_name": "8x8"}),
    ("FrozenLake8x8-v1", {}),
    ("CliffWalking-v1", {}),
    ("Taxi-v4", {}),
]


@pytest.mark.parametrize(("env_id", "options"), TABLES)
def test_the_table_is_the_one_that_is_published(env_id: str, options: dict[str, Any]) -> None:
    played: Any = gymnasium.make(env_id, **options).unwrapped
    mdp = FiniteMDP.from_gymnasium(env_id, **options)
    assert mdp.states == len(played.P)
    assert mdp.discount == 0.99
    np.testing.assert_array_equal(mdp.start, played.initial_state_distrib)
    ending = {t for row in played.P.values() for a in row.values() for _, t, _, e in a if e}
    assert set(np.flatnonzero(mdp.terminal)) == ending
    for state, choices in played.P.items():
        for action, outcomes in choices.items():
            # Expectations under the list: of where one goes, and of what that pays.
            probability, paid = np.zeros(mdp.states), 0.0
            for p, successor, reward, _ in outcomes:
                probability[successor] += p
                paid += p * reward
            np.testing.assert_allclose(mdp.transition[state, action], probability, atol=1e-15)
            np.testing.assert_allclose(
                (mdp.transition[state, action] * mdp.reward[state, action]).sum(), paid, atol=1e-12
            )


@pytest.mark.parametrize(
    ("env_id", "steps"), [("FrozenLake-v1", 6_000), ("CliffWalking-v1", 3_000), ("Taxi-v4", 3_000)]
)
def test_the_table_is_what_the_environment_does(env_id: str, steps: int) -> None:
    """Step the real environment at random; every step has its probability, reward and end here.

    The mean of log p(s' | s, a) over steps is minus the table's mean entropy there, within 5
    standard errors: a successor missing or too likely would move it.
    """
    env = gymnasium.make(env_id, max_episode_steps=10**9)
    mdp = FiniteMDP.from_gymnasium(env_id)
    rng = np.random.default_rng(1)
    state, _ = env.reset(seed=1)
    assert mdp.start[state] > 0
    surprises = []
    for _ in range(steps):
        action = int(rng.integers(mdp.actions))
        successor, reward, ended, truncated, _ = env.step(action)
        row = mdp.transition[state, action]
        assert row[successor] > 0
        assert reward == pytest.approx(mdp.reward[state, action, successor])
        assert ended == mdp.terminal[successor]
        assert not truncated
        logs = np.log(row[row > 0])
        surprises.append(np.log(row[successor]) - (row[row > 0] * logs).sum())
        state = env.reset()[0] if ended else successor
    error = np.std(surprises) / np.sqrt(steps)
    assert abs(np.mean(surprises)) <= 5 * error + 1e-12


def test_a_lake_s_slips_by_hand() -> None:
    """State 14, action right: down stays put, right is the goal, up is state 10, each 1/3."""
    mdp = FiniteMDP.from_gymnasium("FrozenLake-v1")
    assert mdp.transition[14, 2, [14, 15, 10]] == pytest.approx([1 / 3] * 3)
    assert mdp.reward[14, 2, [14, 15, 10]].tolist() == [0.0, 1.0, 0.0]


Outcome = tuple[float, int, float, bool]  # probability, successor, reward, ends


def published(outcomes: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> FiniteMDP:
    """The table of an environment with two states whose state 0 has these outcomes."""
    table = {0: {0: outcomes}, 1: {0: [(1.0, 1, 0.0, True)]}}
    environment = SimpleNamespace(P=table, initial_state_distrib=np.array([1.0, 0.0]))
    made = SimpleNamespace(unwrapped=environment)
    monkeypatch.setattr("valueshare.tabular.mdp._make", lambda *_, **__: made)
    return FiniteMDP.from_gymnasium("Made-v0")


def test_rewards_of_one_successor_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways to state 1, of 1/8 paying 4 and of 3/8 paying 8: 1/2, and (1/8·4 + 3/8·8) / 1/2."""
    mdp = published([(0.5, 0, -1.0, False), (0.125, 1, 4.0, True), (0.375, 1, 8.0, True)], monkeypatch)
    assert mdp.transition[0, 0].tolist() == [0.5, 0.5]
    assert mdp.reward[0, 0].tolist() == [-1.0, 7.0]


def test_a_state_that_ends_only_some_episodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="Made-v0 has a state that ends only some episodes"):
        published([(0.5, 1, 0.0, False), (0.5, 1, 0.0, True)], monkeypatch)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("FrozenLak-v1", "no environment 'FrozenLak-v1': did you mean FrozenLake-v1?"),
        ("Taxi-v3", "no environment 'Taxi-v3': did you mean Taxi-v4?"),
        ("", "no environment ''"),
        ("CartPole-v1", "CartPole-v1 does not publish its transition table"),
    ],
)
def test_environments_without_a_table_are_refused(env_id: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        FiniteMDP.from_gymnasium(env_id)
    assert message in str(caught.value)
    for name in PUBLISHED:
        assert name in str(caught.value)
