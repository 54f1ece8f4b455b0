"""Scores and overestimation against their definitions, episode by episode."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch

from valueshare.envs import environment_spec, make_environments
from valueshare.errors import InvalidInput
from valueshare.learning.randomness import stream_key
from valueshare.population.agents import agent_table
from valueshare.population.evaluate import (
    EpisodeStats,
    Scores,
    StepOutcome,
    eval_env_count,
    evaluate,
    first_rng_counter,
)
from valueshare.population.execution.evaluators import HostEvaluator
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.state import Population, initial_state, make_population
from valueshare.population.train import train_population
from valueshare.setting import MAX_COUNT
from valueshare.value_metrics import overestimation

SETTINGS = TrainingSettings(
    steps=10,
    checkpoint_interval=10,
    eval_interval=10,
    hidden=(8,),
    reward_scale=0.5,
    eval_envs=2,
)


def never(step: int) -> None:
    """A poll that never stops."""


def evaluator_of(env: str, settings: TrainingSettings, seeds: list[int]) -> tuple[Population, HostEvaluator]:
    table = agent_table(env, "dqn", seeds=seeds, agent_settings=AgentSettings(discount=0.9))
    population = make_population(table, settings, environment_spec(env), torch.device("cpu"))
    lanes = len(seeds) * eval_env_count(settings)
    environments = make_environments(env, lanes, episode_limit=settings.eval_episode_limit)
    return population, HostEvaluator(population, initial_state(population), environments, compiled=False)


def scores(env: str, settings: TrainingSettings, seeds: list[int], step: int = 0) -> Scores:
    population, evaluator = evaluator_of(env, settings, seeds)
    found = evaluate(population, evaluator, step, never)
    assert first_rng_counter(step) < int(evaluator.counter) < first_rng_counter(step + 1)
    return found


def test_counters_fit_and_no_two_evaluations_share_one() -> None:
    edges = (0, 2**31, 2**32, 2**33, MAX_COUNT)
    steps = sorted({edge + near for edge in edges for near in (-2, -1, 0, 1)} - {-2, -1, MAX_COUNT + 1})
    assert (steps[0], steps[-1]) == (0, 10**12)
    first = sorted(first_rng_counter(step) for step in steps)
    assert all(later - now >= 2**23 for now, later in pairwise(first))
    assert -(2**63) <= first[0]
    assert first[-1] + 2**31 <= 2**63  # the last tick of the last one is 2^63 - 1
    assert [first_rng_counter(step) for step in (0, 1, 2**32 - 1)] == [0, 2**31, 2**63 - 2**31]


def test_late_evaluations_draw_numbers_of_their_own() -> None:
    """All actions are random ones: lengths of episodes differ from evaluation to evaluation."""
    settings = dataclasses.replace(SETTINGS, eval_episodes=20, eval_envs=20, eval_epsilon=1.0)
    found = [scores("CartPole-v1", settings, [0], step) for step in (2**32, 2**33, 10**12)]
    assert [one.episodes.tolist() for one in found] == [[20]] * 3
    assert len({float(one.score[0]) for one in found}) == 3


def test_without_exploration_actions_are_those_of_an_epsilon_that_is_never_drawn() -> None:
    """Without it no random numbers are drawn; with 1e-9 they are, and none of these few is below it."""
    found = [
        scores("CartPole-v1", dataclasses.replace(SETTINGS, eval_episodes=4, eval_epsilon=epsilon), [0, 1])
        for epsilon in (0.0, 1e-9)
    ]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_tally_is_the_definition_of_overestimation() -> None:
    # Two agents with two copies each; episodes of different lengths, terminated and truncated.
    generator = np.random.default_rng(0)
    discount = np.array([[0.9], [0.5]])
    settings = dataclasses.replace(SETTINGS, eval_episodes=0, eval_timesteps=14, reward_scale=1.0)
    stats = EpisodeStats(settings, torch.tensor(discount[:, 0]))
    lengths = {(0, 0): [3, 4], (0, 1): [7], (1, 0): [1, 1, 5], (1, 1): [2, 5]}
    expected: dict[int, list[float]] = {0: [], 1: []}
    returns: dict[int, list[float]] = {0: [], 1: []}
    steps = []  # (q, reward, terminated, truncated, final value) by tick, [2, 2] each
    columns = {}
    for copy, episodes in lengths.items():
        column = []
        for i, length in enumerate(episodes):
            q, r = generator.normal(size=(2, length))
            final = generator.normal() if i % 2 == 0 else 0.0  # every other one is truncated
            gamma = discount[copy[0], 0]
            expected[copy[0]].append(overestimation(q, r, gamma, final).mean())
            returns[copy[0]].append(r.sum())
            ends = [False] * (length - 1) + [True]
            column += [(q[t], r[t], ends[t] and i % 2 > 0, ends[t] and i % 2 == 0, final) for t in range(length)]
        columns[copy] = column
    for t in range(7):
        tick = np.zeros((5, 2, 2))
        for copy, column in columns.items():
            tick[(slice(None), *copy)] = column[t]
        steps.append(tick)
    stats.reset()
    for values, reward, terminated, truncated, beyond in map(torch.tensor, steps):
        assert stats.active.all()
        stats.add(StepOutcome(values, reward, terminated.bool(), truncated.bool(), beyond))
    assert not stats.active.any()
    found = stats.scores()
    assert found.episodes.tolist() == [3, 5]
    np.testing.assert_allclose(found.overestimation, [np.mean(expected[p]) for p in (0, 1)])
    np.testing.assert_allclose(found.score, [np.mean(returns[p]) for p in (0, 1)])


def test_exactly_the_wanted_episodes_are_played() -> None:
    # The clock gives 1 a step for 5 steps, so every score is 5, by 3 episodes over 2 copies.
    settings = dataclasses.replace(SETTINGS, eval_episodes=3)
    found = scores("tests/Clock-v0", settings, [0, 1])
    assert found.episodes.tolist() == [3, 3]
    assert found.score.tolist() == [5.0, 5.0]


def test_an_interrupted_evaluation_leaves_nothing_behind() -> None:
    """A step is counted while the next one runs: the last step before the interruption never is."""
    population, evaluator = evaluator_of("tests/Clock-v0", dataclasses.replace(SETTINGS, eval_episodes=3), [0, 1])
    polls = 0

    def interrupt(step: int) -> None:
        nonlocal polls
        polls += 1
        if polls == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(population, evaluator, 0, interrupt)
    found = evaluate(population, evaluator, 0, never)
    assert found.episodes.tolist() == [3, 3]
    assert found.score.tolist() == [5.0, 5.0]


def test_greedy_episodes_against_a_plain_loop() -> None:
    settings = dataclasses.replace(SETTINGS, eval_episodes=2, eval_episode_limit=12)
    found = scores("CartPole-v1", settings, [5])
    table = agent_table("CartPole-v1", "dqn", seeds=[5], agent_settings=AgentSettings(discount=0.9))
    spec = environment_spec("CartPole-v1")
    population = make_population(table, settings, spec, torch.device("cpu"))
    state = initial_state(population)

    def values(observation: np.ndarray) -> np.ndarray:
        q = population.q_values(state.online, torch.from_numpy(observation)[None], None)
        array: np.ndarray = q[0, 0].detach().numpy()
        return array

    totals, over = [], []
    for copy in range(2):
        env = make_environments("CartPole-v1", 1, episode_limit=12)
        observation = env.reset([stream_key(5, f"evaluation-environment/0/{copy}")])
        q_values, rewards, final = [], [], 0.0
        while True:
            q = values(observation)
            q_values.append(q.max())
            result = env.step([int(q.argmax())])
            rewards.append(result.reward[0])
            observation = result.observation
            if result.truncated[0]:
                final = values(result.final_observation).max()
            if result.terminated[0] or result.truncated[0]:
                break
        totals.append(sum(rewards))
        over.append(overestimation(q_values, 0.5 * np.array(rewards), 0.9, final).mean())
    assert found.score[0] == pytest.approx(np.mean(totals))
    assert found.overestimation[0] == pytest.approx(np.mean(over), rel=1e-5)


def test_by_timesteps_the_episode_that_is_cut_is_discarded() -> None:
    # 2 copies x 7 steps: each finishes one episode of 5 and loses 2 steps of the next.
    settings = dataclasses.replace(SETTINGS, eval_episodes=0, eval_timesteps=14)
    found = scores("tests/Clock-v0", settings, [0])
    assert found.episodes.tolist() == [2]
    assert found.score.tolist() == [5.0]


def test_where_no_episode_finished_there_is_no_score() -> None:
    settings = dataclasses.replace(SETTINGS, eval_episodes=0, eval_timesteps=8, learning_starts=5)
    records = train_population(agent_table("tests/Clock-v0", "dqn", seeds=[0]), settings).records
    assert records["episodes"].to_list() == [0, 0]
    assert records["score"].to_list() == [None, None]
    assert records["overestimation"].to_list() == [None, None]
    assert records["train_score"].to_list() == [None, 5.0]


def test_evaluations_that_cannot_end_are_refused() -> None:
    settings = dataclasses.replace(SETTINGS, eval_episodes=0, eval_timesteps=9)
    with pytest.raises(InvalidInput, match="not a multiple of `eval_envs"):
        train_population(agent_table("tests/Clock-v0", "dqn", seeds=[0]), settings)
