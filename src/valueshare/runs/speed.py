"""How fast a population learns where it will run: measured for a few seconds, and thrown away."""

import json
import time
from dataclasses import replace
from typing import Any

import polars as pl

from valueshare.population.agents import SCHEMA
from valueshare.population.settings import TrainingSettings
from valueshare.population.train import train_population
from valueshare.runs.plan import Part, Plan, config, from_config, parts

MEASURE_SECONDS = 5.0
READ_EVERY = 16  # steps: a mark for each would be a long list
WARM_UP_STEPS = 64  # after learning began: kernels are compiled, caches filled


def request(plan: Plan, part: Part, threads: int, seconds: float = MEASURE_SECONDS) -> str:
    """What a worker needs to know to measure one population of a plan."""
    values = {
        "config": config(plan),
        "agents": plan.agents.to_dicts(),
        "part": part.name,
        "threads": threads,
        "seconds": seconds,
    }
    return json.dumps(values)


def measured_speed(values: dict[str, Any]) -> float:
    """Agent-steps a second while the population learns, without evaluations and checkpoints."""
    plan = from_config(values["config"], pl.DataFrame(values["agents"], schema=SCHEMA))
    part = next(part for part in parts(plan) if part.name == values["part"])
    settings = _brief(part.settings)
    marks: list[tuple[float, int]] = []

    def should_stop() -> bool:
        return len(marks) > 1 and marks[-1][0] - marks[0][0] >= values["seconds"]

    def on_tick(step: int) -> None:
        if step % READ_EVERY:
            return
        if step >= settings.learning_starts + WARM_UP_STEPS:
            marks.append((time.perf_counter(), step))

    train_population(
        part.agents,
        settings,
        device=plan.device,
        compiled=plan.compiled,
        backend=part.backend,
        threads=values["threads"],
        should_stop=should_stop,
        on_tick=on_tick,
    )
    (first, begun), (last, ended) = marks[0], marks[-1]
    return (ended - begun) * part.agents.height / (last - first)


def _brief(settings: TrainingSettings) -> TrainingSettings:
    """The same learning, begun as soon as a minibatch is there, in one long phase.

    A population evaluates before its first step: one short episode.
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
