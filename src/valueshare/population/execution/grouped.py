"""A population divided into groups, with the device's steps compiled and captured."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from valueshare.envs.base import Environments
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all, new_stream
from valueshare.population.execution.groups import Group, make_group, shared_memory
from valueshare.population.execution.learner import Learner, make_learner
from valueshare.population.state import Population, State, flat, load_, with_delayed_actor
from valueshare.replay.cursor_history import empty_history


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

    On CUDA the steps are captured here, which runs them. The small tensors are then put back; what
    is left in the rings of replay lies beyond the cursors, and is overwritten before it is sampled.
    """
    delayed, device = population.settings.delayed_actor, population.device
    actor = with_delayed_actor(state) if delayed else state
    on_device = not population.replay_on_host
    history = empty_history(population.size, device) if delayed and on_device else None
    asynchronous = all(shared_memory(each) is not None for each in environments)
    learner = make_learner(
        population, state, actor.online.parameters, history, compiled=compiled, asynchronous=asynchronous
    )
    ends = np.cumsum([0, *(each.count for each in environments)]).tolist()
    alone = len(environments) == 1 and not asynchronous
    groups = tuple(
        make_group(
            population,
            actor,
            slice(start, end),
            each,
            compiled=compiled,
            online=state.online.parameters if delayed else None,
            history=history,
            stream=None if alone or device.type == "cpu" else new_stream(device, urgent=delayed),
        )
        for start, end, each in zip(ends, ends[1:], environments, strict=False)
    )
    before = {name: tensor.clone() for name, tensor in flat(state).items()}
    # Steps that may run at the same time must not share memory: those of different groups, and a
    # delayed update.
    joint = [learner.update_target]
    joint += [step for step in (learner.stage, learner.sync_actor) if step is not None]
    if delayed:
        capture_all([learner.learn], device)
    else:
        joint.insert(0, learner.learn)
    for group in groups:
        own_steps = (group.act, group.store, group.act_and_store, group.sync_actor)
        steps = [step for step in own_steps if isinstance(step, GraphedStep)]
        if alone:
            joint += steps
        else:
            capture_all(steps, device, stream=group.stream)
    capture_all(joint, device, urgent=delayed and not asynchronous)
    load_(state, before)
    return GroupedPopulation(population, state, groups, learner)
