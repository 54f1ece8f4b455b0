"""The compiled LunarLander against EnvPool's, which runs Box2D: the same observations, rewards and ends, to the bit."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rounding import to_the_bit

import valueshare
from valueshare.envs import Environments, make_environments
from valueshare.envs.base import mix_to_int32
from valueshare.envs.compiled import CompiledEnvironments
from valueshare.envs.lunar_lander import bodies, engine_table, rules
from valueshare.envs.lunar_lander.environments import ENVIRONMENTS_PER_THREAD
from valueshare.envs.lunar_lander.velocities import LANES
from valueshare.errors import InvalidInput
from valueshare.splitmix import source_type

Policy = Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.int64]]


def landing(observation: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
    """The controller of Gymnasium's `demo_heuristic_lander`, with a tenth of random actions: it lands, mostly."""
    x, y, speed_x, speed_y, angle, spin, left, right = observation.T
    wanted_angle = np.clip(0.5 * x + speed_x, -0.4, 0.4)
    turn = 0.5 * (wanted_angle - angle) - spin
    rise = 0.5 * (0.55 * np.abs(x) - y) - 0.5 * speed_y
    stands = (left > 0) | (right > 0)
    turn, rise = np.where(stands, 0.0, turn), np.where(stands, -0.5 * speed_y, rise)
    main, side = (rise > np.abs(turn)) & (rise > 0.05), np.where(turn < -0.05, 3, np.where(turn > 0.05, 1, 0))
    return np.where(rng.random(len(x)) < 0.1, rng.integers(0, 4, len(x)), np.where(main, 2, side))


def random(observation: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, 4, len(observation))


def both(env_id: str, count: int, limit: int | None = None) -> tuple[Environments, Environments]:
    compiled = make_environments(env_id, count, backend="numba", threads=1, episode_limit=limit)
    return compiled, make_environments(env_id, count, backend="envpool", threads=1, episode_limit=limit)


@to_the_bit
@pytest.mark.parametrize("policy", [random, landing])
def test_episodes_are_those_of_envpool(policy: Policy) -> None:
    """Crashes, landings that end at rest, flights out of sight, and truncation; some environments hold still."""
    count = 6 * LANES + 1
    compiled, pool = both("LunarLander-v3", count, limit=400)
    seeds = [17 * e - 2**62 for e in range(count)]
    observation = compiled.reset(seeds)
    np.testing.assert_array_equal(observation, pool.reset(seeds))
    rng, ends = np.random.default_rng(0), {"crash": 0, "away": 0, "landing": 0, "limit": 0}
    stood = 0
    for step in range(1_200):
        actions, active = policy(observation, rng), rng.random(count) < 0.7 if step % 5 == 0 else None
        result, expected = compiled.step(actions, active), pool.step(actions, active)
        for ours, theirs in zip(result, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        observation = result.observation
        stood += int(observation[:, 6:].any(1).sum())
        away = result.terminated & (np.abs(result.final_observation[:, 0]) >= 1)
        ends["away"] += int(away.sum())
        ends["crash"] += int((result.terminated & ~away & (result.reward == -100)).sum())
        ends["landing"] += int((result.reward == 100).sum())
        ends["limit"] += int(result.truncated.sum())
    assert ends["crash"] > 20
    assert stood > 300
    assert ends["away"] > 0 or policy is landing
    if policy is landing:
        assert ends["landing"] > 20
        assert ends["limit"] > 5


@to_the_bit
def test_runs_with_either_backend_have_the_same_records(tmp_path: Path) -> None:
    runs = {
        backend: valueshare.train(
            "LunarLander-v3",
            k=[0, 4],
            seeds=2,
            steps=300,
            learning_starts=100,
            checkpoint_interval=150,
            eval_interval=150,
            eval_episodes=2,
            eval_episode_limit=100,
            hidden=(8,),
            backend=backend,
            out=tmp_path / backend,
            launcher=valueshare.LauncherOptions(workers=1),
            progress=False,
        )
        for backend in ("numba", "envpool")
    }
    assert runs["numba"].records.height == 4 * 3
    assert runs["numba"].records.equals(runs["envpool"].records)


@to_the_bit
def test_continuous_engines_in_bins_are_those_of_envpool() -> None:
    compiled, pool = both("LunarLanderContinuous-v3-bins4x7", 9)
    np.testing.assert_array_equal(compiled.reset(range(9)), pool.reset(range(9)))
    rng = np.random.default_rng(1)
    for _ in range(300):
        actions = rng.integers(0, 28, 9)
        for ours, theirs in zip(compiled.step(actions), pool.step(actions), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_threads_change_nothing_where_some_environments_hold_still() -> None:
    """Also after a reset with a step under way, and after the threads were closed; results are not overwritten."""
    count, rng = 3 * ENVIRONMENTS_PER_THREAD + 1, np.random.default_rng(3)
    many, one = (make_environments("LunarLander-v3", count, threads=threads) for threads in (3, 1))
    for attempt in range(3):
        np.testing.assert_array_equal(many.reset(range(count)), one.reset(range(count)))
        results = []
        for _ in range(60):
            actions, active = rng.integers(0, 4, count), rng.random(count) < 0.5
            result = many.step(actions, active)
            results.append((result, [field.copy() for field in result]))
            for ours, theirs in zip(result, one.step(actions, active), strict=True):
                np.testing.assert_array_equal(ours, theirs)
        for result, copies in results:
            for field, copy in zip(result, copies, strict=True):
                np.testing.assert_array_equal(field, copy)
        if attempt == 0:
            many.send([2] * count)
        else:
            many.close()


def test_an_error_in_a_thread_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = make_environments("LunarLander-v3", 2 * ENVIRONMENTS_PER_THREAD, threads=2)
    assert isinstance(environments, CompiledEnvironments)
    first = environments.reset(range(environments.count))
    block = environments._shares[1][0]

    def fail(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(block, "step", fail)
    with pytest.raises(ValueError, match="broken"):
        environments.step([0] * environments.count)
    with pytest.raises(RuntimeError, match="send follows reset"):  # half of the environments have made the step
        environments.send([0] * environments.count)
    monkeypatch.undo()
    np.testing.assert_array_equal(environments.reset(range(environments.count)), first)
    environments.close()


def test_the_type_of_states_has_a_digest_of_all_sources() -> None:
    """It is part of the key of Numba's cache, which does not check the files itself."""
    names = {path.name for path in rules.SOURCES}
    assert {"compiled.py", "world.py", "impacts.py", "geometry.py"} <= names
    assert source_type(*rules.SOURCES).names == (rules.STATE.names or ())[-1:]


def test_an_environment_does_not_depend_on_its_neighbours_or_threads() -> None:
    """Eight are solved side by side in vector registers; in threads, others are neighbours."""
    count, rng = 3 * ENVIRONMENTS_PER_THREAD + 1, np.random.default_rng(2)
    together = make_environments("LunarLander-v3", count, threads=3)
    assert isinstance(together, CompiledEnvironments)
    assert len(together._shares) == 3
    alone = {e: make_environments("LunarLander-v3", 1, threads=1) for e in (0, 13, count - 1)}
    first = together.reset(range(count))
    for e, environment in alone.items():
        np.testing.assert_array_equal(environment.reset([e])[0], first[e])
    for _ in range(250):
        actions = rng.integers(0, 4, count)
        result = together.step(actions)
        for e, environment in alone.items():
            for ours, theirs in zip(environment.step(actions[[e]]), result, strict=True):
                np.testing.assert_array_equal(ours[0], theirs[e])
    together.close()


def test_random_numbers_are_those_of_the_mersenne_twister() -> None:
    """NumPy's generator with the same seed; a double of two words is (first + second·2^32) / 2^64, as libstdc++ has it.

    The first ones are heights of the ground: of 12, the five in the middle are the landing pad, at a quarter of the
    world's height, which is also where the smoothed ground is level.
    """
    environments = make_environments("LunarLander-v3", 1, threads=1)
    assert isinstance(environments, CompiledEnvironments)
    environments.reset([5])
    twister = np.random.RandomState(int(mix_to_int32(np.array([5], np.uint64)).view(np.uint32)[0]))
    words = twister.randint(0, 2**32, 14, np.uint32).astype(np.float64)
    drawn = (words[::2] + words[1::2] * 2.0**32) / 2.0**64 * bodies.HEIGHT / 2
    heights = np.full(12, bodies.HEIGHT / 4)
    heights[[0, 1, 2, 8, 9, 10, 11]] = drawn
    smoothed = (np.roll(heights, 1) + heights + np.roll(heights, -1))[:11] / 3
    edges = environments._shares[0][0].states["edge"][0]  # [11, 4]: the first is the bottom of the world
    np.testing.assert_array_equal(edges[1:, 1], smoothed[:-1].astype(np.float32))
    np.testing.assert_array_equal(edges[1:, 3], smoothed[1:].astype(np.float32))
    np.testing.assert_array_equal(edges[5:7, 1], np.float32(bodies.HEIGHT / 4))


def test_masses_are_those_of_the_shapes() -> None:
    """A leg: 4/30 by 16/30 m, density 1. The lander: a trapezium over a rectangle, density 5, in units of 1/30 m."""
    lander, leg, _ = bodies.SHAPES
    width, height = 4 / 30, 16 / 30
    np.testing.assert_allclose(leg.mass, width * height, rtol=1e-6)
    np.testing.assert_allclose(1 / leg.inverse_inertia, width * height * (width**2 + height**2) / 12, rtol=1e-6)
    rectangle, trapezium = 34 * 10, (34 + 28) / 2 * 17
    np.testing.assert_allclose(lander.mass, 5 * (rectangle + trapezium) / 900, rtol=1e-6)
    middle = 17 / 3 * (34 + 2 * 28) / (34 + 28)  # of a trapezium, above its longer side
    np.testing.assert_allclose(
        lander.center, [0, (rectangle * -5 + trapezium * middle) / (rectangle + trapezium) / 30], atol=1e-6
    )


def test_engines_of_actions() -> None:
    assert engine_table("LunarLander-v3").tolist() == [[0, 0, 0], [0, -1, 1], [1, 0, 0], [0, 1, 1]]
    # Main engine: off at -1 and 0, half at just above 0, full at 1. Side engines: at least half, beyond a half.
    table = engine_table("LunarLanderContinuous-v3-bins3x5")  # main -1, 0, 1; side -1, -0.5, 0, 0.5, 1
    assert table[:5].tolist() == [[0, -1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 1]]
    assert table[5:10, 0].tolist() == [0] * 5
    assert table[10:, 0].tolist() == [1] * 5


def test_wrong_names_and_actions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="or bins of these, like LunarLanderContinuous-v3-bins3x3"):
        make_environments("LunarLanderContinuous-v3", 1)
    with pytest.raises(InvalidInput, match="discrete already, write LunarLander-v3"):
        make_environments("LunarLander-v3-bins3", 1)
    with pytest.raises(InvalidInput, match="discrete already, write Breakout-MinAtar"):
        make_environments("Breakout-MinAtar-bins3", 1, backend="numba")
    with pytest.raises(InvalidInput, match="cannot be mixed"):
        make_environments(["LunarLander-v3", "Breakout-MinAtar"], 2)
    environments = make_environments("LunarLander-v3", 2)
    environments.reset([0, 1])
    with pytest.raises(RuntimeError, match="actions are from 0 to 3"):
        environments.send([0, 4])
