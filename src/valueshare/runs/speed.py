"""The speed of a population where it will run, measured for a few seconds without a folder."""

import json
import time
from dataclasses import replace
from typing import Any

import polars as pl

from valueshare.population.agents import SCHEMA
from valueshare.population.settings import TrainingSettings
from valueshare.population.train import train_population
from valueshare.runs.plan import Plan, config, from_config

MEASURE_SECONDS = 5.0
SAMPLE_STEPS = 16  # between readings of the clock
WARM_UP_STEPS = 64  # after learning began: kernels are compiled, caches filled


def request(plan: Plan, population: str, threads: int, seconds: float = MEASURE_SECONDS) -> str:
    """The arguments of `measured_speed` for one population of a plan, as text for a worker."""
    values = {
        "config": config(plan),
        "agents": plan.agents.to_dicts(),
        "population": population,
        "threads": threads,
        "seconds": seconds,
    }
    return json.dumps(values)


def measured_speed(values: dict[str, Any]) -> float:
    """Agent-steps per second while the population learns, without evaluations and checkpoints."""
    plan = from_config(values["config"], pl.DataFrame(values["agents"], schema=SCHEMA))
    spec = plan.populations[values["population"]]
    settings = _brief(spec.settings)
    marks: list[tuple[float, int]] = []

    def should_stop() -> bool:
        return len(marks) > 1 and marks[-1][0] - marks[0][0] >= values["seconds"]

    def on_step(step: int) -> None:
        if step % SAMPLE_STEPS == 0 and step >= settings.learning_starts + WARM_UP_STEPS:
            marks.append((time.perf_counter(), step))

    train_population(
        spec.agents,
        settings,
        device=plan.device,
        compiled=plan.compiled,
        backend=spec.backend,
        threads=values["threads"],
        should_stop=should_stop,
        on_step=on_step,
    )
    (first, begun), (last, ended) = marks[0], marks[-1]
    return (ended - begun) * spec.agents.height / (last - first)


def _brief(settings: TrainingSettings) -> TrainingSettings:
    """The same learning, started as soon as there is a minibatch, in one long phase.

    The evaluation before the first step is one short episode.
    """
    steps = 10**9
    start = min(settings.learning_starts, 4 * settings.batch_size)
    return replace(
        settings,
        steps=steps,
        checkpoint_interval=steps,
        eval_interval=steps,
        eval_episodes=1,
        eval_timesteps=0,
        eval_envs=1,
        eval_episode_limit=8,
        learning_starts=start,
        replay_capacity=max(settings.replay_transitions, settings.batch_size),
    )
