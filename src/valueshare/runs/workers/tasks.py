"""One population of a run as a task: strings and numbers, which any process can carry out.

The run's folder is the description of it: whoever can read and write that folder needs no more.
"""

import json
from pathlib import Path
from typing import NamedTuple

import polars as pl
from msgspec import structs

from valueshare.errors import InvalidInput
from valueshare.population.checkpoints.files import Folder
from valueshare.population.state import NetworkFactory
from valueshare.population.train import PhaseReport, train_population
from valueshare.runs.execution import Listener
from valueshare.runs.locks import Taken, locked
from valueshare.runs.plan import Part, Plan, parts
from valueshare.runs.progress import Progress, ProgressFile, progress_lock, read_progress
from valueshare.runs.run_folder import check_links, is_part_finished, open_plan
from valueshare.runs.storage.copies import working_copy
from valueshare.runs.storage.places import Url
from valueshare.runs.storage.remote import Copy

# A worker that was lost may still hold its population for a moment: until its machine is told.
PATIENCE_SECONDS = 60.0


class Task(NamedTuple):
    """A population of the run in a folder, and how it is run; nothing of it changes a number."""

    folder: str
    part: str
    device: str
    threads: int | None = None  # of the environments
    groups: int | None = None  # of agents, which go at their own pace; None: as many as suit
    url: Url | None = None  # where the run is, if the folder is a copy; no folder: make one

    def to_json(self) -> str:
        """For the process that carries it out, and nobody else: an address may have a password."""
        return json.dumps({**self._asdict(), "url": self.url and self.url.full})

    @classmethod
    def from_json(cls, text: str) -> "Task":
        values = json.loads(text)
        return cls(**{**values, "url": Url(values["url"]) if values["url"] else None})


def run_part(
    task: Task,
    listener: Listener = Listener(),  # noqa: B008 (immutable)
    network: NetworkFactory | None = None,
    plan: Plan | None = None,
) -> bool:
    """Train a population from its last checkpoint to its end; False where `should_stop` ended it.

    Its lock is held meanwhile: a worker that was given up for lost and still runs cannot write
    beside its replacement. At an address there are no locks: both would write the same bytes there.
    """
    if task.url is None:
        return _run_part(Path(task.folder), task, listener, network, plan)
    if task.folder:
        copy = Copy(Path(task.folder), task.url)
        return _run_part(copy.folder, task, listener, network, plan, copy)
    with working_copy(task.url) as copy:
        return _run_part(copy.folder, task, listener, network, plan, copy)


def _run_part(
    folder: Path,
    task: Task,
    listener: Listener,
    network: NetworkFactory | None,
    plan: Plan | None,
    copy: Copy | None = None,
) -> bool:
    if copy is not None and plan is None:
        copy.pull(lambda name: name in ("config.json", "agents.parquet"))
    check_links(folder)  # on a cluster, another machine may have looked before
    plan = open_plan(folder) if plan is None else plan
    part = next(part for part in parts(plan) if part.name == task.part)
    try:
        with locked(progress_lock(folder, part.name), PATIENCE_SECONDS):
            if copy is not None:
                copy.pull_part(part.name, part.settings.phases - 1)
            if is_part_finished(folder, part):
                return True
            if copy is not None:
                copy.pull_part(part.name)
            progress = ProgressFile(folder, part.name)

            def on_tick(step: int) -> None:
                if progress.is_due() or listener.due():
                    listener.on_step(part.name, step)
                    if progress.is_due():
                        progress.write(step)
                        if copy is not None:
                            copy.push_progress(part.name)

            def on_phase(report: PhaseReport) -> None:
                if copy is not None:
                    copy.push_part(part.name)
                progress.write(report.step, report.phase + 1)
                if copy is not None:
                    copy.push_progress(part.name)
                listener.on_phase(part.name, report.step, report.records)

            return train_population(
                part.agents,
                part.settings,
                network=network,
                directory=folder,
                name=part.name,
                device=task.device,
                compiled=plan.compiled,
                backend=part.backend,
                threads=task.threads,
                groups=None if task.groups is None else min(task.groups, part.agents.height),
                on_phase=on_phase,
                should_stop=listener.should_stop,
                on_tick=on_tick,
            ).finished
    except Taken as error:
        raise InvalidInput(
            f"{part.name} of {folder} is being trained by another process: let it end"
        ) from error


def tell(folder: Path, part: Part, before: Progress, listener: Listener) -> Progress:
    """Pass on what a worker has written since; what an earlier process wrote is not news."""
    now = read_progress(folder, part.name)
    if structs.replace(now, seconds=before.seconds) == before:
        return before
    files = Folder(folder, part.name)
    try:
        new = [pl.read_parquet(files.records(phase)) for phase in range(before.phases, now.phases)]
    except (OSError, pl.exceptions.PolarsError):
        return before  # not yet to be seen from here: at the next look
    for phase, records in enumerate(new, before.phases):
        listener.on_phase(part.name, part.settings.phase_end(phase), records)
    if now.step != part.settings.phase_end(max(0, now.phases - 1)):
        listener.on_step(part.name, now.step)
    return now
