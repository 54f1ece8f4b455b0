"""Agents that act and store together, with environments of their own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.envs.base import Environments
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.envs.processes.memory import SharedArrays
from valueshare.population.act import act, exploration_in_blocks
from valueshare.population.cuda_driver import lock_pages
from valueshare.population.exchange import Exchange, Letters, make_exchange, shifted
from valueshare.population.graph import GraphedStep, compiled_if
from valueshare.population.past import Past, note_step
from valueshare.population.past import of_agents as past_of_agents
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Keys, Own, Population, State, Tensors, Weights
from valueshare.population.updates import copy_weights
from valueshare.replay import transitions
from valueshare.replay.transitions import Transitions


class Group(NamedTuple):
    """Agents that act and store together. The tensors of the state are views of the whole's."""

    agents: slice  # of the population
    population: Population  # of these agents
    state: State  # `online` is what they act by, `step` when they act next; the rest is not used
    exchange: Exchange
    environments: Environments
    act: GraphedStep  # letterboxes -> exchange.seen -> exchange.action, whose old is then `taken`
    store: GraphedStep | Callable[[], None]  # exchange -> replay; the latter is on the host
    act_and_store: GraphedStep | Callable[[], None]  # both, in one launch where there is one
    follow: GraphedStep | None  # online weights -> those to act by, where they lag and are led
    stream: "torch.cuda.Stream | None"  # where all of it runs; None: on the current one
    unlock: Callable[[], object] | None  # the device uses memory of its environments until then

    def close(self) -> None:
        """Free the environments, and when the device has done with it, what it shares with them."""
        self.environments.close()
        if self.unlock is not None:
            torch.cuda.synchronize(self.population.device)
            self.unlock()


def make_group(
    whole: Population,
    state: State,
    agents: slice,
    environments: Environments,
    *,
    compiled: bool,
    online: Tensors | None = None,
    past: Past | None = None,
    stream: "torch.cuda.Stream | None" = None,
) -> Group:
    """`state` has the weights to act by, which are a copy of `online` where those are given.

    What is stored is noted in `past` as well, where there is one.
    """
    population, state = _of_agents(whole, state, agents)
    shared, unlock = shared_memory(environments), None
    if shared is not None and population.device.type == "cuda":
        unlock = lock_pages(shared.bytes)
    settings, exchange = population.settings, make_exchange(population, shared)
    discount, on_host = population.own.discount, population.replay_on_host
    host_discount = discount.cpu() if on_host else discount
    letters, seen = exchange.on_device(), exchange.seen
    answers_within = exchange.action.mapped is not None
    in_blocks = population.device.type == "cpu" and not compiled
    exploration = exploration_in_blocks(population, state.step) if in_blocks else lambda: None

    def act_step() -> None:
        letters.taken.copy_(exchange.action.tensor)  # of the step that is yet to be stored
        if population.env.stack:
            seen.copy_(shifted(seen, letters.observation, letters.ended))
        exchange.action.tensor.copy_(act(population, state, seen, exploration()))
        if answers_within:  # compiled, the kernel that chooses an action writes it there as well
            exchange.action.to_host()
        state.step.add_(1)

    own_past = None if past is None else past_of_agents(past, agents)

    def store_step() -> None:
        remember(state.replay, letters, discount, settings)
        if own_past is not None:
            note_step(own_past, state.replay)

    def store_on_host() -> None:
        remember(state.replay, exchange.on_host(), host_discount, settings)

    storing = compiled_if(compiled, store_step, tuned=False)  # there is no room for another ring
    acting = compiled_if(compiled, act_step)

    def graphed(function: Callable[[], None], **around: Callable[[], None]) -> GraphedStep:
        return GraphedStep(function, population.device, compiled=False, **around)

    def answer() -> None:
        if not answers_within:
            exchange.action.to_host()

    def answer_and_store() -> None:
        answer()  # first: the environments wait for it
        storing()

    source = {} if online is None else {name: value[agents] for name, value in online.items()}

    def follow_step() -> None:
        copy_weights(source, state.online.parameters)

    fetch = exchange.result.to_device
    act_alone = graphed(acting, before=fetch, after=answer)

    def act_and_store_on_host() -> None:
        act_alone()
        store_on_host()

    return Group(
        agents=agents,
        population=population,
        state=state,
        exchange=exchange,
        environments=environments,
        act=act_alone,
        store=store_on_host if on_host else graphed(storing),
        act_and_store=act_and_store_on_host
        if on_host
        else graphed(acting, before=fetch, after=answer_and_store),
        follow=graphed(follow_step) if online is not None and shared is not None else None,
        stream=stream,
        unlock=unlock,
    )


def _of_agents(whole: Population, state: State, agents: slice) -> tuple[Population, State]:
    """Some agents alone, with a clock of their own; all other tensors are views."""
    population = replace(
        whole,
        agents=whole.agents[agents],
        own=Own(*(values[agents] for values in whole.own)),
        keys=Keys(*(keys[agents] for keys in whole.keys)),
    )
    state = state._replace(
        step=state.step.clone(),
        online=Weights(*({n: v[agents] for n, v in part.items()} for part in state.online)),
        replay=transitions.of_agents(state.replay, agents),
    )
    return population, state


def shared_memory(environments: Environments) -> SharedArrays | None:
    """What environments in another process share with this one; None: they are here."""
    return environments.memory if isinstance(environments, EnvironmentProcess) else None


def begin_group(group: Group, step: Tensor, observation: NDArray[Any]) -> None:
    """New episodes for a group, which show this; `step` [] is that of the whole population."""
    exchange, state = group.exchange, group.state
    first = exchange.observation
    first.put(observation)
    exchange.ended.put(np.ones(group.population.size, np.bool_))  # so that stacks begin with it
    state.step.copy_(step)
    on_host = group.population.replay_on_host
    transitions.start(state.replay, first.host if on_host else first.tensor)


def choose_actions(group: Group) -> None:
    """Hand over what the letterboxes hold, act, and have the actions sent to the host."""
    _make_room(group)
    group.act()


def choose_and_store(group: Group) -> None:
    """The same, and then store the step that led there."""
    _make_room(group)
    group.act_and_store()


def _make_room(group: Group) -> None:
    """For new actions: the last ones are those of the step to store."""
    exchange = group.exchange
    np.copyto(exchange.taken.array, exchange.action.array)
    exchange.action.empty()


def send_actions(group: Group) -> None:
    """Have the environments begin their step, when the actions are there."""
    group.environments.send(group.exchange.action.filled())


@torch.no_grad()
def remember(
    replay: Transitions, letters: Letters, discount: Tensor, settings: TrainingSettings
) -> None:
    """Store the step that the environments have just taken; all of it is where the replay is."""
    ended = letters.ended.reshape(-1, *(1,) * (letters.observation.ndim - 1))
    transitions.append(
        replay,
        letters.taken,
        training_reward(settings, letters.reward),
        discount.masked_fill(letters.terminated, 0.0),
        torch.where(ended, letters.final_observation, letters.observation),
        letters.ended,
        letters.observation,
    )


def training_reward(settings: TrainingSettings, reward: Tensor) -> Tensor:
    """Rewards as the agents learn from them."""
    scaled = reward * settings.reward_scale
    return scaled.sign() if settings.clip_rewards else scaled
