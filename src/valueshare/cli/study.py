"""The runner of all studies of deep Q-learners: their runs are started or resumed, and reported together."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from valueshare.cli.arguments import AgentGroups, Threads, persistent_location, writable_location
from valueshare.cli.report import print_written
from valueshare.cli.training import FAILED, command_line, held_plan, print_plan, require_training, run_and_report
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.storage.locations import Location
from valueshare.signals import stop_on_signals

if TYPE_CHECKING:
    from valueshare.experiments.study import Study
    from valueshare.runs.execution import ExecutionOptions
    from valueshare.runs.plan import Plan


@dataclass(frozen=True)
class StudyExecution:
    """Options of running a study; none of them changes an agent's random numbers."""

    out: str | None = None
    """Folder of runs and report; left out: results/STUDY-SCALE."""
    plan: bool = False
    """Print agents, populations, memory and hours, without running anything."""
    rate: float | None = None
    """Agent-steps per second, to estimate the hours; left out: measured for a few seconds."""
    threads: Threads = 0
    groups: AgentGroups = 0


class StudyRun(NamedTuple):
    """One run of a study, or what a shard has of it."""

    name: str
    plan: "Plan"
    folder: Location  # of the run, or of the shard within it
    begun: bool  # a run of this very plan is in the folder

    @property
    def stored_workers(self) -> int:
        """The worker processes of the run that is in the folder; 0: not known."""
        from valueshare.runs.run_folder import stored_workers

        return stored_workers(self.folder) if self.begun and isinstance(self.folder, Path) else 0


Announce = Callable[["Study", Sequence[StudyRun], "ExecutionOptions"], None]


def reproduce(
    study: "Study",
    running: StudyExecution,
    launcher: LauncherOptions,
    options: Mapping[str, Any],
    announce: Announce | None = None,
) -> None:
    """Run or resume a study, write its report, and print what was found.

    `options` are those of the command that change the study. `announce` prints its plan before anything is run;
    without, each run prints its own when it starts.
    """
    require_training()
    from valueshare import starting
    from valueshare.report.write import write_report
    from valueshare.result_files import OWN_LIMIT
    from valueshare.runs.execution import ExecutionOptions
    from valueshare.runs.storage.copies import synced_folder

    out = f"results/{study.name}-{study.scale}" if running.out is None else running.out
    whole = persistent_location(out) if running.plan else writable_location(out)
    study_runs = _study_runs(study, whole, launcher, planned=running.plan)
    command = command_line(f"reproduce {study.name}", {"scale": study.scale, **options, "shard": launcher.shard})
    with stop_on_signals() as stop:
        execution = ExecutionOptions(
            threads=running.threads or None,
            should_stop=stop,
            groups=running.groups or None,
            launcher=launcher,
            callbacks=(),
        )
        if announce is not None:
            announce(study, study_runs, execution)
        elif running.plan:
            for run in study_runs:
                print_plan(run.plan, execution)
        if running.plan:
            return
        succeeded = True
        for run in study_runs:
            work = partial(starting.start, run.plan, run.folder, command, execution, study.deviations)
            if run.begun:
                work = partial(starting.resume_run, run.folder, execution)
            succeeded &= run_and_report(work, run.folder, stop, in_study=True)
    if not succeeded:
        sys.exit(FAILED)
    if launcher.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with synced_folder(whole / "report") as report_folder:
        written = write_report([run.folder for run in study_runs], report_folder, max_result_size=OWN_LIMIT)
        print_written(written, whole / "report")


def _study_runs(study: "Study", whole: Location, launcher: LauncherOptions, *, planned: bool) -> list[StudyRun]:
    """The runs of the study, or the part of each that is in the shard.

    A run of the same plan in its folder is resumed, and a folder with anything else is refused. What is only planned is
    shown as new, and addresses are not read for it.
    """
    from valueshare.runs.run_folder import check_absent
    from valueshare.runs.shards import shard_plans
    from valueshare.starting import shard_location

    study_runs = []
    plans = shard_plans(list(study.runs.values()), launcher.selected_shard)
    for name, plan in zip(study.runs, plans, strict=True):
        if plan is None:
            continue
        folder = shard_location(whole / name if name else whole, launcher)
        is_local = isinstance(folder, Path)
        stored = held_plan(folder, plan, launcher) if is_local or not planned else None
        if stored is None and isinstance(folder, Path):
            check_absent(folder, plan)
        begun = stored is not None and not planned
        study_runs.append(StudyRun(name, stored if stored and begun else plan, folder, begun))
    return study_runs
