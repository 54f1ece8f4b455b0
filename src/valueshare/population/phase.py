"""A phase: (population state, phase number) -> (population state, records), a pure function.

Environments start new episodes at its start, from seeds keyed by (agent seed, phase), and every
random number is keyed by (agent seed, stream, step): nothing but the state comes over from the
phase before. The episode that a phase's end cuts off stays in replay as a truncated one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.envs import make_environments
from valueshare.envs.base import Environments
from valueshare.errors import InvalidInput
from valueshare.learning.randomness import stream_key
from valueshare.population.evaluate import (
    Player,
    Scores,
    check_evaluation,
    copies,
    evaluate,
    make_player,
)
from valueshare.population.groups import (
    Group,
    begin_group,
    choose_actions,
    send_actions,
)
from valueshare.population.state import MEASURES, Population, State
from valueshare.population.tick import make_steps
from valueshare.population.updates import Learner, join, renew_acting, renew_target, update


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

    def close(self) -> None:
        for group in self.groups:
            group.environments.close()
        if self.evaluation is not None:
            self.evaluation.environments.close()


class Outcome(NamedTuple):
    """How a step went, [P] each."""

    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


def make_engine(
    population: Population,
    state: State,
    *,
    compiled: bool,
    threads: int | None = None,
    groups: int = 1,
    evaluates: bool = True,
) -> Engine:
    """`state` must be a population's that has not begun; load a checkpoint into it afterwards.

    `groups` of agents take turns in acting: no agent's random numbers change, and while the
    environments of one group run, the device works for another. Groups share `threads` (None: one a
    core) evenly, because all of their environments may be under way; those of evaluation have all
    of them, because nothing else runs then. Without `evaluates` there are none.
    """
    settings, size = population.settings, population.size
    if not 1 <= groups <= size:
        raise InvalidInput(f"groups = {groups}: write a number from 1 to {size}, the agents")
    if compiled:
        # All populations compile the same few functions, and PyTorch gives a function eight
        # versions: forget those of populations that are done.
        torch.compiler.reset()
    names = population.agents["env"].to_list()
    threads = available_cores() if threads is None else threads
    playing = None
    if evaluates:
        rows = np.repeat(names, copies(settings))
        playing = _environments(population, rows, threads, evaluation=True)
        check_evaluation(settings, playing.spec.episode_limit)
    own_threads = max(1, threads // groups)
    shares = np.array_split(names, groups)
    training = [_environments(population, s, own_threads, evaluation=False) for s in shares]
    parts, learner = make_steps(population, state, training, compiled=compiled)
    evaluation = None
    if playing is not None:
        evaluation = Evaluation(make_player(population, state, compiled=compiled), playing)
    return Engine(population, state, parts, learner, evaluation)


def run_phase(engine: Engine, phase: int, poll: Callable[[], None]) -> pl.DataFrame:
    """Train for a phase and evaluate where one is due; the state of the engine moves on in place.

    `poll` is called at every tick. What it raises ends the phase, and leaves a state that is of no
    phase: go on from the last checkpoint.
    """
    settings, state = engine.population.settings, engine.state
    tables = [records_schema().to_frame()]
    if phase == 0:  # how they play before they have learned anything
        tables.append(_evaluated(engine, 0, poll))
    start, end = phase * settings.phase_steps, settings.phase_end(phase)
    episodes = TrainingEpisodes(engine.population.size)
    begin(engine, [stream_key(seed, f"environment/{phase}") for seed in engine.population.seeds])
    try:
        for t in range(start, end):
            poll()
            episodes.step(tick(engine, t, begun=t > start, goes_on=t + 1 < end))
    finally:
        join(engine.learner)
    state.train_returns.add_(torch.from_numpy(episodes.returns_done).to(state.step.device))
    state.train_episodes.add_(torch.from_numpy(episodes.finished).to(state.step.device))
    if settings.evaluates_after(phase):
        tables.append(_evaluated(engine, end, poll))
    return pl.concat(tables)


def begin(engine: Engine, seeds: Sequence[int]) -> None:
    """New episodes everywhere, one seed an agent; an acting copy that lags is renewed."""
    renew_acting(engine.learner)
    for group in engine.groups:
        begin_group(group, engine.state.step, seeds[group.agents])


def tick(engine: Engine, t: int, *, begun: bool = False, goes_on: bool = False) -> Outcome:
    """One step of every agent.

    On CUDA, agents learn while the environments step. On a CPU both want the same cores, and taking
    turns is faster. The update samples the same transitions either way: this step is stored last.

    `goes_on`: the actions of the next step, which is then `begun`, are chosen before this one is
    stored, and environments that nothing else waits for begin it.
    """
    *others, last = groups = engine.groups
    if not begun:
        for group in groups:
            choose_actions(group)
        for group in others:
            send_actions(group)
    cuda = engine.population.device.type == "cuda"
    # Launched before the host waits for the last actions, so that the device is never without work;
    # where learning waits for nothing, the environments come first.
    launched = cuda and engine.learner.draw is None and engine.learner.side is None
    if launched:
        _update(engine, t)
    send_actions(last)
    results = [] if cuda else [group.environments.receive() for group in groups]
    if not launched:
        _update(engine, t)
    for i, group in enumerate(groups):
        if cuda:
            results.append(group.environments.receive())
        group.exchange.fill(results[i])
        if goes_on:
            choose_actions(group)
        else:
            group.exchange.keep_actions()
            group.exchange.result.post()
        group.store()
        if goes_on and group is not last:
            send_actions(group)
    engine.state.step.add_(1)
    if len(results) == 1:
        return Outcome(results[0].reward, results[0].terminated, results[0].truncated)
    columns = zip(*((r.reward, r.terminated, r.truncated) for r in results), strict=True)
    return Outcome(*(np.concatenate(column) for column in columns))


def _update(engine: Engine, t: int) -> None:
    """What is due at step t of learning and of copying into the target network."""
    settings = engine.population.settings
    if t < settings.replay_start:
        return
    if t % settings.update_every == 0:
        update(engine.learner)
    if t % settings.target_every == 0:
        renew_target(engine.learner)


class TrainingEpisodes:
    """Returns of training episodes, of the finished ones only."""

    def __init__(self, agents: int) -> None:
        self.running: NDArray[np.float64] = np.zeros(agents)
        self.returns_done: NDArray[np.float64] = np.zeros(agents)
        self.finished: NDArray[np.int64] = np.zeros(agents, np.int64)

    def step(self, outcome: Outcome) -> None:
        ended = outcome.terminated | outcome.truncated
        self.running += outcome.reward
        self.returns_done[ended] += self.running[ended]
        self.running[ended] = 0.0
        self.finished += ended


def records_schema() -> pl.Schema:
    """One row an agent and evaluation; null where there is nothing to report."""
    return pl.Schema(
        {
            "agent": pl.Int64(),
            "step": pl.Int64(),
            "score": pl.Float64(),  # null: no episode finished
            "episodes": pl.Int64(),
            "overestimation": pl.Float64(),
            "action_gap": pl.Float64(),
            "relative_action_gap": pl.Float64(),
            "mean_action_value": pl.Float64(),  # of the last 1,000 minibatches
            **{name: pl.Float64() for name in MEASURES[1:]},
            "train_score": pl.Float64(),
            "train_episodes": pl.Int64(),
            "diverged_at": pl.Int64(),  # null while the agent learns
        }
    )


def _evaluated(engine: Engine, step: int, poll: Callable[[], None]) -> pl.DataFrame:
    """The records of an evaluation; the sums since the last one start again."""
    if engine.evaluation is None:
        raise RuntimeError("an engine that only trains has no phases: call tick")
    state, evaluation = engine.state, engine.evaluation
    scores = evaluate(engine.population, evaluation.player, evaluation.environments, step, poll)
    table = _records(engine.population, state, scores, step)
    for sums in (state.measured, state.measurements, state.train_returns, state.train_episodes):
        sums.zero_()
    return table


def _records(population: Population, state: State, scores: Scores, step: int) -> pl.DataFrame:
    measurements, updates = int(state.measurements), int(state.updates)
    means = (state.measured.double() / (measurements or torch.nan)).cpu().numpy()  # [P, MEASURES]
    kept = min(updates, state.action_values.shape[1])
    value = (state.action_values.double().sum(-1) / (kept or torch.nan)).cpu().numpy()  # [P]
    train_episodes = state.train_episodes.cpu().numpy().copy()  # the sums start again soon
    with np.errstate(divide="ignore", invalid="ignore"):
        train_score = state.train_returns.cpu().numpy() / train_episodes
    columns = {
        "agent": population.agents["agent"].to_numpy(),
        "step": np.full(population.size, step),
        "score": scores.score,
        "episodes": scores.episodes,
        "overestimation": scores.overestimation,
        "action_gap": means[:, 0],
        "relative_action_gap": means[:, 0] / (np.abs(value) + 1e-8),
        "mean_action_value": value,
        **{name: means[:, i] for i, name in enumerate(MEASURES) if i > 0},
        "train_score": train_score,
        "train_episodes": train_episodes,
        "diverged_at": state.diverged_at.cpu().numpy().copy(),
    }
    table = pl.DataFrame(columns, schema=records_schema())
    alive = pl.col("diverged_at") < 0
    return table.with_columns(
        pl.selectors.float().fill_nan(None),
        diverged_at=pl.when(alive).then(None).otherwise("diverged_at"),
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
