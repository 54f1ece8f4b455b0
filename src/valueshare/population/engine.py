"""An engine: a population with all that moves it, its environments and the device's steps.

A tick of the whole population is

    act, and actions to the host -> store the step before -> learn -> environments begin and end

so that storing and learning overlap the environments (on CUDA the host only launches them). The
update of tick t therefore samples transitions up to t-1: the one that is under way is not there
yet. `advance` makes the ticks.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.envs import make_environments
from valueshare.envs.base import Environments
from valueshare.envs.processes.environments import EnvironmentProcess
from valueshare.errors import InvalidInput
from valueshare.population.cuda_driver import can_wait
from valueshare.population.evaluate import Player, check_evaluation, copies, make_player
from valueshare.population.graph import GraphedStep, capture_all, new_stream
from valueshare.population.groups import Group, begin_group, make_group, shared_memory
from valueshare.population.past import no_past
from valueshare.population.state import Population, State, Weights, flat, load_
from valueshare.population.updates import Learner, make_learner, renew_acting

# Groups that are led, if nothing is said. Of 16 agents on 16 cores four were faster than two, and
# eight about as fast as four.
LED_GROUPS = 4
LED_THREADS = 4  # of the emulators of each, at least


class Evaluation(NamedTuple):
    """What agents are evaluated with."""

    player: Player
    environments: Environments


class Engine(NamedTuple):
    """A population with all that moves it: environments, and the device's steps.

    One that only trains has nothing for evaluation.
    """

    population: Population
    state: State
    groups: tuple[Group, ...]
    learner: Learner
    evaluation: Evaluation | None

    @property
    def is_led(self) -> bool:
        """Whether environments have processes of their own, and go by themselves."""
        return all(shared_memory(group.environments) is not None for group in self.groups)

    def close(self) -> None:
        """Free the environments; all of them, whatever happens on the way."""
        with ExitStack() as last:
            if self.evaluation is not None:
                last.callback(self.evaluation.environments.close)
            for group in self.groups:
                last.callback(group.close)


def make_engine(
    population: Population,
    state: State,
    *,
    compiled: bool,
    threads: int | None = None,
    groups: int | None = None,
    evaluates: bool = True,
    processes: bool | None = None,
) -> Engine:
    """`state` must be a population's that has not begun; load a checkpoint into it afterwards.

    `groups` of agents act each at their own pace: no agent's random numbers change, and while the
    environments of one group run, the device works for another. Groups share `threads` (None: one a
    core) evenly, because all of their environments may be under way; those of evaluation have all
    of them, because nothing else runs then. Without `evaluates` there are none. `processes` says
    whether each group's environments have a process of their own (None: where that is faster).
    """
    settings, size = population.settings, population.size
    led = can_be_led(population) if processes is None else processes
    if led and population.replay_on_host:
        raise InvalidInput("environments in processes need a replay on the device: leave it there")
    threads = available_cores() if threads is None else threads
    if groups is None:
        groups = min(size, max(1, threads // LED_THREADS), LED_GROUPS) if led else 1
    if not 1 <= groups <= size:
        raise InvalidInput(f"groups = {groups}: write a number from 1 to {size}, the agents")
    if compiled:
        # All populations compile the same few functions, and PyTorch gives a function eight
        # versions: forget those of populations that are done.
        torch.compiler.reset()
    names = population.agents["env"].to_list()
    playing = None
    if evaluates:
        rows = np.repeat(names, copies(settings))
        playing = _environments(population, rows, threads, evaluation=True)
        check_evaluation(settings, playing.spec.episode_limit)
    own_threads = max(1, threads // groups)
    shares = np.array_split(names, groups)
    training: list[Environments] = []
    try:
        for share in shares:
            if led:
                training.append(_process(population, share, own_threads))
            else:
                training.append(_environments(population, share, own_threads, evaluation=False))
        parts, learner = _make_steps(population, state, training, compiled=compiled)
        evaluation = None
        if playing is not None:
            evaluation = Evaluation(make_player(population, state, compiled=compiled), playing)
    except BaseException:
        for each in training:  # processes would go on
            each.close()
        raise
    return Engine(population, state, parts, learner, evaluation)


def begin(engine: Engine, seeds: Sequence[int]) -> None:
    """New episodes everywhere, one seed an agent; an acting copy that lags is renewed."""
    renew_acting(engine.learner)
    first = _reset(engine, seeds)
    for group, observation in zip(engine.groups, first, strict=True):
        begin_group(group, engine.state.step, observation)


def can_be_led(population: Population) -> bool:
    """Whether processes of their own make environments faster: emulators, a GPU with replay."""
    suits = population.env.backend == "ale" and not population.replay_on_host
    return suits and can_wait(population.device)


def _reset(engine: Engine, seeds: Sequence[int]) -> list[NDArray[Any]]:
    """The first observations of every group; emulators load their games side by side."""

    def reset(group: Group) -> NDArray[Any]:
        return group.environments.reset(seeds[group.agents])

    if engine.is_led and engine.population.device.type == "cuda":
        torch.cuda.synchronize()  # or actions of before might come to environments of afterwards
    if engine.population.env.backend != "ale":
        return [reset(group) for group in engine.groups]
    with ThreadPoolExecutor(len(engine.groups)) as pool:
        return list(pool.map(reset, engine.groups))


def _make_steps(
    population: Population,
    state: State,
    environments: Sequence[Environments],
    *,
    compiled: bool,
) -> tuple[tuple[Group, ...], Learner]:
    """The steps of a population that has not begun, with a group for each of `environments`.

    On CUDA they are captured here, which runs them. The small tensors are put back; what remains of
    it in the rings of replay lies where the cursors have not been, and is overwritten before it can
    be sampled.
    """
    online, lags, device = state.online, population.settings.delayed_actor, population.device
    acting = {n: v.clone() for n, v in online.parameters.items()} if lags else online.parameters
    past = no_past(population.size, device) if lags and not population.replay_on_host else None
    led = all(shared_memory(each) is not None for each in environments)
    learner = make_learner(population, state, acting, past, compiled=compiled, led=led)
    ends = np.cumsum([0, *(each.count for each in environments)]).tolist()
    own = state._replace(online=Weights(acting, online.buffers))
    alone = len(environments) == 1 and not led
    groups = tuple(
        make_group(
            population,
            own,
            slice(begin, end),
            each,
            compiled=compiled,
            online=online.parameters if lags else None,
            past=past,
            stream=None if alone or device.type == "cpu" else new_stream(device, urgent=lags),
        )
        for begin, end, each in zip(ends, ends[1:], environments, strict=False)
    )
    before = {name: tensor.clone() for name, tensor in flat(state).items()}
    # Steps that may run at the same time must not share memory: those of different groups, and an
    # update that lags behind.
    joint = [learner.update_target]
    joint += [step for step in (learner.stage, learner.follow) if step is not None]
    if lags:
        capture_all([learner.learn], device)
    else:
        joint.insert(0, learner.learn)
    for group in groups:
        own_steps = (group.act, group.store, group.act_and_store, group.follow)
        steps = [step for step in own_steps if isinstance(step, GraphedStep)]
        if alone:
            joint += steps
        else:
            capture_all(steps, device, stream=group.stream)
    capture_all(joint, device, urgent=lags and not led)  # those who are led do not wait for it
    load_(state, before)
    return groups, learner


def _process(
    population: Population, names: Sequence[str] | NDArray[np.str_], threads: int
) -> Environments:
    return EnvironmentProcess(
        [str(name) for name in names],
        population.env,
        threads=threads,
        protocol=population.settings.atari_protocol,
    )


def _environments(
    population: Population,
    names: Sequence[str] | NDArray[np.str_],
    threads: int,
    *,
    evaluation: bool,
) -> Environments:
    return make_environments(
        [str(name) for name in names],
        len(names),
        backend=population.env.backend,
        threads=threads,
        episode_limit=population.settings.eval_episode_limit if evaluation else None,
        protocol=population.settings.atari_protocol,
        lockstep=not evaluation,
        evaluation=evaluation,
    )
