"""A phase: (population state, phase number) -> (population state, records), a pure function.

Environments start new episodes at its start, from seeds keyed by (agent seed, phase), and every
random number is keyed by (agent seed, stream, step): nothing but the state comes over from the
phase before. The episode that a phase's end cuts off stays in replay as a truncated one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from valueshare.envs import make_environments
from valueshare.envs.base import Backend, Environments, StepResult
from valueshare.learning.randomness import stream_key
from valueshare.population.evaluate import (
    Player,
    Scores,
    check_evaluation,
    copies,
    evaluate,
    make_player,
)
from valueshare.population.state import MEASURES, Population, State
from valueshare.population.tick import Exchange, Steps, make_exchange, make_steps
from valueshare.replay import transitions


class Engine(NamedTuple):
    """A population with all that moves it: environments, and the device's steps."""

    population: Population
    state: State
    exchange: Exchange
    steps: Steps
    player: Player
    environments: Environments
    evaluation_environments: Environments


def make_engine(
    population: Population, state: State, *, compiled: bool, threads: int | None = None
) -> Engine:
    """`state` must be a population's that has not begun; load a checkpoint into it afterwards."""
    settings, backend = population.settings, population.env.backend
    if compiled:
        # All populations compile the same few functions, and PyTorch gives a function eight
        # versions: forget those of populations that are done.
        torch.compiler.reset()
    exchange = make_exchange(population)
    evaluation = _environments(
        population,
        population.size * copies(settings),
        backend,
        threads,
        settings.eval_episode_limit,
    )
    check_evaluation(settings, evaluation.spec.episode_limit)
    return Engine(
        population=population,
        state=state,
        exchange=exchange,
        steps=make_steps(population, state, exchange, compiled=compiled),
        player=make_player(population, state, compiled=compiled),
        environments=_environments(population, population.size, backend, threads, None),
        evaluation_environments=evaluation,
    )


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
    seeds = [stream_key(seed, f"environment/{phase}") for seed in engine.population.seeds]
    engine.exchange.observation.put(engine.environments.reset(np.array(seeds)))
    transitions.start(state.replay, engine.exchange.observation.tensor)
    for t in range(start, end):
        poll()
        episodes.step(tick(engine, t))
    state.train_returns.add_(torch.from_numpy(episodes.returns_done).to(state.step.device))
    state.train_episodes.add_(torch.from_numpy(episodes.finished).to(state.step.device))
    if settings.evaluates_after(phase):
        tables.append(_evaluated(engine, end, poll))
    return pl.concat(tables)


def tick(engine: Engine, t: int) -> StepResult:
    """One step of every agent.

    On CUDA, agents learn while the environments step. On a CPU both want the same cores, and taking
    turns is faster. The update samples the same transitions either way: this step is stored last.
    """
    environments, exchange, steps = engine.environments, engine.exchange, engine.steps
    overlaps = engine.population.device.type == "cuda"
    steps.act()
    environments.send(exchange.action.get())
    result = None if overlaps else environments.receive()
    _update(engine, t)
    result = result or environments.receive()
    exchange.put(result)
    steps.store()
    return result


def _update(engine: Engine, t: int) -> None:
    """What is due at step t of learning and of copying into the target network."""
    settings, steps = engine.population.settings, engine.steps
    if t < settings.replay_start:
        return
    if t % settings.update_every == 0:
        steps.learn()
    if t % settings.target_every == 0:
        steps.renew_target()


class TrainingEpisodes:
    """Returns of training episodes, of the finished ones only."""

    def __init__(self, agents: int) -> None:
        self.running: NDArray[np.float64] = np.zeros(agents)
        self.returns_done: NDArray[np.float64] = np.zeros(agents)
        self.finished: NDArray[np.int64] = np.zeros(agents, np.int64)

    def step(self, result: StepResult) -> None:
        ended = result.terminated | result.truncated
        self.running += result.reward
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
    state = engine.state
    scores = evaluate(engine.population, engine.player, engine.evaluation_environments, step, poll)
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
    count: int,
    backend: Backend,
    threads: int | None,
    episode_limit: int | None,
) -> Environments:
    return make_environments(
        population.env.name, count, backend=backend, threads=threads, episode_limit=episode_limit
    )
