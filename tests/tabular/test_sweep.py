"""Sweeps: the same bits however they are cut, and clear rows for runs that diverge."""

import doctest
import itertools
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import valueshare as vs
from valueshare import FiniteMDP, InvalidInput, gridworld, sweep
from valueshare.tabular import kernels
from valueshare.tabular import sweep as sweep_module
from valueshare.tabular.kernels import Rule, Runs
from valueshare.tabular.randomness import run_keys
from valueshare.tabular.rules import ALGORITHMS

MDP = gridworld(step_reward=-1.0)
KS, SIZES, SEEDS = [0.0, 1.6, 12.8], [0.05, 0.3, 1.0], [0, 1, 2, 7, 11, 13]
RUN = ["k", "step_size", "seed", "step"]
OUTCOMES = [
    "episodes", "mean_return", "reward_sum", "value_error", "value_rmse",
    "norm_q", "norm_u", "norm_z",
]  # fmt: skip
COLUMNS = ["algorithm", "k", "step_size", "seed", "step", "diverged", *OUTCOMES]


def same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """Equal row by row, to the last bit, whatever the order."""
    assert_frame_equal(one.sort(RUN), other.sort(RUN), check_exact=True)


def swept(k: Any = KS, step_size: Any = SIZES, seeds: Any = SEEDS, steps: int = 700, **options: Any) -> pl.DataFrame:
    return sweep(MDP, k=k, step_size=step_size, seeds=seeds, steps=steps, **options)


@pytest.fixture(scope="module")
def whole() -> pl.DataFrame:
    """3 k x 3 step sizes x 6 seeds; in some of them k and the step size make it diverge."""
    return swept()


# The same bits.


@pytest.mark.parametrize(("k", "numbers"), [("n", 4), (["n"], 4), ([0, "n"], [0, 4]), ([4, "N", 0.5], [4, 0.5])])
def test_n_is_the_number_of_actions(k: Any, numbers: Any) -> None:
    same(swept(k=k, step_size=0.1, seeds=2, steps=50), swept(k=numbers, step_size=0.1, seeds=2, steps=50))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("task_timesteps", [1, 40_000])
def test_threads_and_chunks_change_no_bit(
    whole: pl.DataFrame, threads: int, task_timesteps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_module, "TASK_TIMESTEPS", task_timesteps)
    same(swept(threads=threads), whole)


@pytest.mark.parametrize(
    ("ks", "sizes", "seeds"),
    [
        (KS[::-1], SIZES[::-1], SEEDS[::-1]),
        (KS[1:], [0.3], SEEDS),
        (KS, SIZES[::2], [13, 1]),
        (12.8, 1.0, [2]),  # diverges, alone
    ],
)
def test_order_and_neighbours_change_no_bit(whole: pl.DataFrame, ks: Any, sizes: Any, seeds: list[int]) -> None:
    part = swept(ks, sizes, seeds)
    expected = whole.join(part.select(RUN), on=RUN, how="semi")
    assert len(expected) == len(part) == np.size(ks) * np.size(sizes) * len(seeds)
    same(part, expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_run_alone_is_the_one_in_the_grid(algorithm: str) -> None:
    grid = sweep(MDP, algorithm, [0.0, 4.0], [0.1, 0.2], 17, 300, step_size_power=0.5)
    for k, size, seed in itertools.product([0.0, 4.0], [0.1, 0.2], [0, 16]):
        alone = sweep(MDP, algorithm, k, size, [seed], 300, step_size_power=0.5)
        same(alone, grid.join(alone.select(RUN), on=RUN, how="semi"))


@pytest.mark.parametrize("record_at", [[700], [1, 699, 700], [0, 350, 700], range(0, 701, 50)])
def test_looking_more_often_changes_no_bit(whole: pl.DataFrame, record_at: Any) -> None:
    table = swept(record_at=record_at)
    same(swept(record_at=np.array(record_at)), table)
    assert len(table) == len(whole) * len(record_at)
    same(table.filter(pl.col("step") == 700), whole)


def test_a_longer_run_begins_as_the_shorter_one(whole: pl.DataFrame) -> None:
    longer = swept(steps=900, record_at=[700, 900])
    same(longer.filter(pl.col("step") == 700), whole)


def test_different_seeds_k_and_step_sizes_are_different_runs() -> None:
    """Two numbers of each: rewards of 8 runs of 3,000 steps do not coincide."""
    table = sweep(MDP, k=[0.0, 1e-12], step_size=[0.1, 0.1 + 1e-12], seeds=2, steps=3_000)
    assert table["reward_sum"].n_unique() > 5


def test_minus_zero_is_zero() -> None:
    same(swept(k=-0.0), swept(k=0.0))


# What is in the table.


def test_columns_and_rows(whole: pl.DataFrame) -> None:
    assert whole.columns == COLUMNS
    assert len(whole) == 3 * 3 * 6
    assert whole.schema == pl.Schema(
        {"algorithm": pl.String, "k": pl.Float64, "step_size": pl.Float64, "seed": pl.Int64}
        | {"step": pl.Int64, "diverged": pl.Boolean, "episodes": pl.Int64}
        | dict.fromkeys(OUTCOMES[1:], pl.Float64)
    )
    assert whole.unique(RUN).height == len(whole)
    assert whole.filter(~pl.col("diverged")).null_count().sum_horizontal().item() == 0
    seeds = swept(seeds=np.int64(3), steps=10)["seed"].unique().sort()
    assert seeds.to_list() == [0, 1, 2]


def test_episodes_and_rewards_add_up() -> None:
    """With -1 a step and 5 at the goal: reward sum = 6·episodes - steps, at any moment."""
    table = swept(k=1.6, step_size=0.3, record_at=[0, 1, 10, 350, 700])
    assert (table["reward_sum"] == 6 * table["episodes"] - table["step"]).all()
    assert table.filter(pl.col("step") <= 1)["episodes"].to_list() == [0] * 12
    by_moment = table.group_by("step", maintain_order=True).agg(pl.col("episodes").sum())
    assert by_moment["episodes"].is_sorted()
    assert by_moment["episodes"][-1] > 20 * 6


def test_mean_returns_are_of_finished_episodes_alone() -> None:
    """A finished episode of m steps returns 6 - m; their mean over a run lies above the rest.

    Without a finished one there is no mean, and no 0 or NaN in its place.
    """
    table = swept(k=1.6, step_size=0.3, record_at=[7, 700])
    early, late = (table.filter(pl.col("step") == step) for step in (7, 700))
    assert early["episodes"].sum() == 0  # the goal is 8 moves away
    assert early["mean_return"].null_count() == 6
    finished = late["mean_return"] * late["episodes"]  # = 6·episodes - steps of finished ones
    assert (finished >= late["reward_sum"] - 1e-9).all()
    assert (finished - late["reward_sum"] < 200).all()  # the unfinished episode alone


def test_values_and_norms_by_hand() -> None:
    """One state, one action, reward 1, ends at once: v* = 1; step size 1/2, k = 1.

    M_k is the number 2: q = 2z. Step 1: δ = 1, z = 1/2·2 = 1, q = 2, b = kz = 1, u = (1, 1).
    Step 2: δ = 1 - 2 = -1, z = 1 - 1 = 0, and so on.
    """
    mdp = FiniteMDP([[[0.0, 1.0]], [[0.0, 1.0]]], 1.0, [1, 0], [False, True], 0.9)
    table = sweep(mdp, k=1.0, step_size=0.5, steps=2, record_at=[0, 1, 2])
    norms = table.select(OUTCOMES[3:]).rows()
    assert norms[0] == norms[2] == (-1.0, 1.0, 0.0, 0.0, 0.0)
    assert norms[1] == pytest.approx((1.0, 1.0, 2.0, 2**0.5, 1.0))


@pytest.mark.parametrize("k", [0.0, 0.4, 6.4])
def test_norms_are_those_of_the_transform(k: float) -> None:
    """|q|, |u| and |z| of each state by `expand` and `baseline_residual`, then averaged."""
    ks, sizes = np.array([k]), np.array([0.1])
    runs = Runs(run_keys(np.array([5]), ks, sizes), ks, sizes)
    lane, out = np.empty((1, 25, 4)), sweep_module.empty_measurements(1, 1)
    table, rule = sweep_module.kernel_table(MDP), Rule(0, 0.1, 0.0)
    kernels.learn(table, runs, rule, np.array([400]), 0, 1, (0,) * 4, (0,) * 4, lane, out)
    z = lane[0][~MDP.terminal]
    q = vs.expand(z, k)
    u = vs.baseline_residual(q, vs.implicit_baseline(q, k))
    error = q.max(axis=-1) - vs.optimal_values(MDP)[~MDP.terminal]
    expected = [error.mean(), np.sqrt((error**2).mean())]
    expected += [np.linalg.norm(x, axis=-1).mean() for x in (q, u, z)]
    seen = sweep(MDP, k=k, step_size=0.1, seeds=[5], steps=400).select(OUTCOMES[3:]).row(0)
    np.testing.assert_allclose(seen, expected, rtol=1e-12)


# Divergence.


def never_nan(table: pl.DataFrame) -> None:
    floats = table.select(pl.col(pl.Float64))
    assert floats.select(pl.all().drop_nulls().is_finite().all()).row(0) == (True,) * floats.width


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("k", [50.0, 32_768.0, 1e60, 1e150, 1e300])
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_divergence_is_said_and_never_nan(algorithm: str, k: float, power: float) -> None:
    table = sweep(
        MDP, algorithm, [0.0, k], [0.01, 1.0], 3, 3_000, step_size_power=power,
        record_at=[0, 1, 2, 3, 5, 10, 20, 50, 100, 300, 1_000, 3_000],
    )  # fmt: skip
    never_nan(table)
    assert table.filter("diverged").select(pl.col(OUTCOMES).is_null().all()).row(0) == (True,) * 8
    assert table.filter(~pl.col("diverged")).drop("mean_return").null_count().row(0) == (0,) * 13
    plain, wild = table.filter(pl.col("k") == 0), table.filter(pl.col("k") == k)
    assert not plain["diverged"].any()
    assert not wild.filter(pl.col("step") == 0)["diverged"].any()
    assert wild.filter((pl.col("step") == 3_000) & (pl.col("step_size") == 1.0))["diverged"].all()


def test_a_diverged_run_stays_diverged_and_harms_no_neighbour() -> None:
    table = swept(k=[0.0, 200.0], record_at=range(0, 701, 10))
    ordered = table.sort(RUN)
    for _, run in ordered.group_by(RUN[:3], maintain_order=True):
        assert run["diverged"].is_sorted()  # false, ..., false, true, ..., true
    assert 0 < ordered["diverged"].sum() < len(ordered)
    same(table.filter(pl.col("k") == 0), swept(k=0.0, record_at=range(0, 701, 10)))


def test_huge_rewards_diverge_at_once() -> None:
    table = sweep(gridworld(step_reward=1e200), steps=5, seeds=2, record_at=[0, 1, 5])
    assert table["diverged"].to_list() == [True] * 6  # the root mean square of -v* has no number
    never_nan(table)


# What is refused.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "dqn"}, "no tabular algorithm 'dqn': write one of q-learning, sarsa, expect"),
        ({"k": []}, "`k` is empty"),
        ({"k": [1.0, 2.0, 1.0]}, "`k`: 1 is given more than once"),
        ({"k": [0.0, -0.0]}, "`k`: 0 is given more than once"),
        ({"k": "a"}, "`k = 'a'`: write a number"),
        ({"step_size": "a"}, "`step_size = 'a'`: write a number"),
        ({"epsilon": "a"}, "`epsilon = 'a'`: write a number"),
        ({"k": -1.0}, r"`k = -1`: the mean-scaling coefficient is a finite number >= 0"),
        ({"k": float("nan")}, "k = nan"),
        ({"k": [0.0, float("inf")]}, "k = inf"),
        ({"step_size": []}, "`step_size` is empty"),
        ({"step_size": 0.0}, r"`step_size = 0`: write a number above 0"),
        ({"step_size": [0.1, -0.5]}, r"`step_size = -0\.5`"),
        ({"step_size": 1.5}, r"`step_size = 1\.5`"),
        ({"step_size": float("nan")}, "`step_size = nan`"),
        ({"step_size": [0.1, 0.1]}, r"`step_size`: 0\.1 is given more than once"),
        ({"seeds": 0}, "`seeds = 0`: write a number >= 1"),
        ({"seeds": -3}, "`seeds = -3`: write a number >= 1"),
        ({"seeds": []}, "`seeds` is empty: write at least one value"),
        ({"steps": 10**30}, "`steps = 1000000000000000000000000000000`: write a number <= 1,000,000,000,000"),
        ({"seeds": [3, -1]}, "seed -1: seeds are whole numbers from 0"),
        ({"seeds": [2**63]}, "seed 9223372036854775808"),
        ({"seeds": [0.5]}, r"seed 0\.5: seeds are whole numbers from 0"),
        ({"seeds": [4, 4]}, "`seeds`: 4 is given more than once"),
        ({"steps": 0}, "`steps = 0`: write a number >= 1"),
        ({"epsilon": 1.1}, r"`epsilon = 1\.1`: a probability"),
        ({"epsilon": float("nan")}, "epsilon = nan"),
        ({"step_size_power": -0.1}, r"step_size_power = -0\.1"),
        ({"record_at": [-1]}, "record_at holds a step outside 0 to 10"),
        ({"record_at": [5, 11]}, "record_at holds a step outside 0 to 10"),
        ({"record_at": []}, "record_at is empty"),
        ({"threads": 0}, "`threads = 0`: at least 1"),
        ({"threads": -2}, "`threads = -2`: at least 1"),
    ],
)
def test_what_is_no_sweep_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        sweep(MDP, **({"steps": 10} | options))
    assert "\n" not in str(caught.value)


def test_looking_before_learning_alone() -> None:
    assert sweep(MDP, steps=10, record_at=[0]).select("step", "episodes", "norm_q").row(0) == (
        0,
        0,
        0.0,
    )


@pytest.mark.parametrize(
    "module",
    ["valueshare", "valueshare.tabular.sweep", "valueshare.tabular.mdp",
     "valueshare.tabular.planning"],
)  # fmt: skip
def test_examples_in_docstrings(module: str) -> None:
    results = doctest.testmod(import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
