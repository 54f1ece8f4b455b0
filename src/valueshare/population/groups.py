"""Agents that act and store together, with environments of their own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from valueshare.envs.base import Environments
from valueshare.population.act import act
from valueshare.population.exchange import Exchange, Letters, make_exchange, shifted
from valueshare.population.graph import GraphedStep
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Keys, Own, Population, State, Weights
from valueshare.replay import transitions
from valueshare.replay.transitions import Transitions


class Group(NamedTuple):
    """Agents that act and store together. The tensors of the state are views of the whole's."""

    agents: slice  # of the population
    population: Population  # of these agents
    state: State  # `online` is what they act by, `step` when they act next; the rest is not used
    exchange: Exchange
    environments: Environments
    act: GraphedStep  # exchange.observation -> exchange.seen -> exchange.action
    store: GraphedStep  # exchange -> replay
    store_on_host: Callable[[], None] | None  # exchange -> a replay that is on the host


def make_group(
    whole: Population, state: State, agents: slice, environments: Environments, *, compiled: bool
) -> Group:
    """`state` is that of the whole population; its step is over when the last group has stored."""
    population = replace(
        whole,
        agents=whole.agents[agents],
        own=Own(*(values[agents] for values in whole.own)),
        keys=Keys(*(keys[agents] for keys in whole.keys)),
    )
    is_last, whole_step = agents.stop == whole.size, state.step
    state = state._replace(
        step=whole_step.clone(),
        online=Weights(*({n: v[agents] for n, v in part.items()} for part in state.online)),
        replay=transitions.of_agents(state.replay, agents),
    )
    settings, exchange = population.settings, make_exchange(population)
    discount, on_host = population.own.discount, population.replay_on_host
    letters, seen = exchange.on_device(), exchange.seen

    def act_step() -> None:
        if population.env.stack:
            seen.copy_(shifted(seen, letters.observation, letters.ended))
        exchange.action.tensor.copy_(act(population, state, seen))
        state.step.add_(1)

    def store_step() -> None:
        if not on_host:
            remember(state.replay, letters, discount, settings)
        if is_last:
            whole_step.add_(1)

    host_discount = discount.cpu() if on_host else discount

    def store_on_host() -> None:
        remember(state.replay, exchange.on_host(), host_discount, settings)

    return Group(
        agents=agents,
        population=population,
        state=state,
        exchange=exchange,
        environments=environments,
        act=GraphedStep(act_step, population.device, compiled=compiled),
        # Compiled, every kernel that writes to a ring is tried on a copy of it: frames have no room
        # for one. Captured, the few kernels of eager mode cost as little.
        store=GraphedStep(
            store_step, population.device, compiled=compiled and not population.env.stack
        ),
        store_on_host=store_on_host if on_host else None,
    )


def begin_group(group: Group, step: Tensor, seeds: Sequence[int]) -> None:
    """New episodes for a group, from seeds; `step` [] is that of the whole population."""
    exchange, state = group.exchange, group.state
    first = exchange.observation
    first.put(group.environments.reset(seeds))
    exchange.ended.put(np.ones(group.population.size, np.bool_))  # so that stacks begin with it
    state.step.copy_(step)
    on_host = group.population.replay_on_host
    transitions.start(state.replay, first.host if on_host else first.tensor)


def choose_actions(group: Group) -> None:
    """Act, and have the actions sent to the host."""
    group.act()
    group.exchange.action.fetch()


def send_actions(group: Group) -> None:
    """Have the environments begin their step, when the actions are there."""
    group.environments.send(group.exchange.action.arrived())
    group.exchange.keep_actions()


def store(group: Group) -> None:
    """Remember what the environments answered last. The next actions may be chosen before it."""
    group.store()
    if group.store_on_host is not None:
        group.store_on_host()


@torch.no_grad()
def remember(
    replay: Transitions, letters: Letters, discount: Tensor, settings: TrainingSettings
) -> None:
    """Store the step that the environments have just taken; all of it is where the replay is."""
    transitions.append(
        replay,
        letters.taken,
        training_reward(settings, letters.reward),
        discount.masked_fill(letters.terminated, 0.0),
        letters.final_observation,
        letters.ended,
        letters.observation,
    )


def training_reward(settings: TrainingSettings, reward: Tensor) -> Tensor:
    """Rewards as the agents learn from them."""
    scaled = reward * settings.reward_scale
    return scaled.sign() if settings.clip_rewards else scaled
