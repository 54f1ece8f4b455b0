"""A phase: the population's state and the phase number determine the new state and the records.

Environments start new episodes at its start, from seeds keyed by (agent seed, phase), and every
random number is keyed by (agent seed, stream, step): only the state carries over from
the phase before. The episode at the end of a phase stays in replay as a truncated one.
"""

import numpy as np
import polars as pl
import torch

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.learning.randomness import stream_key
from valueshare.population.engine import Engine
from valueshare.population.evaluate import Scores, evaluate
from valueshare.population.loop import OnStep
from valueshare.population.state import VALUE_METRICS, Population, State


def run_phase(engine: Engine, phase: int, on_step: OnStep) -> pl.DataFrame:
    """Train one phase, evaluate if due, and return the records; the engine's state is updated in place.

    `on_step` gets the number of every step. After an exception from it the state is inconsistent: load the last
    checkpoint.
    """
    settings, state = engine.population.settings, engine.state
    tables = [records_schema().to_frame()]
    if phase == 0:  # before training
        tables.append(_evaluate_agents(engine, 0, on_step))
    start, end = phase * settings.checkpoint_interval, settings.phase_end(phase)
    episodes = TrainingEpisodes(engine.population.size)
    seeds = [stream_key(seed, f"environment/{phase}") for seed in engine.population.seeds]
    engine.executor.reset(seeds)
    engine.executor.run(range(start, end), on_step, episodes)
    state.train_returns.add_(torch.from_numpy(episodes.return_sum).to(state.step.device))
    state.train_episodes.add_(torch.from_numpy(episodes.episode_count).to(state.step.device))
    if settings.evaluates_after(phase):
        tables.append(_evaluate_agents(engine, end, on_step))
    return pl.concat(tables)


def records_schema() -> pl.Schema:
    """One row per agent and evaluation; null for metrics without a value."""
    return pl.Schema(
        {
            "agent": pl.Int64(),
            "step": pl.Int64(),
            "score": pl.Float64(),  # null: no episode finished
            "episodes": pl.Int64(),
            "overestimation": pl.Float64(),
            "action_gap": pl.Float64(),
            "relative_action_gap": pl.Float64(),
            "mean_action_value": pl.Float64(),  # of the last ACTION_VALUE_WINDOW batches
            **{name: pl.Float64() for name in VALUE_METRICS[1:]},
            "train_score": pl.Float64(),
            "train_episodes": pl.Int64(),
            "diverged_at": pl.Int64(),  # null while the agent learns
        }
    )


def _evaluate_agents(engine: Engine, step: int, on_step: OnStep) -> pl.DataFrame:
    """Evaluate the agents, return the records, and reset the sums since the last evaluation."""
    if engine.evaluator is None:
        raise RuntimeError("an engine that only trains has no phases: call its executor")
    state = engine.state
    scores = evaluate(engine.population, engine.evaluator, step, on_step)
    table = _records(engine.population, state, scores, step)
    for sums in (state.metric_sums, state.metric_count, state.train_returns, state.train_episodes):
        sums.zero_()
    return table


def _records(population: Population, state: State, scores: Scores, step: int) -> pl.DataFrame:
    measurements, updates = int(state.metric_count), int(state.updates)
    means = (state.metric_sums.double() / (measurements or torch.nan)).cpu().numpy()  # [P, VALUE_METRICS]
    kept = min(updates, state.recent_action_values.shape[1])
    value = (state.recent_action_values.double().sum(-1) / (kept or torch.nan)).cpu().numpy()  # [P]
    train_episodes = state.train_episodes.cpu().numpy().copy()  # the sums are reset after this
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
        **{name: means[:, i] for i, name in enumerate(VALUE_METRICS) if i > 0},
        "train_score": train_score,
        "train_episodes": train_episodes,
        "diverged_at": state.diverged_at.cpu().numpy().copy(),
    }
    table = pl.DataFrame(columns, schema=records_schema())
    learning = pl.col("diverged_at") < 0
    return table.with_columns(
        pl.selectors.float().fill_nan(None), diverged_at=pl.when(learning).then(None).otherwise("diverged_at")
    )
