"""Joint updates of all agents: the source of their batches, and their CUDA stream.

An update samples its own batch, with two exceptions, where the batch is *staged* before it.
A replay on the host is sampled there. And with `delayed_actor` an update runs beside acting, on a
CUDA stream of its own: its batch is sampled as of its step (`CursorHistory`), and agents act by
a copy of the weights, updated before the next update. On a CPU the same happens in turn.

Everything here is launched on the current stream; the caller makes it the learner's.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import torch

from valueshare.learning.randomness import integers
from valueshare.population.execution.buffers import ShapeAndType, packed
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all, new_stream
from valueshare.population.learn import copy_weights, learn, sample, update_counter, update_target
from valueshare.population.loop import run_updates
from valueshare.population.networks import Tensors
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, torch_dtype, with_delayed_actor
from valueshare.replay import transitions
from valueshare.replay.cursor_history import CursorHistory, empty_history
from valueshare.replay.transitions import Batch, Transitions


class Learner(NamedTuple):
    """The joint steps of all groups."""

    sample_on_host: Callable[[str, int], None] | None  # (stream, counter); None: on the device
    stage_batch: GraphedStep | None
    sync_actor: GraphedStep | None  # copy the weights to those that agents act by
    learn: GraphedStep
    update_target: GraphedStep  # copy the weights, then measure on a fresh batch
    stream: "torch.cuda.Stream | None"  # of updates that acting does not wait for, on CUDA
    online: Tensors
    actor: Tensors  # weights that agents act by: `online` itself, or a delayed copy
    history: CursorHistory | None  # transitions that a delayed update may sample

    @property
    def delayed(self) -> bool:
        """Whether agents act while an update runs."""
        return self.actor is not self.online


def _nothing() -> None:
    """Do nothing."""


def is_due(settings: TrainingSettings, t: int) -> bool:
    """Whether step t has an update, of the weights or of the target network."""
    return settings.learns_at(t) or settings.updates_target_at(t)


def update_due(
    learner: Learner, settings: TrainingSettings, t: int, *, on_release: Callable[[], None] = _nothing
) -> None:
    """The updates of step t (`run_updates`): launched on CUDA, done on a CPU.

    `on_release` is called as soon as agents may act and store again.
    """
    counters, last = count(t * settings.gradient_steps), (t + 1) * settings.gradient_steps - 1

    def update_target() -> None:
        if learner.sample_on_host is not None:
            learner.sample_on_host("measure", t)
        learner.update_target()

    def learn() -> None:
        counter = next(counters)
        update(learner, counter, on_release if counter == last else _nothing)

    run_updates(settings, t, update_target, learner.sync_actor or _nothing, learn)
    if not settings.learns_at(t):
        on_release()


def update(learner: Learner, counter: int, on_release: Callable[[], None] = _nothing) -> None:
    """One update of every agent; `counter` is that of its random numbers (`update_counter`)."""
    if learner.sample_on_host is not None:
        learner.sample_on_host("replay", counter)
    if learner.stage_batch is not None:
        learner.stage_batch()
    if learner.delayed:
        on_release()
    learner.learn()
    if not learner.delayed:
        on_release()


def make_learner(population: Population, state: State, *, compiled: bool, asynchronous: bool) -> Learner:
    """Asynchronous groups synchronise the weights that they act by themselves."""
    settings, device = population.settings, population.device
    online, on_host, delayed = (state.online.parameters, population.replay_on_host, settings.delayed_actor)
    actor = with_delayed_actor(state).online.parameters if delayed else online
    history = empty_history(population.size, device) if delayed and not on_host else None
    sample_on_host, batch = _host_sampler(population, state.replay) if on_host else (None, None)
    if batch is None and delayed:
        batch = Batch(*(torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in _batch_fields(population)))
    step = torch.zeros_like(state.step)  # of the update, while that of the state advances

    def stage_step() -> None:
        step.copy_(state.step)
        if batch is not None and not on_host:
            counter = update_counter(settings, step, state.updates)
            drawn = sample(state, population.keys.replay, counter, settings.batch_size, history)
            for staged, values in zip(batch, drawn, strict=True):
                staged.copy_(values)

    graphed = partial(GraphedStep, device=device, compiled=compiled)
    sync_actor = GraphedStep(partial(copy_weights, online, actor), device, compiled=False)
    return Learner(
        sample_on_host=sample_on_host,
        stage_batch=None if batch is None else graphed(stage_step),
        sync_actor=sync_actor if delayed and not asynchronous else None,
        learn=graphed(partial(learn, population, state, batch, None if batch is None else step)),
        update_target=graphed(partial(update_target, population, state, history, batch if on_host else None)),
        stream=new_stream(device) if delayed and device.type == "cuda" else None,
        online=online,
        actor=actor,
        history=history,
    )


def capture_learner(
    learner: Learner, device: torch.device, *, asynchronous: bool, beside: Sequence[GraphedStep] = ()
) -> None:
    """Capture the joint steps, on CUDA; steps `beside` them never run at the same time as one of them.

    Steps that may run at the same time must not share memory. A delayed update has its own.
    """
    steps = [learner.update_target]
    steps += [step for step in (learner.stage_batch, learner.sync_actor) if step is not None]
    if learner.delayed:
        capture_all([learner.learn], device)
    else:
        steps.insert(0, learner.learn)
    capture_all([*steps, *beside], device, high_priority=learner.delayed and not asynchronous)


def _batch_fields(population: Population) -> list[ShapeAndType]:
    shape, env = (population.size, population.settings.batch_size), population.env
    observation: ShapeAndType = (*shape, *env.network_shape), torch_dtype(env.observation_dtype)
    number: ShapeAndType = shape, torch.float32
    return [observation, (shape, torch.int64), number, number, observation]


def _host_sampler(population: Population, replay: Transitions) -> tuple[Callable[[str, int], None], Batch]:
    """A function that samples on the host, by the same random numbers, and the batch it fills."""
    batch_size = population.settings.batch_size
    whole, fields = packed(_batch_fields(population), population.device)
    on_host = Batch(*(field.host for field in fields))
    keys = {name: getattr(population.keys, name).cpu() for name in ("replay", "measure")}

    def sample_on_host(stream: str, counter: int) -> None:
        index = integers(keys[stream], counter, batch_size, transitions.size(replay))
        whole.wait()
        transitions.gather(replay, index, out=on_host)
        whole.upload()

    return sample_on_host, Batch(*(field.tensor for field in fields))
