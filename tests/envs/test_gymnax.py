"""Gymnax's environments: MinAtar's games step by step against MinAtar's own, and the protocol."""

import copy
import itertools
from collections.abc import Iterator
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


class Scripted:
    """A random generator that returns given numbers, where MinAtar asks for random ones."""

    def __init__(self, script: tuple[float, ...], cars: NDArray[np.int64] | None = None) -> None:
        self.script, self.cars, self.asked = list(script), cars, 0

    def rand(self, count: int | None = None) -> Any:
        if count is not None:  # directions of Freeway's cars
            assert self.cars is not None
            return np.where(self.cars > 0, 0.75, 0.25)
        return self._next()

    def randint(self, low: int, high: int | None = None, count: int | None = None) -> Any:
        if count is not None:  # speeds of Freeway's cars
            assert self.cars is not None
            return np.abs(self.cars)
        low, high = (0, low) if high is None else (low, high)
        return low + int(self._next() * (high - low))

    def _next(self) -> float:
        self.asked += 1
        return self.script.pop(0) if self.script else 0.0


def speeds_of(observation: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Freeway's cars, as its picture [10, 10, 7] shows them: the trail's channel is the speed, its side the direction."""
    cars = []
    for row in range(1, 9):
        at = int(observation[row, :, 1].argmax())
        trail, channel = np.argwhere(observation[row, :, 2:])[0]
        cars.append((channel + 1) * (1 if (at - trail) % 10 == 1 else -1))
    return np.array(cars, np.int64)


def successors(game: Any, action: int, seen: NDArray[np.bool_]) -> Iterator[tuple[Any, float, bool]]:
    """MinAtar's game after a step, for every outcome of its random numbers."""
    cars = speeds_of(seen) if seen.shape[-1] == 7 else None
    thirds = [(i + 0.5) / 8 for i in range(8)]  # on both sides of 1/2 and 1/3, and one for each of 8 places
    scripts: Any = [()]
    while True:
        longest = 0
        for script in scripts:
            after = copy.deepcopy(game)
            after.random = generator = Scripted(script, cars)
            reward, over = after.act(action)
            longest = max(longest, generator.asked)
            if generator.asked == len(script):
                yield after, float(reward), bool(over)
        if longest <= len(scripts[0]):
            return
        scripts = list(itertools.product(*([[0.2, 0.4, 0.9]] * 2 + [thirds] * (longest - 2))[:longest]))


def first_games(name: str, seen: NDArray[np.bool_]) -> list[Any]:
    """MinAtar's game at an episode's start, for every outcome that looks like this."""
    made = []
    for number in (0.0, 0.9):
        game = import_module(f"minatar.environments.{GAMES[name]}").Env(ramping=True)
        game.random = Scripted((number,), speeds_of(seen) if seen.shape[-1] == 7 else None)
        game.reset()
        if np.array_equal(game.state(), seen):
            made.append(game)
    return made[:1]


@pytest.mark.parametrize("name", GAMES)
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
                if tuple(made) == outcome and np.array_equal(game.state(), final)
            }
            assert fitting, f"step of environment {e} that MinAtar has not"
            assert not result.truncated[e]
            possible[e] = list(fitting.values())
            if result.terminated[e]:
                possible[e] = first_games(name, picture(result.observation[e]))
                assert possible[e]
        ends += int(result.terminated.sum())
        rewards += float(result.reward.sum())
    assert ends >= 2 or name == "Freeway-MinAtar"
    assert rewards > 0 or name == "Freeway-MinAtar"
