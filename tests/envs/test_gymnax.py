"""Gymnax's environments: MinAtar's games step by step against MinAtar's own, and the protocol."""

import copy
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("gymnax")

from valueshare.envs import environment_spec, gymnax, make_environments
from valueshare.envs.gymnax import GymnaxEnvironments, make_program
from valueshare.errors import InvalidInput

GAMES = {
    "Asterix-MinAtar": "asterix",
    "Breakout-MinAtar": "breakout",
    "Freeway-MinAtar": "freeway",
    "Seaquest-MinAtar": "seaquest",
    "SpaceInvaders-MinAtar": "space_invaders",
}


class Unscripted(Exception):
    """MinAtar asks for a random number that the script does not have."""

    def __init__(self, choices: Iterable[float]) -> None:
        self.choices = choices


class Scripted:
    """A random generator that returns given numbers, where MinAtar asks for random ones."""

    def __init__(self, script: tuple[float, ...], cars: NDArray[np.int64] | None = None) -> None:
        self.script, self.cars = list(script), cars

    def rand(self, count: int | None = None) -> Any:
        if count is not None:  # directions of Freeway's cars
            assert self.cars is not None
            return np.where(self.cars > 0, 0.75, 0.25)
        return self._next((0.2, 0.4, 0.9))  # on all sides of 1/2 and 1/3, with which it is compared

    def randint(self, low: int, high: int | None = None, count: int | None = None) -> Any:
        if count is not None:  # speeds of Freeway's cars
            assert self.cars is not None
            return np.abs(self.cars)
        return int(self._next(range(low) if high is None else range(low, high)))

    def _next(self, choices: Iterable[float]) -> float:
        if not self.script:
            raise Unscripted(choices)
        return self.script.pop(0)


def speeds_of(observation: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Freeway's cars as its picture [10, 10, 7] shows them: a trail's channel is the speed, its side the direction."""
    cars = []
    for row in range(1, 9):
        at = int(observation[row, :, 1].argmax())
        trail, channel = np.argwhere(observation[row, :, 2:])[0]
        cars.append((channel + 1) * (1 if (at - trail) % 10 == 1 else -1))
    return np.array(cars, np.int64)


def successors(game: Any, action: int, seen: NDArray[np.bool_]) -> Iterator[tuple[Any, float, bool]]:
    """MinAtar's game after a step, for every outcome of its random numbers."""
    cars = speeds_of(seen) if seen.shape[-1] == 7 else None
    scripts: list[tuple[float, ...]] = [()]
    while scripts:
        script = scripts.pop()
        after = copy.deepcopy(game)
        after.random = Scripted(script, cars)
        try:
            reward, over = after.act(action)
        except Unscripted as asked:
            scripts += [(*script, choice) for choice in asked.choices]
            continue
        after.random = None
        yield after, float(reward), bool(over)


def first_games(name: str, seen: NDArray[np.bool_]) -> list[Any]:
    """MinAtar's game at an episode's start, for every outcome that looks like this."""
    made = []
    for number in (0, 1):
        game = import_module(f"minatar.environments.{GAMES[name]}").Env(ramping=True)
        game.random = Scripted((number,), speeds_of(seen) if seen.shape[-1] == 7 else None)
        game.reset()
        if np.array_equal(game.state(), seen):
            made.append(game)
    return made[:1]


@pytest.mark.parametrize(
    "name",
    [
        "Breakout-MinAtar",
        "Seaquest-MinAtar",
        *(pytest.param(f"{game}-MinAtar", marks=pytest.mark.slow) for game in ("Asterix", "Freeway", "SpaceInvaders")),
    ],
)
def test_every_step_is_one_of_minatar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read but observations, rewards and ends: they must fit a game of MinAtar and some random numbers.

    Where several fit, all of them are followed.
    """
    pytest.importorskip("minatar")
    monkeypatch.setattr(gymnax, "STICKY", 0.0)
    make_program.cache_clear()
    environments = GymnaxEnvironments([name] * 2)
    monkeypatch.undo()
    make_program.cache_clear()
    channels = import_module(f"minatar.environments.{GAMES[name]}").Env(ramping=True).state_shape()[-1]

    def picture(observation: NDArray[Any]) -> NDArray[np.bool_]:
        assert not observation[channels:].any()  # the channels that a game does not use
        return np.moveaxis(observation[:channels], 0, -1)

    seen = environments.reset([3, 2**63 + 5])
    possible = [first_games(name, picture(row)) for row in seen]
    assert all(possible)
    rng, ends, rewards = np.random.default_rng(0), 0, 0.0
    for actions in rng.integers(0, 6, (500, 2)):
        result = environments.step(actions)
        for e in range(2):
            final = picture(result.final_observation[e])
            outcome = (float(result.reward[e]), bool(result.terminated[e]))
            fitting = {
                str({name: value for name, value in vars(game).items() if name != "random"}): game
                for before in possible[e]
                for game, *made in successors(before, int(actions[e]), final)
                # Nothing is learned from a terminal picture; Gymnax draws Seaquest's oxygen differently in some.
                if tuple(made) == outcome and (outcome[1] or np.array_equal(game.state(), final))
            }
            assert fitting, f"step of environment {e} that MinAtar has not"
            assert not result.truncated[e]
            possible[e] = list(fitting.values())
            if result.terminated[e]:
                possible[e] = first_games(name, picture(result.observation[e]))
                assert possible[e]
        ends += int(result.terminated.sum())
        rewards += float(result.reward.sum())
    if name != "Freeway-MinAtar":
        assert ends >= 2
        assert rewards > 0
        return
    # It ends at MinAtar's own limit, and never before. There that is a terminal state, and here it is truncation.
    game, steps = import_module("minatar.environments.freeway").Env(ramping=True), 1
    while not game.act(0)[1]:
        steps += 1
    ended = [bool(environments.step([0, 0]).truncated.all()) for _ in range(2_002)]
    assert np.flatnonzero(ended).tolist() == [steps - 501]  # 500 steps were taken above


def test_games_share_a_program_and_an_environment_alone_is_the_same() -> None:
    """Two games in turn, and one of them alone; the others' seeds and actions change nothing."""
    together = GymnaxEnvironments(["Breakout-MinAtar", "SpaceInvaders-MinAtar", "Breakout-MinAtar"])
    alone = GymnaxEnvironments(["Breakout-MinAtar"] * 2)
    actions = np.random.default_rng(1).integers(0, 6, (60, 3))
    first = together.reset([10, 11, 2**64 - 1])
    np.testing.assert_array_equal(alone.reset([2**64 - 1, 12])[0], first[2])
    for row in actions:
        for mine, ours in zip(alone.step(row[[2, 0]]), together.step(row), strict=True):
            np.testing.assert_array_equal(mine[0], ours[2])
    assert together.program.step._cache_size() == 1  # type: ignore[attr-defined]  # compiled once


def test_an_environment_that_stands_still_keeps_its_state_and_random_numbers() -> None:
    moving, pausing = (GymnaxEnvironments(["Breakout-MinAtar"] * 2) for _ in range(2))
    np.testing.assert_array_equal(moving.reset([1, 2]), pausing.reset([1, 2]))
    rng = np.random.default_rng(2)
    for _ in range(80):
        actions = rng.integers(0, 6, 2)
        if rng.random() < 0.5:
            before = pausing.step([0, 0], np.zeros(2, np.bool_))
            assert not before.reward.any()
            assert not (before.terminated | before.truncated).any()
        for one, other in zip(moving.step(actions), pausing.step(actions), strict=True):
            np.testing.assert_array_equal(one, other)


def test_one_action_in_ten_is_the_action_before() -> None:
    environments, rng = GymnaxEnvironments(["Breakout-MinAtar"] * 2), np.random.default_rng(3)
    environments.reset([1, 2])
    before, repeated = np.zeros(2, np.int64), 0
    for _ in range(1_500):
        other = (before + rng.integers(1, 6, 2)) % 6
        environments.step(other)
        assert environments._batch is not None
        executed = np.asarray(environments._batch.action)
        assert ((executed == before) | (executed == other)).all()
        repeated += int((executed == before).sum())
        before = executed
    assert 0.075 < repeated / 3_000 < 0.125  # 0.1 with a standard error of 0.0055


def test_an_episode_is_truncated_at_its_limit_and_begins_again() -> None:
    environments = make_environments("SpaceInvaders-MinAtar", 2, episode_limit=7)
    first = environments.reset([4, 5])
    for step in range(1, 15):
        result = environments.step([1, 1])  # left: the picture changes
        assert result.truncated.tolist() == [step % 7 == 0] * 2
        assert not result.terminated.any()
        assert np.array_equal(result.observation, result.final_observation) == (step % 7 != 0)
    assert result.observation.shape == first.shape == (2, 10, 10, 10)
    assert result.observation.dtype == np.bool_


def test_freeway_ends_at_its_limit_whatever_limit_is_asked_for() -> None:
    for asked, limit in ((None, 2_501), (2**30, 2_501), (100, 100)):  # a video has no limit of its own
        assert gymnax._Game("Freeway-MinAtar", np.arange(1), asked).params.max_steps_in_episode == limit


def test_specs() -> None:
    spec = environment_spec(["Breakout-MinAtar", "Seaquest-MinAtar"])
    assert (spec.backend, spec.observation_shape, spec.actions) == ("jax", (10, 10, 10), 6)
    assert spec.name == "Breakout-MinAtar+Seaquest-MinAtar"
    # All games have one limit, so that they can share a population; Freeway ends by itself.
    assert {environment_spec(name).episode_limit for name in GAMES} == {10_000}
    cartpole = environment_spec("CartPole-v1", "jax")
    assert (cartpole.observation_shape, cartpole.actions, cartpole.episode_limit) == ((4,), 2, 500)
    with pytest.raises(InvalidInput, match="Pendulum-v1 has actions Box: choose one with Discrete actions"):
        environment_spec("Pendulum-v1", "jax")
    for name in ("Brekout-MinAtar", "breakout-minatar", "MinAtar/Breakout-v1"):
        with pytest.raises(InvalidInput, match=f"no environment '{name}': did you mean Breakout-MinAtar"):
            environment_spec(name)
