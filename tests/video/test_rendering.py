"""Rendered environments: the same episodes as in training, with images."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from rounding import to_the_bit

from valueshare.envs import environment_spec, make_environments
from valueshare.video.rendering import make_rendered_env, minatar_colours


@pytest.mark.parametrize(
    ("name", "backend", "limit"),
    [("CartPole-v1", "envpool", 90), ("LunarLander-v3", "envpool", 90),
     pytest.param("LunarLander-v3", "numba", 90, marks=to_the_bit),
     pytest.param("LunarLanderContinuous-v3-bins5x5", "numba", 90, marks=to_the_bit),
     ("LunarLanderContinuous-v3-bins5x5", "envpool", 90), ("Pendulum-v1-bins3", "gymnasium", 30),
     ("CartPole-v1", "gymnasium", 90), ("Breakout", "ale", 250), ("Breakout-MinAtar", "numba", 90),
     pytest.param("Breakout-MinAtar", "jax", 90, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_rendered_env_plays_as_in_training(name: str, backend: Any, limit: int) -> None:
    rendered = make_rendered_env(environment_spec(name, backend))
    environments = make_environments(name, 1, backend=backend, threads=1)
    for key in (5, -(2**60)):
        state = rendered.reset(key)
        np.testing.assert_array_equal(state.observation, environments.reset([key])[0])
        for action in np.random.default_rng(0).integers(0, len(rendered.actions), limit).tolist():
            state, result = rendered.step(action), environments.step([action])
            np.testing.assert_array_equal(state.observation, result.final_observation[0])
            assert (state.reward, state.terminated) == (result.reward[0], result.terminated[0])
            if state.terminated:
                break
    rendered.close()


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_an_episode_may_be_longer_than_the_limit_of_its_environment(backend: Any) -> None:
    """MountainCar's is 200 steps; evaluation replaces it, and the caller of a rendered environment limits episodes."""
    rendered = make_rendered_env(environment_spec("MountainCar-v0", backend))
    environments = make_environments("MountainCar-v0", 1, backend=backend, threads=1, episode_limit=230)
    rendered.reset(3)
    environments.reset([3])
    for number in range(1, 231):
        state, result = rendered.step(1), environments.step([1])
        np.testing.assert_array_equal(state.observation, result.final_observation[0])
        assert (state.truncated, result.truncated[0]) == (False, number == 230)
    rendered.close()


def agent_view(image: Any) -> Any:
    """A screen in grayscale at 84 x 84, by area averages. Shapes: [210, 160, 3] -> [84, 84]."""
    grayscale = image @ np.array([0.2989, 0.587, 0.114])  # [210, 160]
    rows = grayscale.repeat(2, 0).reshape(84, 5, 160).mean(1)  # 210·2 = 84·5
    return rows.repeat(21, 1).reshape(84, 84, 40).mean(-1)  # 160·21 = 84·40


def test_the_screen_in_colour_is_what_the_agent_sees_in_grey() -> None:
    """At 84 x 84 in grey, by area averages over whole pixels made of the screen, within rounding.

    The brighter of two colours channel by channel is not always the brighter grey: a few pixels of
    what moves may differ.
    """
    rendered = make_rendered_env(environment_spec("Breakout"))
    states = [rendered.reset(1)]
    states += [rendered.step(action) for action in [1, 1, *(3, 4) * 20]]
    for state in states:
        assert state.image is not None
        assert state.image.shape == (210, 160, 3)
        assert (abs(agent_view(state.image) - state.observation) <= 2).mean() > 0.995
    assert any((a.image != b.image).any() for a, b in pairwise(states))  # type: ignore[union-attr]
    assert rendered.rate == 15
    assert rendered.actions[:3] == ("nothing", "fire", "up")
    assert rendered.actions[-1] == "down left fire"


def test_skiing_which_has_nine_actions_is_drawn_as_it_is_played() -> None:
    """ALE's vector environment has 9 actions for it, and the protocol 18: the numbers are translated for both."""
    rendered = make_rendered_env(environment_spec("Skiing"))
    state = rendered.reset(1)
    for action in (3, 3, 3, 4, 4, 4, 17, 3, 3, 3, 11, 4):  # right, left, and actions beyond the ninth
        state = rendered.step(action)
    assert state.image is not None
    assert (abs(agent_view(state.image) - state.observation) <= 2).mean() > 0.995
    rendered.close()


GAMES = {"Asterix": 4, "Breakout": 4, "Freeway": 7, "Seaquest": 10, "SpaceInvaders": 6}  # channels


@pytest.mark.parametrize(("name", "channels"), GAMES.items())
def test_minatar_has_a_colour_per_channel(name: str, channels: int) -> None:
    seaborn = pytest.importorskip("seaborn")
    palette = np.array([(0, 0, 0), *seaborn.color_palette("cubehelix", channels)])  # as in minatar/environment.py
    np.testing.assert_allclose(minatar_colours(f"{name}-MinAtar") / 255, palette, atol=0.003)


def test_minatar_is_drawn_as_by_its_own_display() -> None:
    channels, palette = GAMES["Breakout"], minatar_colours("Breakout-MinAtar") / 255
    rendered = make_rendered_env(environment_spec("Breakout-MinAtar"))
    states = [rendered.reset(3), *(rendered.step(action) for action in (0, 1, 5, 3) * 5)]
    for state in states:
        # As in minatar/environment.py, display_state: state [10, 10, channels], the largest number of a cell.
        cells = np.moveaxis(state.observation, 0, -1)[..., :channels]
        numbers = np.amax(cells * np.reshape(np.arange(channels) + 1, (1, 1, -1)), 2)
        assert state.image is not None
        assert state.image.shape == (400, 400, 3)
        np.testing.assert_array_equal(state.image[20::40, 20::40] / 255, palette[numbers])
    assert rendered.actions == ("nothing", "left", "up", "right", "down", "fire")
    rendered.close()


def test_a_gymnax_environment_without_images() -> None:
    rendered = make_rendered_env(environment_spec("CartPole-v1", "jax"))
    assert (rendered.reset(0).image, rendered.problem) == (None, "Gymnax draws no images of it")
    assert rendered.step(1).image is None
    assert rendered.actions == ("left", "right")
