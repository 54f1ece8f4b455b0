"""The backend `numba`: the protocol, independence of neighbours and threads, random choices, resuming."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from valueshare.envs import environment_spec, make_environments
from valueshare.envs.base import StepResult
from valueshare.envs.compiled import CompiledEnvironments
from valueshare.envs.minatar import minatar_names, rows
from valueshare.errors import InvalidInput
from valueshare.population.agents import agent_table
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import state_dict
from valueshare.population.train import train_population
from valueshare.schema import Backend

GAMES = tuple(minatar_names())


def assert_same(one: StepResult, rows: Any, other: StepResult, other_rows: Any) -> None:
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine[rows], theirs[other_rows])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_environment_alone_is_the_same_as_among_others(threads: int) -> None:
    """Neighbours, their number, their order and the number of threads change nothing."""
    names = list(GAMES) * 40  # 200 in turn: up to three shares of 64 or more
    together = make_environments(names, 200, threads=threads)
    chosen = [0, 66, 67, 133, 134, 197, 198, 199]  # of every game, and at the borders of the shares
    alone = make_environments([names[row] for row in reversed(chosen)], len(chosen), threads=1)
    assert isinstance(together, CompiledEnvironments)
    assert len(together._shares) == threads
    seeds = np.arange(200, dtype=np.uint64) * np.uint64(2**61 + 1)
    first = together.reset(seeds)
    np.testing.assert_array_equal(alone.reset(seeds[chosen[::-1]])[::-1], first[chosen])
    ends = 0
    for actions in np.random.default_rng(1).integers(0, 6, (300, 200)):
        result = together.step(actions)
        assert_same(alone.step(actions[chosen[::-1]]), slice(None, None, -1), result, chosen)
        ends += int((result.terminated | result.truncated)[chosen].sum())
    assert ends > 10
    again = together.reset(seeds)
    np.testing.assert_array_equal(again, first)
    together.close()


def test_an_environment_that_stands_still_keeps_its_state_and_random_numbers() -> None:
    names, rng = list(GAMES), np.random.default_rng(2)
    moving, pausing = (make_environments(names, 5) for _ in range(2))
    last = moving.reset(range(5))
    np.testing.assert_array_equal(pausing.reset(range(5)), last)
    for _ in range(150):
        actions, active = rng.integers(0, 6, 5), rng.random(5) < 0.5
        result = moving.step(actions)
        some, others = pausing.step(actions, active), pausing.step(actions, ~active)
        for row in range(5):
            before, after = (some, others) if active[row] else (others, some)
            assert_same(before, row, result, row)
            assert (after.reward[row], after.terminated[row], after.truncated[row]) == (0.0, False, False)
            np.testing.assert_array_equal(after.final_observation[row], after.observation[row])
        np.testing.assert_array_equal(some.observation[~active], last[~active])
        last = result.observation


def test_results_are_not_overwritten() -> None:
    environments, other = (make_environments(list(GAMES) * 20, 100, threads=threads) for threads in (2, 1))
    kept, copies = [], []
    environments.reset(range(100))
    other.reset(range(100))
    for actions in np.random.default_rng(4).integers(0, 6, (60, 100)):
        sent = actions.copy()
        environments.send(sent)
        sent[:] = 0  # too late
        kept.append(environments.receive())
        assert_same(kept[-1], slice(None), other.step(actions), slice(None))
        copies.append([array.copy() for array in kept[-1]])
    for result, copied in zip(kept, copies, strict=True):
        for array, earlier in zip(result, copied, strict=True):
            np.testing.assert_array_equal(array, earlier)
    assert any(not np.array_equal(result.observation, result.final_observation) for result in kept)
    environments.close()


def test_one_action_in_ten_is_the_action_before() -> None:
    environments, rng = make_environments("Breakout-MinAtar", 500), np.random.default_rng(3)
    assert isinstance(environments, CompiledEnvironments)
    environments.reset(range(500))
    before, repeated = np.zeros(500, np.int64), 0
    for _ in range(60):
        other = (before + rng.integers(1, 6, 500)) % 6
        environments.step(other)
        executed = np.concatenate([group.states["action"] for (group,) in environments._shares]).astype(np.int64)
        assert ((executed == before) | (executed == other)).all()
        repeated += int((executed == before).sum())
        before = executed
    assert abs(repeated / 30_000 - 0.1) < 0.0087  # five standard errors
    environments.close()


def share_of(hits: Any, expected: float) -> None:
    """A share of independent events, within five standard errors of what is expected."""
    assert hits.size > 900
    assert abs(hits.mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / hits.size)


def test_random_choices_have_the_probabilities_of_the_rules() -> None:
    """The first of them, in 1,000 environments of each game: seen in pictures alone."""
    first = {name: make_environments(name, 1_000) for name in GAMES}
    seen: dict[str, Any] = {name: environments.reset(range(1_000)) for name, environments in first.items()}
    asterix: Any
    seaquest: Any
    share_of(seen["Breakout-MinAtar"][:, 1, 3, 0], 1 / 2)  # the ball comes from the left
    cars = seen["Freeway-MinAtar"][:, 2:7, 1:9].any(-1)  # [E, speeds, cars]
    for speed in range(5):
        share_of(cars[:, speed], 1 / 5)
    share_of(seen["Freeway-MinAtar"][:, 2:7, 1:9, 9].any(1), 1 / 2)  # cars to the right: their trail is at the left
    for _ in range(11):
        asterix = first["Asterix-MinAtar"].step([0] * 1_000).observation
    enemies, gold = asterix[:, 1], asterix[:, 3]
    assert ((enemies | gold).sum((1, 2)) == 1).all()  # one has come, from the left or the right, in one of 8 rows
    share_of(gold.any((1, 2)), 1 / 3)
    share_of((enemies | gold)[:, :, :2].any((1, 2)), 1 / 2)  # it has moved once
    for _ in range(31):
        seaquest = first["Seaquest-MinAtar"].step([0] * 1_000).observation
    enemies, divers = seaquest[:, 5:7].any(1), seaquest[:, 9]
    share_of(seaquest[:, 6].any((1, 2)), 1 / 3)
    share_of(divers[:, :, 0].any(1), 1 / 2)
    for row in range(1, 9):
        share_of((asterix[:, 1] | gold)[:, row].any(1), 1 / 8)
        share_of(enemies[:, row].any(1), 1 / 8)
        share_of(divers[:, row].any(1), 1 / 8)
        share_of(divers[:, row, 0], 1 / 16)  # row and side are independent
        share_of((asterix[:, 1] | gold)[:, row, :2].any(1), 1 / 16)


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_an_episode_is_truncated_at_its_limit_and_begins_again(backend: Backend) -> None:
    if backend == "jax":
        pytest.importorskip("gymnax")
    environments = make_environments("SpaceInvaders-MinAtar", 2, backend=backend, episode_limit=7)
    first = environments.reset([4, 5])
    for step in range(1, 15):
        result = environments.step([1, 1])  # left: the picture changes
        assert result.truncated.tolist() == [step % 7 == 0] * 2
        assert not result.terminated.any()
        assert np.array_equal(result.observation, result.final_observation) == (step % 7 != 0)
    np.testing.assert_array_equal(result.observation, first)
    assert result.observation.shape == (2, 10, 10, 10)
    assert result.observation.dtype == np.bool_


def test_freeway_ends_at_its_limit_whatever_limit_is_given() -> None:
    for given, limit in ((None, 2_501), (2**30, 2_501), (100, 100)):  # a video has no limit of its own
        environments = make_environments(["Freeway-MinAtar", "Seaquest-MinAtar"], 2, episode_limit=given)
        environments.reset([1, 2])
        ended = [bool(environments.step([0, 0]).truncated[0]) for _ in range(limit + 1)]
        assert np.flatnonzero(ended).tolist() == [limit - 1]


def test_order_of_calls() -> None:
    environments = make_environments("Breakout-MinAtar", 2)
    with pytest.raises(RuntimeError, match="send follows reset"):
        environments.send([0, 0])
    environments.reset([1, 2])
    with pytest.raises(RuntimeError, match="receive follows send"):
        environments.receive()
    with pytest.raises(RuntimeError, match="actions of shape"):
        environments.send([0])
    for wrong in (6, 256, -1):  # 256 is 0 in 8 bits
        with pytest.raises(RuntimeError, match="actions are from 0 to 5"):
            environments.send([0, wrong])
    for shape in ((1,), (3,), (2, 1), ()):
        with pytest.raises(RuntimeError, match="active of shape"):
            environments.send([0, 5], np.ones(shape, np.bool_))
    environments.send([0, 0])
    environments.reset([1, 2])  # drops the result
    environments.step([0, 0])
    environments.close()
    with pytest.raises(RuntimeError, match="send follows reset"):
        environments.send([0, 0])


def test_specs() -> None:
    spec = environment_spec(["Breakout-MinAtar", "Seaquest-MinAtar"])
    assert (spec.backend, spec.observation_shape, spec.actions) == ("numba", (10, 10, 10), 6)
    assert spec.name == "Breakout-MinAtar+Seaquest-MinAtar"
    # All games have one limit, so that they can share a population; Freeway ends by itself.
    assert {environment_spec(name).episode_limit for name in GAMES} == {10_000}
    for name in ("Brekout-MinAtar", "breakout-minatar", "MinAtar/Breakout-v1"):
        with pytest.raises(InvalidInput, match=f"no environment '{name}': did you mean Breakout-MinAtar"):
            environment_spec(name)
    with pytest.raises(InvalidInput, match="no environment 'CartPole-v1': no compiled environment"):
        environment_spec("CartPole-v1", "numba")


def test_minatar_needs_no_jax() -> None:
    made = "from valueshare.envs import make_environments; make_environments('Breakout-MinAtar', 1).reset([1])"
    script = f"import sys; {made}; print('numba' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_the_type_of_states_changes_with_the_sources_that_are_compiled_into_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is part of the key of Numba's cache, which does not check these files itself."""
    assert sorted(path.name for path in rows.SOURCES) == ["compiled.py", "rows.py", "splitmix.py", "tables.py"]
    before = rows.record(x=np.int8)
    copies = tuple(Path(shutil.copy(path, tmp_path)) for path in rows.SOURCES)
    monkeypatch.setattr(rows, "SOURCES", copies)
    assert rows.record(x=np.int8) == before  # the bytes count, not the place
    types = {before}
    for path in copies:
        path.write_bytes(path.read_bytes() + b"#")
        types.add(rows.record(x=np.int8))
    assert len(types) == 1 + len(copies)


def test_resumed_training_is_uninterrupted(tmp_path: Path) -> None:
    agents = pl.concat(
        [agent_table(name, "ib-dqn", seeds=[0], k=2.0) for name in ("Breakout-MinAtar", "Freeway-MinAtar")]
    )
    small: dict[str, Any] = {"hidden": (8,), "batch_size": 8, "replay_capacity": 30, "learning_starts": 10}
    evaluation: dict[str, Any] = {"eval_interval": 20, "eval_episodes": 1, "eval_episode_limit": 10}
    settings = TrainingSettings(steps=40, checkpoint_interval=20, **small, **evaluation)
    whole, ticks = train_population(agents, settings), iter(range(10**9))
    stopped = train_population(agents, settings, directory=tmp_path, should_stop=lambda: next(ticks) >= 35)
    assert not stopped.finished
    resumed = train_population(agents, settings, directory=tmp_path)
    assert resumed.records.equals(whole.records)
    tensors = state_dict(whole.state)
    assert all(torch.equal(value, tensors[name]) for name, value in state_dict(resumed.state).items())
