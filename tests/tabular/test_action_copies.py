"""Copies of actions: the MDP, the kernel for many actions, random ties, and the update by the paper's equations."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal
from replayed_runs import Replay
from scipy import stats

from valueshare import FiniteMDP, InvalidInput, gridworld, host_memory, optimal_values, sweep
from valueshare.experiments.tabular import study_mdp, sweep_studies
from valueshare.experiments.tabular_designs import TabularStudy, gridworld_actions_studies, gridworld_studies
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.tabular import kernels, rules
from valueshare.tabular.kernels import Length, Rule, Runs
from valueshare.tabular.mdp import copied_actions
from valueshare.tabular.randomness import run_keys
from valueshare.tabular.rules import Q_LEARNING
from valueshare.tabular.sweep import UNROLLED_ACTIONS, action_length, empty_measurements, kernel_table

Floats = NDArray[np.float64]


def residuals_of(
    mdp: FiniteMDP, k: float, step_size: float, steps: int, seeds: int = 1, *, length: Length | None = None
) -> Floats:
    """Z of runs with epsilon = 0.1 after `steps` timesteps. Shape [seeds, S, n]."""
    k_of, size_of = np.full(seeds, k), np.full(seeds, step_size)
    runs = Runs(run_keys(np.arange(seeds), k_of, size_of), k_of, size_of)
    table, rule = kernel_table(mdp), Rule(Q_LEARNING, 0.1, 0.0)
    lanes: Floats = np.empty((seeds, mdp.states, mdp.actions))
    own = action_length(mdp.actions) if length is None else length
    successors = (0,) * table.state.shape[2]
    kernels.learn(table, runs, rule, np.array([steps]), 0, seeds, own, successors, lanes, empty_measurements(seeds, 1))
    return lanes


def test_copies_do_the_same_and_are_worth_the_same() -> None:
    plain = gridworld(step_reward=-1.0)
    many = copied_actions(plain, 5)
    assert many.actions == 20
    for action in range(20):
        np.testing.assert_array_equal(many.transition[:, action], plain.transition[:, action % 4])
        np.testing.assert_array_equal(many.reward[:, action], plain.reward[:, action % 4])
    np.testing.assert_allclose(optimal_values(many), optimal_values(plain), atol=1e-12)
    assert copied_actions(plain, 1) is plain
    with pytest.raises(InvalidInput, match="`action_copies = 0`"):
        copied_actions(plain, 0)


def test_studies_refuse_copies_out_of_range() -> None:
    for copies in (0, 1_001):
        with pytest.raises(InvalidInput, match=f"`action_copies = {copies}`: write 1 to 1,000"):
            TabularStudy(action_copies=copies)


def test_tables_that_do_not_fit_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    """Transitions and rewards of Taxi with 1,000 copies: 500 x 6,000 x 500 x 8 bytes = 12 GB each."""
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 24 * 10**9)
    with pytest.raises(
        InvalidInput, match=r"500 states and 6,000 actions need 38\.4 GB of memory and 24\.0 GB are free"
    ):
        rules.check_tables(500, 6, 1_000)
    rules.check_tables(500, 6, 600)
    monkeypatch.setattr(
        host_memory, "free_bytes", lambda: 10**7
    )  # a table of the gridworld: 25 x 4,000 x 25 x 8 = 20 MB
    monkeypatch.setattr(np, "tile", None)  # nothing is made
    words = ["tabular", "--env", "gridworld", "--action-copies", "1000", "--seeds", "2", "--steps", "50"]
    code, _, err = cli(*words, "--out", str(tmp_path / "copies"))
    assert (code, err.count("\n")) == (2, 1)
    assert "--action-copies 1000: tables of 25 states and 4,000 actions need 64.0 MB of memory" in err
    assert not (tmp_path / "copies").exists()


@pytest.mark.slow
def test_a_length_compiled_in_or_not_changes_no_bit() -> None:
    mdp = gridworld(step_reward=-1.0)
    unrolled, loops = (residuals_of(mdp, 3.0, 0.1, 400, 4, length=own) for own in ((0,) * 4, np.zeros(4, np.bool_)))
    assert np.abs(unrolled).max() > 0.1
    np.testing.assert_array_equal(unrolled, loops)
    assert isinstance(action_length(UNROLLED_ACTIONS), tuple)
    assert len(action_length(UNROLLED_ACTIONS + 1)) == UNROLLED_ACTIONS + 1
    assert isinstance(action_length(UNROLLED_ACTIONS + 1), np.ndarray)


@pytest.fixture(scope="module")
def plain() -> FiniteMDP:
    """Three states and an end, two actions, at most four successors."""
    transition = np.zeros((4, 2, 4))
    transition[0] = [[0.2, 0.5, 0.2, 0.1], [0.0, 0.3, 0.7, 0.0]]
    transition[1] = [[0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 0.4, 0.6]]
    transition[2] = [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]
    reward = [[1.0, -1.0], [0.5, 2.0], [3.0, 0.0], [0.0, 0.0]]
    return FiniteMDP(transition, reward, [1, 0, 0, 0], [False, False, False, True], 0.9)


def by_the_paper(mdp: FiniteMDP, k: float, step_size: float, steps: int) -> Floats:
    """Z after Q-learning with q = (I + k/n J) z, by the chain rule: z -= α dL/dz, L = (target - q(a))² / 2.

    Written with the n x n matrix of Equation 5, which the kernel never makes.
    """
    replay, n = Replay(k, step_size, 0), mdp.actions
    expansion = np.eye(n) + k / n * np.ones((n, n))
    z, state = np.zeros((mdp.states, n)), replay.pick(replay.starts, 0, mdp.start)
    for step in range(1, steps + 1):
        action = replay.act(z[state], 0.1, step)
        successor = replay.pick(replay.transitions, step, mdp.transition[state, action])
        ended = mdp.terminal[successor]
        target = mdp.reward[state, action, successor]
        if not ended:
            target += mdp.discount * (expansion @ z[successor]).max()
        error = target - (expansion @ z[state])[action]
        z[state] += step_size * error * expansion[action]
        state = replay.pick(replay.starts, step, mdp.start) if ended else successor
    return z


@pytest.mark.parametrize("k", [0.0, 1.0, 24.0])
def test_the_update_with_copies_is_the_paper_s(plain: FiniteMDP, k: float) -> None:
    """Twelve copies of each of two actions: more than the kernel unrolls."""
    mdp = copied_actions(plain, 12)
    assert mdp.actions == 24 > UNROLLED_ACTIONS
    expected = by_the_paper(mdp, k, 0.02, 600)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(residuals_of(mdp, k, 0.02, 600)[0], expected, atol=1e-9)


def test_ties_are_broken_at_random_over_all_actions(plain: FiniteMDP) -> None:
    """After one step the action that was taken is the only one whose residual is not 0: uniform over 1,024."""
    taken = residuals_of(copied_actions(plain, 512), 0.0, 0.5, 1, 2_048)[:, 0].nonzero()[1]
    assert len(taken) == 2_048
    counts = np.bincount(taken, minlength=1_024).reshape(32, 32).sum(axis=1)  # 64 expected in each bin of 32 actions
    assert stats.chisquare(counts).pvalue > 1e-3
    assert len(set(taken.tolist())) > 800  # 1,024 (1 - 1/e²) = 885 expected


@pytest.mark.parametrize("tied", [1, 40])
def test_copies_are_exchangeable(tied: int) -> None:
    """Of a table whose columns are permuted, the same actions are chosen under their new numbers.

    The greedy action is the same where one is best; of 40 that are equal, each is chosen as often.
    """
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1, 1, 256))
    best = rng.choice(256, size=tied, replace=False)
    z[0, 0, best] = 9.0
    order = rng.permutation(256)
    draws = rng.integers(2**32, size=1_600).astype(np.uint64) | np.uint64(2**63)  # no exploration
    length = np.zeros(256, np.bool_)
    choose = kernels.choose.py_func
    before = [choose(z, 0, 0, 0.1, draw, length) for draw in draws[: 200 if tied == 1 else None]]
    after = [choose(z[..., order], 0, 0, 0.1, draw, length) for draw in draws[: len(before)]]
    assert {order[action] for action, _ in after} == {action for action, _ in before} == set(best.tolist())
    np.testing.assert_allclose([total for _, total in after], [total for _, total in before], rtol=1e-12)
    for chosen in ([action for action, _ in before], [order[action] for action, _ in after]):
        assert stats.chisquare(np.bincount(chosen, minlength=256)[best]).pvalue > 1e-3 or tied == 1


def test_four_actions_are_the_gridworld_study_bit_for_bit() -> None:
    ours = [replace(study, seeds=4, step_size=(0.05, 0.5)) for study in gridworld_actions_studies("smoke")]
    table, _ = sweep_studies(ours, progress=False, launcher=LauncherOptions())
    assert table["actions"].unique().sort().to_list() == [4, 32]
    paper = [replace(study, k=(0.0, 1.0, 4.0), seeds=4, step_size=(0.05, 0.5)) for study in gridworld_studies()]
    expected, _ = sweep_studies(paper, progress=False, launcher=LauncherOptions())
    assert_frame_equal(table.filter(pl.col("actions") == 4).drop("actions"), expected, check_exact=True)
    many = table.filter(pl.col("actions") == 32, pl.col("step_reward") == -1, pl.col("k") == 32)
    own = sweep(study_mdp(ours[1]), k=32, step_size=[0.05, 0.5], seeds=4, record_at=[500, 1_000, 2_500, 5_000])
    assert_frame_equal(many.drop("actions", "step_reward"), own, check_exact=True)


def test_the_full_study() -> None:
    studies = gridworld_actions_studies()
    assert [study.step_reward for study in studies] == [-1.0] * 9 + [0.0] * 9
    assert [4 * study.action_copies for study in studies[:9]] == [4, 8, 16, 32, 64, 128, 256, 512, 1_024]
    for study in studies:
        assert study.k == (0.0, 1.0, 4.0 * study.action_copies)
        assert study.record_steps == (500, 1_000, 2_500, 5_000)
        np.testing.assert_allclose(study.step_size, np.exp(np.linspace(-12, 0, 31)))
    with pytest.raises(InvalidInput, match="unknown scale 'paper': write one of full, smoke"):
        gridworld_actions_studies("paper")  # type: ignore[arg-type]
