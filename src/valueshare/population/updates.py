"""Joint updates of all agents: where their minibatches come from, and on which stream they run.

An update samples within itself, but for two cases, in which it reads what was *staged* for it. A
replay on the host is sampled there. And an update that acting does not wait for (`delayed_actor`)
runs beside it, on a CUDA stream of its own: its minibatch is staged before, as of its step
(`past`), and agents act by a copy of the weights, which follows before the next update. On a CPU
the same happens one after the other.

Everything here is launched on the current stream: whoever calls sees to it that this is the
learner's, and what it waits for.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from valueshare.learning.algorithms import Batch
from valueshare.learning.randomness import integers
from valueshare.population.exchange import Part, travelling_together
from valueshare.population.graph import GraphedStep, new_stream
from valueshare.population.learn import (
    copy_to_target,
    learn,
    learn_from,
    measure,
    measure_on,
    sample,
    update_counter,
)
from valueshare.population.past import Past
from valueshare.population.settings import TrainingSettings
from valueshare.population.state import Population, State, Tensors, torch_dtype
from valueshare.replay import transitions
from valueshare.replay.transitions import Transitions


class Learner(NamedTuple):
    """The joint steps of all groups; `update` and `update_target` call them."""

    draw: Callable[[str, int], None] | None  # the host samples: (stream, counter) -> a minibatch
    stage: GraphedStep | None
    follow: GraphedStep | None  # copy the weights to those that agents act by, where they lag
    learn: GraphedStep
    update_target: GraphedStep  # copy the weights, then measure on a fresh minibatch
    stream: "torch.cuda.Stream | None"  # of updates that acting does not wait for, on CUDA
    online: Tensors
    acting: Tensors  # what agents act by: `online` itself, or the copy that lags
    past: Past | None  # what may be sampled by an update that acting does not wait for

    @property
    def lags(self) -> bool:
        """Whether acting goes on while an update runs."""
        return self.acting is not self.online


def is_due(settings: TrainingSettings, t: int) -> bool:
    """Whether step t has an update, of the weights or of the target network."""
    learning = t >= settings.learning_starts
    return learning and (
        t % settings.update_interval == 0 or t % settings.target_update_interval == 0
    )


def update_due(
    learner: Learner,
    settings: TrainingSettings,
    t: int,
    *,
    released: Callable[[], None] = lambda: None,
) -> None:
    """What is due at step t: launched on CUDA, done on a CPU.

    The target network is copied first and the weights are updated second, as in PFRL and the
    authors' code: a target never holds an update of its own step.

    `released` is called as soon as agents may act and store again.
    """
    if t % settings.target_update_interval == 0:
        update_target(learner, t)
    if t % settings.update_interval == 0:
        first, last = t * settings.gradient_steps, (t + 1) * settings.gradient_steps - 1
        for counter in range(first, last):
            update(learner, counter)
        update(learner, last, released)
    else:
        released()


def update(learner: Learner, counter: int, released: Callable[[], None] = lambda: None) -> None:
    """An update of every agent; `released` is called as soon as agents may act and store again.

    `counter` is that of its random numbers (`update_counter`).
    """
    if learner.draw is not None:
        learner.draw("replay", counter)
    if learner.stage is not None:
        learner.stage()
    if learner.lags:
        released()
    learner.learn()
    if not learner.lags:
        released()


def update_target(learner: Learner, t: int) -> None:
    """Copy the online weights of every agent into its target network, and measure its values."""
    if learner.draw is not None:
        learner.draw("measure", t)
    learner.update_target()


def renew_acting(learner: Learner) -> None:
    """Act by the weights as they are now."""
    copy_weights(learner.online, learner.acting)


def make_learner(
    population: Population,
    state: State,
    acting: Tensors,
    past: Past | None,
    *,
    compiled: bool,
    led: bool = False,
) -> Learner:
    """Groups that are `led` copy the weights that they act by themselves."""
    settings, device = population.settings, population.device
    online, on_host, lags = (
        state.online.parameters,
        population.replay_on_host,
        settings.delayed_actor,
    )
    draw, batch = _handed_over(population, state.replay) if on_host else (None, None)
    if batch is None and lags:
        batch = Batch(
            *(
                torch.zeros(shape, dtype=dtype, device=device)
                for shape, dtype in _batch_parts(population)
            )
        )
    step = torch.zeros_like(state.step)  # of the update, while that of the state goes on

    def stage_step() -> None:
        step.copy_(state.step)
        if batch is not None and not on_host:
            counter = update_counter(settings, step, state.updates)
            drawn = sample(state, population.keys.replay, counter, settings.batch_size, past)
            for own, values in zip(batch, drawn, strict=True):
                own.copy_(values)

    def learn_step() -> None:
        if batch is None:
            learn(population, state)
        else:
            learn_from(population, state, batch, step)

    def update_target_step() -> None:
        copy_to_target(state)
        if batch is not None and on_host:
            measure_on(population, state, batch)
        else:
            measure(population, state, past)

    def follow_step() -> None:
        copy_weights(online, acting)

    def graphed(function: Callable[[], None]) -> GraphedStep:
        return GraphedStep(function, device, compiled=compiled)

    return Learner(
        draw=draw,
        stage=None if batch is None else graphed(stage_step),
        follow=GraphedStep(follow_step, device, compiled=False) if lags and not led else None,
        learn=graphed(learn_step),
        update_target=graphed(update_target_step),
        stream=new_stream(device) if lags and device.type == "cuda" else None,
        online=online,
        acting=acting,
        past=past,
    )


def _batch_parts(population: Population) -> list[Part]:
    shape, env = (population.size, population.settings.batch_size), population.env
    observation: Part = (*shape, *env.network_shape), torch_dtype(env.observation_dtype)
    number: Part = shape, torch.float32
    return [observation, (shape, torch.int64), number, number, observation]


def _handed_over(
    population: Population, replay: Transitions
) -> tuple[Callable[[str, int], None], Batch]:
    """Sampling on the host, by the same random numbers as on the device; and where it arrives."""
    batch_size = population.settings.batch_size
    whole, parts = travelling_together(_batch_parts(population), population.device)
    letters = Batch(*(part.host for part in parts))
    keys = {name: getattr(population.keys, name).cpu() for name in ("replay", "measure")}

    def draw(stream: str, counter: int) -> None:
        index = integers(keys[stream], counter, batch_size, transitions.live(replay))
        whole.wait()
        transitions.gather(replay, index, out=letters)
        whole.post()

    return draw, Batch(*(part.tensor for part in parts))


def copy_weights(source: Tensors, copy: Tensors) -> None:
    for name, value in source.items():
        if copy[name] is not value:
            copy[name].copy_(value)
