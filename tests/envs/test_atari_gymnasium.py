"""Atari against Gymnasium's own environment and AtariPreprocessing, picture by picture.

Gymnasium's `ALE/...-v5` with one frame a step under AtariPreprocessing is stepped with the same
actions from the same emulator seed. Frames, rewards and ends are equal, also the sticky actions,
which are drawn in the emulator frame by frame, and a repeated action cut short by game over. They
differ in four things in principle:

- Seeds. Gymnasium hashes `reset(seed=...)` into ALE's `random_seed` in its own way and to negative
  ones too, which the vector environment has not. So the emulator's seed is set directly here.
- The final picture of a truncated step. Gymnasium's (and the vector environment's own) mixes in the
  step before, because both stop before they look at the last frame; ours is the true one.
- Skiing, of which Gymnasium has 9 "full" actions. All 18 are given to its emulator here, which
  itself takes those with FIRE for no-ops.
- A lost life, where it ends an episode. Gymnasium cuts the repeated action short; ours plays on.
"""

from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing
from numpy.typing import NDArray

from valueshare.envs import Environments, StepResult, atari_game, make_environments
from valueshare.envs.base import as_keys
from valueshare.envs.emulators import emulator_seeds

GAMES = ["Breakout", "Frostbite", "Qbert", "Seaquest", "RoadRunner", "Asterix", "Skiing"]


class Plain:
    """One environment of Gymnasium, reset at its ends; `limit` in steps is counted outside it."""

    def __init__(self, game: str, limit: int | None = None, **options: Any) -> None:
        gymnasium.register_envs(ale_py)
        env = gymnasium.make(
            atari_game(game).env_id,
            frameskip=1,
            obs_type="grayscale",  # the wrapper looks at the screen itself: this only saves time
            full_action_space=True,
            disable_env_checker=True,
            **options,
        )
        emulator: Any = env.unwrapped
        emulator._action_set = list(ale_py.Action.__members__.values())  # the same but in Skiing
        self.env = AtariPreprocessing(env, noop_max=0, frame_skip=4, screen_size=84)
        self.limit = limit

    def reset(self, seed: int) -> NDArray[Any]:
        emulator: Any = self.env.unwrapped
        emulator.ale.setInt("random_seed", int(emulator_seeds(as_keys([seed], 1))[0]))
        emulator.load_game()
        self.steps = 0
        first: NDArray[Any] = self.env.reset()[0].copy()
        return first

    def step(self, action: int) -> tuple[Any, ...]:
        """A row of a StepResult."""
        stepped: tuple[Any, ...] = self.env.step(action)
        after, reward, terminated, cut, _ = stepped
        self.steps += 1
        truncated = not terminated and (cut or self.steps == self.limit)
        onward, final = after.copy(), after.copy()
        if terminated or truncated:
            onward, self.steps = self.env.reset()[0].copy(), 0
        return onward, reward, terminated, truncated, final


def assert_row(result: StepResult, row: int, expected: tuple[Any, ...]) -> None:
    for name, field, value in zip(StepResult._fields, result, expected, strict=True):
        np.testing.assert_array_equal(field[row], value, err_msg=name)


@pytest.mark.slow
def test_seven_games_at_once_play_as_gymnasiums() -> None:
    seeds = [100 + row for row in range(len(GAMES))]
    environments = make_environments(GAMES, len(GAMES), lockstep=True, threads=2)
    plain = [Plain(game) for game in GAMES]
    first = environments.reset(seeds)
    np.testing.assert_array_equal(first, [env.reset(seed) for env, seed in zip(plain, seeds, strict=True)])
    ends, rewarded = np.zeros(len(GAMES), int), np.zeros(len(GAMES), bool)
    for actions in np.random.default_rng(0).integers(0, 18, (500, len(GAMES))):
        result = environments.step(actions)
        for row, env in enumerate(plain):
            assert_row(result, row, env.step(int(actions[row])))
        ends += result.terminated
        rewarded |= result.reward != 0
    assert (ends[:-1] >= 1).all(), ends  # a game of Skiing is longer
    assert rewarded.sum() >= 6, rewarded


def test_a_limit_ends_the_same_step_and_keeps_the_true_picture() -> None:
    # Gymnasium counts frames: 4 a step.
    ours = make_environments("Pong", 1, episode_limit=40, lockstep=True)
    gymnasiums, unlimited = Plain("Pong", max_num_frames_per_episode=4 * 40), Plain("Pong")
    np.testing.assert_array_equal(ours.reset([5])[0], gymnasiums.reset(5))
    unlimited.reset(5)
    for step, action in enumerate(np.random.default_rng(1).integers(0, 18, 90), start=1):
        result = ours.step([action])
        onward, reward, terminated, truncated, final = gymnasiums.step(int(action))
        assert (result.reward[0], result.terminated[0]) == (reward, terminated)
        assert result.truncated[0] == truncated == (step in (40, 80))
        np.testing.assert_array_equal(result.observation[0], onward)
        if step <= 40:
            true = unlimited.step(int(action))[-1]
            np.testing.assert_array_equal(result.final_observation[0], true)
            assert np.array_equal(final, true) == (step < 40)  # Gymnasium's differs at the limit


MIX = ["Breakout", "Pong", "Breakout"]


@pytest.mark.parametrize(
    "limit", [1, pytest.param(17, marks=pytest.mark.slow), pytest.param(1_000, marks=pytest.mark.slow)]
)
def test_the_same_transitions_as_plain_loops(limit: int) -> None:
    environments = make_environments(MIX, 3, threads=2, episode_limit=limit)
    plain = [Plain(game, limit) for game in MIX]
    ends = np.zeros(2, int)

    for draw, still in enumerate((0.0, 0.3)):  # the share of environments that are not stepped
        generator = np.random.default_rng(draw)
        seeds = [int(seed) for seed in generator.integers(0, 2**64, 3, np.uint64)]
        last = environments.reset(seeds)
        np.testing.assert_array_equal(last, [env.reset(seed) for env, seed in zip(plain, seeds, strict=True)])
        for actions in generator.integers(0, 18, ({1: 8, 17: 40, 1_000: 400}[limit], 3)):
            active = generator.random(3) >= still
            result = environments.step(actions, active)
            for row, env in enumerate(plain):
                moved = env.step(int(actions[row])) if active[row] else None
                assert_row(result, row, moved or (last[row], 0, False, False, last[row]))
            last = result.observation
            ends[:] += result.terminated.sum(), result.truncated.sum()
    assert ends[0] >= 2 if limit == 1_000 else ends[1] >= 6


def walk(environments: Environments, seeds: list[int], steps: int) -> list[StepResult]:
    environments.reset(seeds)
    actions = np.random.default_rng(3).integers(0, 18, steps)
    return [environments.step([action] * environments.count) for action in actions]


def test_neighbours_threads_and_lockstep_do_not_matter() -> None:
    seeds = [1, 2, 3, 4]
    names = ["Pong", "Breakout", "Pong", "Pong"]
    together = walk(make_environments(names, 4, lockstep=True, episode_limit=25), seeds, 60)
    apart = walk(make_environments(names, 4, threads=1, episode_limit=25), seeds, 60)
    alone = walk(make_environments("Pong", 1, threads=1, episode_limit=25), [3], 60)
    for one, two, own in zip(together, apart, alone, strict=True):
        for x, y, z in zip(one, two, own, strict=True):
            np.testing.assert_array_equal(x, y)
            np.testing.assert_array_equal(x[2], z[0])
    # The same actions under other seeds go another way, because they are sticky.
    assert any(not np.array_equal(r.observation[0], r.observation[2]) for r in together)
