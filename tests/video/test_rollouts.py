"""Rollouts: the episode is the environment's, the numbers are the network's."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from episodes import ALGORITHMS_PLAYED, K, episode, network_of

from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn.torsos import NetworkShape
from valueshare.runs.policies import read_policy, read_weights
from valueshare.video.rendering import make_rendered_env
from valueshare.video.rollouts import rollout, values_of

# What is drawn


def test_worked_example() -> None:
    # Figure 1 of the paper: z = (3, 1), k = 2: b = 2·mean(3, 1) = 4, q = (7, 5).
    values = values_of(ALGORITHMS["ib-dqn"], torch.tensor([7.0, 5.0]), 2.0)
    assert values.baseline == pytest.approx(4)
    np.testing.assert_allclose(values.residuals, [3, 1])
    # Two quantiles around it: the same of their mean, (6, 8) -> 7 and (1, 9) -> 5.
    spread = values_of(ALGORITHMS["ib-iqn"], torch.tensor([[6.0, 1.0], [8.0, 9.0]]), 2.0)
    assert spread.baseline == pytest.approx(4)
    np.testing.assert_allclose(spread.residuals, [3, 1])
    assert spread.band is not None
    np.testing.assert_allclose(spread.band, [[6.2, 1.8], [7.8, 8.2]])  # a tenth from either end


def test_numbers_are_those_of_the_layers(cartpole: Path) -> None:
    """q, b and z against what the layers of one agent's own module give, caught on the way."""
    for agent, algorithm in enumerate(ALGORITHMS_PLAYED[:3]):
        module = network_of(cartpole, agent, algorithm)
        caught: dict[str, Any] = {}

        def keep(name: str, caught: dict[str, Any]) -> Any:
            return lambda _module, inputs, output: caught.update({name: (inputs[0].numpy(), output.numpy())})

        for name, layer in module.named_modules():
            layer.register_forward_hook(keep(name, caught))
        shown = episode(cartpole, agent)
        for taken in shown[:-1]:
            with torch.no_grad():
                outputs = module(torch.from_numpy(taken.observation)).numpy()
            if algorithm == "ib-dqn":
                z, q = caught["head.expansion"]
                b = K * z.mean()
            else:
                b = caught["head.baseline"][1][0]
                x = caught["head.residual"][1]
                z = x - x.mean() if algorithm == "dueling-dqn" else x
                q = outputs if algorithm == "dueling-dqn" else x + b
            np.testing.assert_allclose(taken.values.q, q, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(taken.values.residuals, z, rtol=1e-4, atol=1e-5)
            assert taken.values.baseline == pytest.approx(b, rel=1e-4, abs=1e-5)
            assert taken.action == taken.greedy == int(q.argmax())


def test_quantile_networks_are_shown_by_their_means(cartpole: Path) -> None:
    """8 random quantiles per action: their mean is near that of 2,000 evenly spaced ones."""
    module = network_of(cartpole, 3, "ib-iqn")
    assert read_policy(cartpole, 3).population.quantile_counts.act == 8
    tau = (torch.arange(2_000) + 0.5) / 2_000
    for taken in episode(cartpole, 3)[:10]:
        with torch.no_grad():
            quantiles = module(torch.from_numpy(taken.observation), tau).numpy()  # [N, A]
        q, spread = quantiles.mean(0), quantiles.std(0)
        values = taken.values
        assert (abs(values.q - q) <= 5 * spread / 8**0.5 + 1e-6).all()
        np.testing.assert_allclose(values.q, values.baseline + values.residuals, atol=1e-9)
        assert values.baseline == pytest.approx(K * values.residuals.mean(), abs=1e-9)
        assert values.band is not None
        assert (values.band[0] <= values.q).all()
        assert (values.q <= values.band[1]).all()


# The episode


def test_the_episode_is_the_environments(cartpole: Path) -> None:
    """The same actions in Gymnasium's physics, by hand, from the first observation."""
    shown = episode(cartpole, 0)
    *decisions, last = shown
    assert [taken.step for taken in shown] == list(range(len(shown)))
    assert last.ending in ("terminated", "time limit")
    assert last.score == last.step == len(decisions)  # CartPole: 1 a step
    for now, later in pairwise(shown):
        x, speed, angle, turning = (float(value) for value in now.observation)
        force = 10.0 if now.action == 1 else -10.0
        pull = (force + 0.05 * turning**2 * np.sin(angle)) / 1.1
        twist = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        push = pull - 0.05 * twist * np.cos(angle) / 1.1
        after = np.array([speed, push, turning, twist]) * 0.02 + [x, speed, angle, turning]
        np.testing.assert_allclose(later.observation, after, atol=1e-5)


def test_a_given_limit_replaces_that_of_the_run(pong: Path) -> None:
    """As in `evaluate`: not the shorter one of both."""
    trained = read_policy(pong, 0)
    population = trained.population
    trained.population = replace(population, settings=replace(population.settings, eval_episode_limit=3))
    rendered = make_rendered_env(population.env, population.settings.atari_protocol)
    for given, ending in ((None, (3, "time limit")), (5, (5, "cut off")), (2, (2, "cut off"))):
        *_, last = rollout(trained, rendered, episodes=1, seed=0, epsilon=0.0, episode_limit=given)
        assert (last.step, last.ending) == ending
    rendered.close()


def test_stacks_are_the_last_four_frames(pong: Path) -> None:
    shown = episode(pong, 0, episode_limit=7)
    shape = NetworkShape((4, 84, 84), 18, (512,), 1.0)
    module = ALGORITHMS["ib-dqn"].build(shape, 18.0)
    module.load_state_dict(read_weights(pong, 0)[0])
    frames = [shown[0].observation] * 3 + [taken.observation for taken in shown]
    for taken in shown[:-1]:
        stack = np.stack(frames[taken.step : taken.step + 4])
        with torch.no_grad():
            q = module(torch.from_numpy(stack)).numpy()
        np.testing.assert_allclose(taken.values.q, q, rtol=1e-4, atol=1e-5)
        assert taken.values.baseline == pytest.approx(18 / 19 * q.mean(), rel=1e-4)
    assert shown[-1].ending == "cut off"
    assert shown[-1].step == 7


def test_seeds_and_exploration(cartpole: Path) -> None:
    def actions(**options: Any) -> list[int]:
        return [taken.action for taken in episode(cartpole, 0, **options)]

    assert actions(seed=1, epsilon=0.5) == actions(seed=1, epsilon=0.5)
    starts = [episode(cartpole, 0, seed=seed)[0].observation for seed in (1, 2)]
    assert (starts[0] != starts[1]).any()
    explored = [m.action != m.greedy for m in episode(cartpole, 0, epsilon=1.0, episodes=20)]
    # A random action is not the best one half of the time; over about 400 steps, 5 deviations.
    assert abs(np.mean(explored) - 0.5) < 5 * 0.5 / len(explored) ** 0.5
    two = episode(cartpole, 0, episodes=2)
    assert [taken.episode for taken in two if taken.ending] == [1, 2]
    assert (two[0].observation != next(m for m in two if m.episode == 2).observation).any()
