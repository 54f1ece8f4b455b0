"""The engine against the plain agent of this folder, event by event.

The plain agent was written from the paper's settings by someone who had not seen the engine. Both
start from the same weights and draw the same keyed random numbers, in float64; so their online and
target weights agree to rounding at every step, or they do not do the same things in the same order.
Settings are such that float32 holds them exactly, because the replay stores rewards and discounts
in float32.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import polars as pl
import pytest
import torch
from plain_agent import ALGORITHMS, EXPANDED, Deviations, PlainAgent, Settings
from torch import Tensor, nn

from valueshare.envs import environment_spec
from valueshare.envs.gymnasium import as_seed
from valueshare.learning.algorithms import algorithm_named
from valueshare.learning.randomness import integers, stream_key, uniform
from valueshare.nn.torsos import NetworkShape
from valueshare.population.act import Exploration, act
from valueshare.population.agents import agent_table
from valueshare.population.engine import make_engine
from valueshare.population.phase import run_phase
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.state import (
    initial_state,
    make_population,
)

# Episodes that terminate, and some that are truncated at their 25th step.
gymnasium.register(
    "tests/ShortCartPole-v0",
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    max_episode_steps=25,
)
PHASE = 230
TRAINING = TrainingSettings(
    steps=9 * PHASE,
    checkpoint_interval=PHASE,
    eval_interval=9 * PHASE,
    hidden=(16, 12),
    observation_scale=0.5,
    reward_scale=0.5,
    batch_size=16,
    replay_capacity=700,  # the oldest transitions are dropped from step 701 on
    learning_starts=180,
    update_interval=4,
    target_update_interval=90,  # at 180 and 360 with an update of the same step, at 270 without
    optimizer_epsilon=2**-12,
    quantiles=6,
    target_quantiles=5,
    acting_quantiles=4,
    eval_episodes=1,
    eval_episode_limit=5,
)
OWN = AgentSettings(step_size=2**-6, discount=31 / 32, epsilon_end=1 / 16, epsilon_steps=256, beta=2**-6)
# What the engine does otherwise than the paper; docs/training.md lists it.
AS_THE_ENGINE = Deviations(update_after_next_action=True, checkpoint_interval=PHASE, sample_with_replacement=True)
# Before and after: the first update and the target copies at 180, 270, 360 and 450, and the end of
# a phase. Later: the replay is full, and a difference would have grown.
STEPS = (180, 181, 270, 271, 272, 273, PHASE, PHASE + 1, 360, 361, 450, 451, 2 * PHASE)
LATER = (3 * PHASE, 3 * PHASE + 1, 2_000)
# Several of their coins fall between epsilon at a step and at the step before, so that a schedule
# which is one step late changes their actions.
SEEDS = (1_423, 2_868)
PROBES = np.random.default_rng(0).uniform(-0.2, 0.2, (64, 4)).astype(np.float32)


class Weights(NamedTuple):
    """The weights of one agent at one step, in the plain agent's order, and what it does with them."""

    online: list[Tensor]
    target: list[Tensor]
    greedy_actions: list[int]  # on the probes, by the engine itself
    acting_step: int  # the counter of IQN's quantiles for acting


Watched = dict[int, list[Weights]]  # by step, each agent's


@pytest.fixture(scope="module")
def ib_dqn() -> Watched:
    return engine_weights(table_of("ib-dqn"), TRAINING, STEPS)


def table_of(algorithm: str) -> pl.DataFrame:
    """Two agents, of two seeds; and of two k where the algorithm has one."""
    if algorithm not in EXPANDED:
        return agent_table("tests/ShortCartPole-v0", algorithm, seeds=SEEDS, agent_settings=OWN)
    table = agent_table("tests/ShortCartPole-v0", algorithm, seeds=SEEDS, k=[0.5, 4.0], agent_settings=OWN)
    return table[[0, 3]]


def double_network(algorithm: str) -> Callable[[NetworkShape, float], nn.Module]:
    def build(shape: NetworkShape, k: float) -> nn.Module:
        network = algorithm_named(algorithm).build(shape, k).double()
        for name, buffer in network.named_buffers():
            if name.endswith("frequencies"):  # pi·i was rounded to float32
                buffer.copy_(math.pi * torch.arange(1, 65, dtype=torch.float64))
        return network

    return build


def engine_weights(table: pl.DataFrame, settings: TrainingSettings, steps: Sequence[int], **how: Any) -> Watched:
    """The weights of every agent at each of these steps, before the update of that step; and 0."""
    env, algorithm = table["env"][0], table["algorithm"][0]
    population = make_population(
        table,
        settings,
        environment_spec(env, "gymnasium"),
        torch.device("cpu"),
        double_network(algorithm),
    )
    own = {name: value.double() for name, value in population.hyperparameters.items()}
    own["discount"] = population.hyperparameters["discount"]
    population = replace(population, hyperparameters=own)
    state = initial_state(population)
    state = state._replace(recent_action_values=state.recent_action_values.double())
    found: Watched = {}
    probes = torch.from_numpy(PROBES).unsqueeze(1).expand(-1, population.size, -1)
    no_exploration = Exploration(
        torch.zeros(population.size, dtype=torch.bool), torch.zeros(population.size, dtype=torch.int64)
    )

    def watch(step: int) -> None:
        if step in (0, *steps) and step not in found:
            greedy = torch.stack([act(population, state, probe, no_exploration) for probe in probes])  # [probes, P]
            found[step] = [
                Weights(
                    [value[p].clone() for value in state.online.parameters.values()],
                    [value[p].clone() for value in state.target.values()],
                    greedy[:, p].tolist(),
                    int(state.step),
                )
                for p in range(population.size)
            ]

    engine = make_engine(population, state, compiled=False, **how)
    try:
        phase = 0
        while len(found) <= len(steps):
            run_phase(engine, phase, watch)
            phase += 1
            watch(phase * settings.checkpoint_interval)
    finally:
        engine.close()
    return found


def plain_agents(
    table: pl.DataFrame,
    settings: TrainingSettings,
    first: Sequence[Weights],
    deviations: Deviations = AS_THE_ENGINE,
    kind: type[PlainAgent] = PlainAgent,
) -> list[PlainAgent]:
    """The same agents, with the engine's first weights."""
    agents = []
    for row, weights in zip(table.iter_rows(named=True), first, strict=True):
        plain = Settings(
            hidden=(settings.hidden[0], settings.hidden[1]),
            batch_size=settings.batch_size,
            replay_capacity=settings.replay_capacity,
            learning_starts=settings.learning_starts,
            update_interval=settings.update_interval,
            gradient_steps=settings.gradient_steps,
            target_update_interval=settings.target_update_interval,
            step_size=row["step_size"],
            step_size_steps=(settings.steps if settings.step_size_schedule == "linear" else None),
            adam_epsilon=settings.optimizer_epsilon,
            discount=row["discount"],
            epsilon_start=row["epsilon_start"],
            epsilon_end=row["epsilon_end"],
            epsilon_steps=row["epsilon_steps"],
            loss="huber" if settings.loss == "huber" else "squared",
            reduction=settings.reduction,
            observation_scale=settings.observation_scale,
            reward_scale=settings.reward_scale,
            beta=row["beta"],
            kappa=settings.kappa,
            online_quantiles=settings.quantiles,
            target_quantiles=settings.target_quantiles,
            acting_quantiles=settings.acting_quantiles,
        )
        seeds = [as_seed(stream_key(row["seed"], f"environment/{phase}") & (2**64 - 1)) for phase in range(9)]
        agent = kind(
            gymnasium.make(row["env"]),
            row["algorithm"],
            plain,
            seed=row["seed"],
            k=row["k"],
            reset_seeds=seeds,
            deviations=deviations,
        )
        agent.load(weights.online)
        agents.append(agent)
    return agents


def check_equal(agents: Sequence[PlainAgent], found: Watched) -> None:
    """Online weights, target weights and greedy actions at every step that was watched."""
    for step in sorted(found):
        for agent, weights in zip(agents, found[step], strict=True):
            agent.run(step)
            _close(weights.online, agent.parameters(), f"online, step {step}")
            _close(weights.target, agent.target_parameters(), f"target, step {step}")
            tau = uniform(agent.key("acting_quantiles"), weights.acting_step, agent.settings.acting_quantiles)
            assert agent.greedy_actions(PROBES, tau) == weights.greedy_actions, f"greedy actions, step {step}"


def _close(found: Sequence[Tensor], expected: Sequence[Tensor], where: str) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-9, msg=lambda text: f"{where}: {text}")


# Their losses are those of ib-double-dqn and ib-iqn, and dqn has no mean expansion either.
SLOW_ALGORITHMS = ("double-dqn", "iqn")


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_ALGORITHMS else []) for name in ALGORITHMS],
)
def test_every_algorithm_is_the_plain_agent(algorithm: str) -> None:
    table = table_of(algorithm)
    found = engine_weights(table, TRAINING, STEPS)
    check_equal(plain_agents(table, TRAINING, found[0]), found)
    assert {action for agents in found.values() for each in agents for action in each.greedy_actions} == {0, 1}
    # The target network is the first one until the first interval after learning starts is over.
    first, target = found[0][0].online, {step: found[step][0].target for step in STEPS}
    assert all(torch.equal(a, b) for a, b in zip(first, target[270], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, target[271], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_the_plain_agent_for_2000_steps(algorithm: str) -> None:
    table = table_of(algorithm)
    found = engine_weights(table, TRAINING, LATER)
    agents = plain_agents(table, TRAINING, found[0])
    check_equal(agents, found)
    # The events this rests on have happened: updates, episodes that terminated and truncated ones.
    assert all(agent.updates == (2_000 - 180) // 4 for agent in agents)
    lengths, ends = _episodes(agents[0])
    assert any(ends)
    assert 25 in [length for length, end in zip(lengths, ends, strict=True) if not end]


def _episodes(agent: PlainAgent) -> tuple[list[int], list[bool]]:
    """Lengths of the episodes in an agent's replay but the last, and whether each terminated."""
    lengths, ends, length = [], [], 0
    for now, following in pairwise(agent.replay):
        length += 1
        if not np.array_equal(now.next_obs, following.obs):
            lengths.append(length)
            ends.append(now.discount == 0)
            length = 0
    return lengths, ends


EXECUTORS: dict[str, tuple[dict[str, Any], dict[str, Any], Deviations]] = {
    # settings of the engine, how it is executed, deviations of the plain agent
    "two groups in threads": ({}, {"groups": 2}, AS_THE_ENGINE),
    "replay on the host": ({"replay_device": "cpu"}, {}, AS_THE_ENGINE),
    "delayed actor weights": (
        {"delayed_actor": True},
        {},
        replace(AS_THE_ENGINE, delayed_actor_weights=True),
    ),
    "delayed actor weights, two groups": (
        {"delayed_actor": True},
        {"groups": 2},
        replace(AS_THE_ENGINE, delayed_actor_weights=True),
    ),
    "environments in processes": ({}, {"groups": 2, "processes": True}, AS_THE_ENGINE),
    "several gradient steps": ({"gradient_steps": 3}, {}, AS_THE_ENGINE),
    "several gradient steps, replay on the host": (
        {"gradient_steps": 3, "replay_device": "cpu"},
        {},
        AS_THE_ENGINE,
    ),
    "several gradient steps, delayed actor weights": (
        {"gradient_steps": 3, "delayed_actor": True},
        {"groups": 2},
        replace(AS_THE_ENGINE, delayed_actor_weights=True),
    ),
    "environments in processes, delayed actor weights, several gradient steps": (
        {"gradient_steps": 2, "delayed_actor": True},
        {"groups": 2, "processes": True},
        replace(AS_THE_ENGINE, delayed_actor_weights=True),
    ),
    "a linear step size": ({"step_size_schedule": "linear"}, {}, AS_THE_ENGINE),
    "Huber loss, summed": ({"loss": "huber", "reduction": "sum"}, {}, AS_THE_ENGINE),
}
# The fast suite has the combination of most of them, and compares every executor with the loop to the bit.
SLOW = (
    "two groups in threads",
    "replay on the host",
    "delayed actor weights",
    "environments in processes",
    "several gradient steps",
    "delayed actor weights, two groups",
    "several gradient steps, replay on the host",
    "several gradient steps, delayed actor weights",
)


@pytest.mark.parametrize(
    ("executor", "algorithm"),
    [
        *(pytest.param(name, "ib-dqn", marks=[pytest.mark.slow] if name in SLOW else []) for name in EXECUTORS),
        *(
            pytest.param(name, "iqn", marks=pytest.mark.slow)
            for name in ("replay on the host", "delayed actor weights", "several gradient steps")
        ),
    ],
)
def test_every_way_to_execute_is_the_plain_agent(executor: str, algorithm: str) -> None:
    """At the ends of phases, where all groups are at the same step."""
    changes, how, deviations = EXECUTORS[executor]
    table, phase = table_of(algorithm), 274
    settings = replace(TRAINING, checkpoint_interval=phase, eval_interval=10 * phase, **changes)
    if "processes" in how:  # another process does not know the environments of this one
        table = table.with_columns(env=pl.lit("CartPole-v1"))
    found = engine_weights(table, settings, (phase, 2 * phase), **how)
    deviations = replace(deviations, checkpoint_interval=phase)
    check_equal(plain_agents(table, settings, found[0], deviations), found)


class CopiesAfterTheUpdate(PlainAgent):
    def learn_if_due(self) -> None:
        s, due = self.settings, self.t >= self.settings.learning_starts
        if due and self.t % s.update_interval == 0:
            self.update(self.t)
        if due and self.t % s.target_update_interval == 0:
            self.target.load_state_dict(self.online.state_dict())


class SamplesOneFewer(PlainAgent):
    seen = -1

    def sample(self, counter: int) -> Any:
        size, stored = self.settings.batch_size, len(self.replay)
        indices = integers(self.key("replay"), counter, size, stored + self.seen)[0]
        rows = [self.replay[min(int(i), stored - 1)] for i in indices]
        fields = [torch.from_numpy(np.stack(field)) for field in zip(*rows, strict=True)]
        return self.scaled(fields[0]), *fields[1:4], self.scaled(fields[4])


class SamplesOneMore(SamplesOneFewer):
    seen = 1


class LateEpsilon(PlainAgent):
    def choose_action(self) -> int:
        s = self.settings
        slope = (s.epsilon_end - s.epsilon_start) / s.epsilon_steps
        self.settings = replace(s, epsilon_start=s.epsilon_start - slope)
        try:
            return super().choose_action()
        finally:
            self.settings = s


@pytest.mark.parametrize("kind", [CopiesAfterTheUpdate, SamplesOneFewer, SamplesOneMore, LateEpsilon])
def test_the_comparison_notices_events_out_of_order(kind: type[PlainAgent], ib_dqn: Watched) -> None:
    table = table_of("ib-dqn")
    with pytest.raises(AssertionError, match="step"):
        check_equal(plain_agents(table, TRAINING, ib_dqn[0], kind=kind), ib_dqn)


@pytest.mark.parametrize(
    "deviations",
    [
        replace(AS_THE_ENGINE, update_after_next_action=False),
        replace(AS_THE_ENGINE, checkpoint_interval=None),
        replace(AS_THE_ENGINE, sample_with_replacement=False),
        replace(AS_THE_ENGINE, delayed_actor_weights=True),
    ],
    ids=["updates in time", "no phases", "without replacement", "delayed actor weights"],
)
def test_every_deviation_is_one(deviations: Deviations, ib_dqn: Watched) -> None:
    """A deviation that made no difference would not have to be listed."""
    table = table_of("ib-dqn")
    with pytest.raises(AssertionError, match="step"):
        check_equal(plain_agents(table, TRAINING, ib_dqn[0], deviations), ib_dqn)
