"""Groups: agents that act and store together in their own environments; steps are compiled and captured."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.envs.base import Environments
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.envs.processes.memory import SharedArrays
from valueshare.population.act import act, prefetched_exploration, stack_frames
from valueshare.population.compilation import compiled_if
from valueshare.population.execution.buffers import StepBuffers, make_step_buffers
from valueshare.population.execution.cuda_driver import pin_memory
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all, new_stream
from valueshare.population.execution.learner import Learner, capture_learner, make_learner
from valueshare.population.learn import copy_weights
from valueshare.population.networks import Tensors, Weights
from valueshare.population.state import Keys, Population, State, load_state_dict_, state_dict
from valueshare.population.store import store
from valueshare.replay import transitions
from valueshare.replay.cursor_history import CursorHistory, record_step
from valueshare.replay.cursor_history import slice_agents as slice_history


class Group(NamedTuple):
    """Agents that act and store together. The tensors of the state are views of the whole's."""

    agents: slice  # of the population
    population: Population  # of these agents
    state: State  # only `online`, the acting weights, and `step`, the next step, are used
    buffers: StepBuffers
    environments: Environments
    act: GraphedStep  # buffers.result -> buffers.obs -> buffers.action; keeps the action before
    store: GraphedStep | Callable[[], None]  # buffers -> replay; a function for replay on the host
    act_and_store: GraphedStep | Callable[[], None]  # both, in one launch where there is one
    sync_actor: GraphedStep | None  # online weights -> delayed ones, of asynchronous groups
    stream: "torch.cuda.Stream | None"  # where all of it runs; None: the current one
    unpin: Callable[[], object] | None  # the device uses memory of the environments until then

    @property
    def graphed_steps(self) -> list[GraphedStep]:
        steps = (self.act, self.store, self.act_and_store, self.sync_actor)
        return [step for step in steps if isinstance(step, GraphedStep)]

    def close(self) -> None:
        """Free the environments, and once the device is done the memory of the host that it addresses."""
        self.environments.close()
        if self.buffers.action.mapped is not None:
            torch.cuda.synchronize(self.population.device)
        if self.unpin is not None:
            self.unpin()


class GroupedPopulation(NamedTuple):
    """A population, its groups, and the learner that all of them share."""

    population: Population
    state: State
    groups: tuple[Group, ...]
    learner: Learner


def make_grouped(
    population: Population, state: State, environments: Sequence[Environments], *, compiled: bool
) -> GroupedPopulation:
    """A group for each of `environments`; `state` is that of a population before its first step.

    On CUDA the steps are captured here, which runs them.
    """
    asynchronous = all(shared_memory(each) is not None for each in environments)
    alone = len(environments) == 1 and not asynchronous
    with restoring(state):
        learner = make_learner(population, state, compiled=compiled, asynchronous=asynchronous)
        streams = [None] if alone else group_streams(population, len(environments))
        groups = make_groups(population, state, learner, environments, streams, compiled=compiled)
        beside = groups[0].graphed_steps if alone else []
        capture_learner(learner, population.device, asynchronous=asynchronous, beside=beside)
        if not alone:
            capture_groups(groups)
    return GroupedPopulation(population, state, groups, learner)


@contextmanager
def restoring(state: State) -> Iterator[None]:
    """Put the tensors of `state_dict` back at the end of steps that only capture or measure.

    What these leave in the rings of replay lies beyond the cursors, and is overwritten before it is sampled.
    """
    before = {name: tensor.clone() for name, tensor in state_dict(state).items()}
    yield
    load_state_dict_(state, before)


def group_streams(population: Population, count: int) -> "list[torch.cuda.Stream | None]":
    """A CUDA stream for each of so many groups; on a CPU None."""
    device, delayed = population.device, population.settings.delayed_actor
    return [None if device.type == "cpu" else new_stream(device, high_priority=delayed) for _ in range(count)]


def make_groups(
    population: Population,
    state: State,
    learner: Learner,
    environments: Sequence[Environments],
    streams: "Sequence[torch.cuda.Stream | None]",
    *,
    compiled: bool,
) -> tuple[Group, ...]:
    """A group for each of `environments`, on the stream at its place; not captured yet."""
    ends = np.cumsum([0, *(each.count for each in environments)]).tolist()
    return tuple(
        make_group(
            population,
            state._replace(online=Weights(learner.actor, state.online.buffers)),
            slice(start, end),
            each,
            compiled=compiled,
            online=learner.online if learner.delayed else None,
            history=learner.history,
            stream=stream,
        )
        for start, end, each, stream in zip(ends, ends[1:], environments, streams, strict=False)
    )


def capture_groups(groups: Sequence[Group]) -> None:
    """Capture the steps of groups, on CUDA. Groups run at the same time, so each has memory of its own."""
    for group in groups:
        capture_all(group.graphed_steps, group.population.device, stream=group.stream)


def make_group(
    whole: Population,
    state: State,
    agents: slice,
    environments: Environments,
    *,
    compiled: bool,
    online: Tensors | None = None,
    history: CursorHistory | None = None,
    stream: "torch.cuda.Stream | None" = None,
) -> Group:
    """`state` has the weights to act by, which are a delayed copy of `online` where that is given.

    The cursors of every stored step are recorded in `history`, where there is one.
    """
    population, state = _of_agents(whole, state, agents)
    shared, unpin = shared_memory(environments), None
    if shared is not None and population.device.type == "cuda":
        unpin = pin_memory(shared.bytes)
    settings, buffers = population.settings, make_step_buffers(population, shared)
    discount, on_host = population.hyperparameters["discount"], population.replay_on_host
    host_discount = discount.cpu() if on_host else discount
    step, obs = buffers.on_device(), buffers.obs
    sends_actions = buffers.action.mapped is not None  # the kernel writes them to the host itself
    in_blocks = population.device.type == "cpu" and not compiled
    exploration = prefetched_exploration(population, state.step) if in_blocks else lambda: None

    def act_step() -> None:
        step.action.copy_(buffers.action.tensor)  # of the step that is still to be stored
        if population.env.stack:
            obs.copy_(stack_frames(obs, step.observation, step.ended))
        buffers.action.tensor.copy_(act(population, state, obs, exploration()))
        if sends_actions:
            buffers.action.copy_to_host()
        state.step.add_(1)

    own_history = None if history is None else slice_history(history, agents)

    def store_step() -> None:
        store(state.replay, step, discount, settings)
        if own_history is not None:
            record_step(own_history, state.replay)

    def store_on_host() -> None:
        store(state.replay, buffers.on_host(), host_discount, settings)

    storing = compiled_if(compiled, store_step, tuned=False)  # no memory for a copy of the replay
    acting = compiled_if(compiled, act_step)

    def graphed(function: Callable[[], None], **around: Callable[[], None]) -> GraphedStep:
        return GraphedStep(function, population.device, compiled=False, **around)

    def send_to_host() -> None:
        if not sends_actions:
            buffers.action.copy_to_host()

    def send_and_store() -> None:
        send_to_host()  # first: the environments wait for it
        storing()

    source = {} if online is None else {name: value[agents] for name, value in online.items()}

    def sync_actor_step() -> None:
        copy_weights(source, state.online.parameters)

    upload = buffers.result.copy_to_device
    act_alone = graphed(acting, before=upload, after=send_to_host)

    def act_and_store_on_host() -> None:
        act_alone()
        store_on_host()

    return Group(
        agents=agents,
        population=population,
        state=state,
        buffers=buffers,
        environments=environments,
        act=act_alone,
        store=store_on_host if on_host else graphed(storing),
        act_and_store=act_and_store_on_host if on_host else graphed(acting, before=upload, after=send_and_store),
        sync_actor=graphed(sync_actor_step) if online is not None and shared is not None else None,
        stream=stream,
        unpin=unpin,
    )


def _of_agents(whole: Population, state: State, agents: slice) -> tuple[Population, State]:
    """Some agents with their own step counter; all other tensors are views."""
    population = replace(
        whole,
        agents=whole.agents[agents],
        hyperparameters={name: value[agents] for name, value in whole.hyperparameters.items()},
        keys=Keys(*(keys[agents] for keys in whole.keys)),
    )
    state = state._replace(
        step=state.step.clone(),
        online=Weights(*({n: v[agents] for n, v in part.items()} for part in state.online)),
        replay=transitions.slice_agents(state.replay, agents),
    )
    return population, state


def shared_memory(environments: Environments) -> SharedArrays | None:
    """Memory shared with environments in another process; None: they are in this one."""
    return environments.memory if isinstance(environments, EnvironmentProcess) else None


def reset_group(group: Group, step: Tensor, observation: NDArray[Any]) -> None:
    """Start new episodes with these observations; `step` [] is that of the whole population."""
    buffers, state = group.buffers, group.state
    first = buffers.observation
    first.put(observation)
    buffers.ended.put(np.ones(group.population.size, np.bool_))  # stacks start with this frame
    state.step.copy_(step)
    on_host = group.population.replay_on_host
    transitions.begin_episodes(state.replay, first.host if on_host else first.tensor)


def store_last_step(group: Group) -> None:
    """Store a step after which no actions are chosen: the environments would wait for them."""
    group.buffers.store_last_actions()
    group.buffers.result.upload()
    group.store()


def choose_actions(group: Group, *, stores: bool) -> None:
    """Upload the last result, act, and have the actions copied to the host; with `stores`, store the step before."""
    buffers = group.buffers
    buffers.stored_action.array[...] = buffers.action.array  # those of the step to store
    buffers.action.clear()
    if stores:
        group.act_and_store()
    else:
        group.act()
