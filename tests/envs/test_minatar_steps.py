"""MinAtar's games of both backends, step by step against the package `minatar`."""

import copy
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from valueshare.envs.base import Environments
from valueshare.envs.compiled import CompiledEnvironments
from valueshare.envs.minatar import DOWN, NOTHING, UP
from valueshare.envs.minatar import environments as compiled
from valueshare.envs.minatar.environments import make_minatar
from valueshare.schema import Backend

STEPS = 300
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


Choose = Callable[[Any, np.random.Generator], NDArray[np.int64]]


def random_actions(environments: Environments, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, 6, environments.count)


class LookAhead:
    """Of the actions that most often survive random play the one with the most rewards; now and then any action."""

    rollouts, depth = 10, 12

    def __init__(self, name: str) -> None:
        self.games = make_minatar([name] * 6 * self.rollouts)
        self.games.reset(range(self.games.count))

    def __call__(self, environments: CompiledEnvironments, rng: np.random.Generator) -> NDArray[np.int64]:
        (group,), chosen = environments._shares[0], []
        for state in group.states:
            clones = self.games._shares[0][0].states
            keys = clones["key"].copy()
            clones[:] = state
            clones["key"] = keys + rng.integers(2**63, dtype=np.uint64)
            first, score = np.arange(6).repeat(self.rollouts), np.zeros(self.games.count)
            alive = np.ones(self.games.count, np.bool_)
            for depth in range(self.depth):
                result = self.games.step(rng.integers(0, 6, self.games.count) if depth else first, alive)
                score += result.reward * 0.9**depth - 20 * result.terminated
                alive &= ~result.terminated
            best = score.reshape(6, self.rollouts).mean(1)
            chosen.append(int(rng.integers(6)) if rng.random() < 0.02 else int(best.argmax()))
        return np.array(chosen)


def make_without_repeats(backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> Environments:
    """Two environments that never repeat the action before."""
    if backend == "numba":
        monkeypatch.setattr(compiled, "STICKY", 0.0)
        return make_minatar([name] * 2)
    pytest.importorskip("gymnax")
    gymnax = import_module("valueshare.envs.gymnax")
    monkeypatch.setattr(gymnax, "STICKY", 0.0)
    gymnax.make_program.cache_clear()
    environments: Environments = gymnax.GymnaxEnvironments([name] * 2)
    gymnax.make_program.cache_clear()
    return environments


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        *(("numba", name) for name in GAMES),
        ("jax", "Breakout-MinAtar"),
        *(pytest.param("jax", name, marks=pytest.mark.slow) for name in GAMES if name != "Breakout-MinAtar"),
    ],
)
def test_every_step_is_one_of_minatar(backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read but observations, rewards and ends: they must fit a game of MinAtar and some random numbers.

    Where several fit, all of them are followed.
    """
    pytest.importorskip("minatar")
    environments = make_without_repeats(backend, name, monkeypatch)
    follow(environments, name, steps=STEPS, terminal_pictures=backend == "numba")
    if name != "Freeway-MinAtar":
        return
    # It ends at MinAtar's own limit, and never before. There that is a terminal state, and here it is truncation.
    game, steps = import_module("minatar.environments.freeway").Env(ramping=True), 1
    while not game.act(0)[1]:
        steps += 1
    ended = [bool(environments.step([0, 0]).truncated.all()) for _ in range(2_502)]
    assert np.flatnonzero(ended).tolist() == [steps - STEPS - 1]


def follow(
    environments: Environments, name: str, steps: int, *, terminal_pictures: bool, choose: Choose = random_actions
) -> None:
    """Compare steps of two environments with all that MinAtar's games could do."""
    channels = import_module(f"minatar.environments.{GAMES[name]}").Env(ramping=True).state_shape()[-1]

    def picture(observation: NDArray[Any]) -> NDArray[np.bool_]:
        assert not observation[channels:].any()  # the channels that a game does not use
        return np.moveaxis(observation[:channels], 0, -1)

    seen = environments.reset([3, 2**63 + 5])
    possible = [first_games(name, picture(row)) for row in seen]
    assert all(possible)
    rng, ends, rewards = np.random.default_rng(0), 0, 0.0
    for _ in range(steps):
        actions = choose(environments, rng)
        result = environments.step(actions)
        for e in range(2):
            final = picture(result.final_observation[e])
            outcome = (float(result.reward[e]), bool(result.terminated[e]))
            fitting = {
                str({name: value for name, value in vars(game).items() if name != "random"}): game
                for before in possible[e]
                for game, *made in successors(before, int(actions[e]), final)
                # Nothing is learned from a terminal picture; Gymnax draws Seaquest's oxygen differently in some.
                if tuple(made) == outcome
                and (np.array_equal(game.state(), final) or (outcome[1] and not terminal_pictures))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GAMES if name != "Freeway-MinAtar"])
def test_skilled_play_is_that_of_minatar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random play never meets a second wave, full rows or the surface with divers on board."""
    pytest.importorskip("minatar")
    environments = make_without_repeats("numba", name, monkeypatch)
    follow(environments, name, steps=1_500, terminal_pictures=True, choose=LookAhead(name))


def make_with_state(
    name: str, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], minatar_state: dict[str, Any]
) -> tuple[CompiledEnvironments, Any]:
    """Two equal environments and MinAtar's game, with these fields set directly."""
    pytest.importorskip("minatar")
    environments = make_without_repeats("numba", name, monkeypatch)
    assert isinstance(environments, CompiledEnvironments)
    environments.reset([1, 1])
    for field, value in state.items():
        environments._shares[0][0].states[field] = value
    game = import_module(f"minatar.environments.{GAMES[name]}").Env(ramping=True)
    vars(game).update(minatar_state)
    return environments, game


def assert_same_step(environments: Environments, game: Any, action: int) -> tuple[float, bool]:
    """Step both; their reward and whether the episode ended."""
    reward, terminated = game.act(action)
    result = environments.step([action] * 2)
    channels = game.state_shape()[-1]
    for e in range(2):
        assert (result.reward[e], result.terminated[e]) == (reward, terminated)
        np.testing.assert_array_equal(np.moveaxis(result.final_observation[e][:channels], 0, -1), game.state())
    return float(reward), bool(terminated)


def test_seaquest_counts_divers_below_the_least_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six divers leave -1, and every surfacing takes one more, as in MinAtar."""
    environments, game = make_with_state(
        "Seaquest-MinAtar",
        monkeypatch,
        {"on_board": -125, "spawn_timer": 100, "diver_timer": 100},  # nothing comes within these steps
        {"diver_count": -125, "e_spawn_timer": 100, "d_spawn_timer": 100},
    )
    states = environments._shares[0][0].states
    for surfacing in range(1, 21):
        assert_same_step(environments, game, DOWN)
        assert_same_step(environments, game, UP)
        assert states["on_board"].tolist() == [game.diver_count] * 2 == [-125 - surfacing] * 2


@pytest.mark.parametrize("others", [0, 1])
def test_space_invaders_hits_an_alien_in_the_step_in_which_it_lands(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MinAtar's aliens that leave the bottom row are back in row 0 when bombs and hits are resolved."""
    aliens, bullets = np.zeros((10, 10)), np.zeros((10, 10))
    aliens[9, 0] = bullets[1, 0] = 1  # the bullet moves up to row 0 first
    aliens[4, 3], bits = others, 2 ** np.arange(10)
    environments, game = make_with_state(
        "SpaceInvaders-MinAtar",
        monkeypatch,
        {
            "aliens": aliens @ bits,
            "bullets": bullets @ bits,
            "aliens_left": 1 + others,
            "move_timer": 0,
            "bomb_timer": 0,
        },
        {"alien_map": aliens, "f_bullet_map": bullets, "alien_move_timer": 0, "alien_shot_timer": 0},
    )
    assert assert_same_step(environments, game, NOTHING) == (1.0, True)
