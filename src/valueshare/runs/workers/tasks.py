"""One population of a run as a task: strings and numbers, which any process can run.

Everything else is in the run's folder, which the process reads and writes.
"""

import json
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from valueshare.population.agents import SCHEMA
from valueshare.population.engine import has_trial
from valueshare.population.networks import NetworkFactory
from valueshare.population.spec import PopulationSpec
from valueshare.population.train import PhaseReport, train_population
from valueshare.records import CheckpointPaths, read_progress
from valueshare.result_files import TRUSTED_LIMIT, SizeLimit, TooLarge, Unreadable, read_parquet
from valueshare.runs.launchers import ProgressHooks
from valueshare.runs.locks import locked
from valueshare.runs.plan import Plan, from_config, to_config
from valueshare.runs.progress import ProgressFile, progress_lock
from valueshare.runs.run_folder import check_links, is_population_finished, open_plan
from valueshare.runs.storage.copies import open_storage
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.remote import PLAN_FILES, RunStorage
from valueshare.schema import Progress

# A worker that was lost may hold its population's lock until the server of the filesystem notices.
LOCK_WAIT_SECONDS = 60.0
MEASURE_SECONDS = 5.0
MEASURE_REPLAY = 2_048  # transitions
SAMPLE_STEPS = 16  # between readings of the clock
WARM_UP_STEPS = 64  # after learning began: kernels are compiled, caches filled


@dataclass(frozen=True)
class Task:
    """A population of the run in a folder, and how it is run; none of it changes results."""

    folder: str
    population: str
    device: str
    threads: int | None = None  # for the environments
    groups: int | None = None  # how many groups of agents step independently; None: chosen automatically
    url: Url | None = None  # the run's URL, if the folder is a copy; no folder: make a copy

    def to_json(self) -> str:
        """The task as JSON, only for the process that runs it: a URL may have a password."""
        return msgspec.json.encode(self).decode()


def run_population(
    task: Task,
    hooks: ProgressHooks = ProgressHooks(),  # noqa: B008 (immutable)
    network: NetworkFactory | None = None,
    plan: Plan | None = None,
) -> bool:
    """Train a population from its last checkpoint to its end; False where `should_stop` ended it.

    Its lock is held meanwhile: a worker that was given up for lost and still runs cannot write beside its replacement.
    URLs have no locks: both would write the same bytes there.
    """
    in_place = nullcontext(RunStorage(Path(task.folder), task.url))
    with open_storage(task.url) if task.url and not task.folder else in_place as storage:
        folder = storage.folder
        if plan is None:
            storage.pull(lambda name: name in PLAN_FILES)
        check_links(folder)  # on a cluster, the driver's check was on another machine
        plan = open_plan(folder) if plan is None else plan
        spec = plan.populations[task.population]

        def write_progress(step: int, phases: int | None = None) -> None:
            progress.write(step, phases)
            storage.push_progress(spec.name)

        reached = 0

        def on_step(step: int) -> None:
            nonlocal reached
            reached = step
            if progress.is_due() or hooks.is_due():
                hooks.on_step(spec.name, step)
                if progress.is_due():
                    write_progress(step)

        def on_phase(report: PhaseReport) -> None:
            storage.push_population(spec.name)
            write_progress(report.step, report.phase + 1)
            hooks.on_phase(spec.name, report.step, report.records)

        busy = f"{spec.name} of {folder} is being trained by another process: wait for it to finish"
        with locked(progress_lock(folder, spec.name), busy, LOCK_WAIT_SECONDS):
            storage.pull_population(spec.name, spec.last_phase)
            if is_population_finished(folder, spec):
                return True
            storage.pull_population(spec.name)
            progress = ProgressFile(folder, spec.name)
            result = train_population(
                spec.agents,
                spec.settings,
                network=network,
                directory=folder,
                name=spec.name,
                device=task.device,
                compiled=bool(plan.compiled),
                backend=spec.backend,
                threads=task.threads,
                groups=None if task.groups is None else min(task.groups, spec.agents.height),
                on_phase=on_phase,
                on_evaluation=lambda step: progress.write(step, evaluated=True),  # before a checkpoint counts it
                should_stop=hooks.should_stop,
                on_step=on_step,
                on_note=lambda line: hooks.on_note(line if len(plan.populations) == 1 else f"{spec.name}: {line}"),
                extended_from=spec.extended_from,
            )
            if not result.finished and reached:
                progress.write(reached)  # the step at which it was stopped
            return result.finished


def relay_progress(folder: Path, spec: PopulationSpec, before: Progress, hooks: ProgressHooks) -> Progress:
    """Call back with what a worker has written since `before`; return the progress now."""
    now = read_progress(folder, spec.name)
    if msgspec.structs.replace(now, seconds=before.seconds) == before:
        return before
    files = CheckpointPaths(folder, spec.name)
    limit = SizeLimit(TRUSTED_LIMIT)
    try:
        new = [read_parquet(files.records(phase), limit) for phase in range(before.phases, now.phases)]
    except (OSError, pl.exceptions.PolarsError, Unreadable, TooLarge):
        return before  # not visible from here yet, or too little memory is free: the next call tries again
    for phase, records in enumerate(new, before.phases):
        hooks.on_phase(spec.name, spec.settings.phase_end(phase), records)
    if not new or now.step != spec.settings.phase_end(now.phases - 1):  # else `on_phase` has told it
        hooks.on_step(spec.name, now.step)
    return now


def speed_request(plan: Plan, population: str, threads: int) -> str:
    """Arguments of `measure_speed` for one population of a plan, as text for a worker."""
    agents = plan.agents.to_dicts()
    return json.dumps({"config": to_config(plan), "agents": agents, "population": population, "threads": threads})


def measure_speed(values: dict[str, Any]) -> float:
    """The speed that a `speed_request` asks for."""
    plan = from_config(values["config"], pl.DataFrame(values["agents"], schema=SCHEMA))
    spec = plan.populations[values["population"]]
    return population_speed(spec, plan.device, compiled=bool(plan.compiled), threads=values["threads"])


def population_speed(
    spec: PopulationSpec, device: str, *, compiled: bool, threads: int | None, groups: int | None = None
) -> float:
    """Agent-steps per second while a population learns, without evaluations, checkpoints and a folder.

    Learning starts as soon as there are batches, in one long phase; the evaluation before it is one short episode.
    Environments and updates take as long as in the run; sampling is a little faster, since the replay is small.
    """
    original, steps = spec.settings, 10**9
    settings = replace(
        original,
        steps=steps,
        checkpoint_interval=steps,
        eval_interval=steps,
        eval_episodes=1,
        eval_timesteps=0,
        eval_envs=1,
        eval_episode_limit=8,
        learning_starts=min(original.learning_starts, 4 * original.batch_size),
        replay_capacity=max(min(original.replay_transitions, MEASURE_REPLAY), 4 * original.batch_size),
    )
    marks: list[tuple[float, int]] = []

    def on_step(step: int) -> None:
        if step % SAMPLE_STEPS == 0 and step >= settings.learning_starts + WARM_UP_STEPS:
            marks.append((time.perf_counter(), step))

    train_population(
        spec.agents,
        settings,
        device=device,
        compiled=compiled,
        backend=spec.backend,
        threads=threads,
        groups=None if groups is None else min(groups, spec.agents.height),
        trial=has_trial(original),
        should_stop=lambda: len(marks) > 1 and marks[-1][0] - marks[0][0] >= MEASURE_SECONDS,
        on_step=on_step,
    )
    (first, begun), (last, ended) = marks[0], marks[-1]
    return (ended - begun) * spec.agents.height / (last - first)
