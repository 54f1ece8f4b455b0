"""A study that is one run: its options, and how it is run, resumed and reported."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from valueshare.cli.arguments import (
    GROUPS,
    AutoCompile,
    Device,
    Out,
    Tf32,
    Threads,
    persistent_location,
    writable_location,
)
from valueshare.cli.report import print_written
from valueshare.cli.training import command_line, held_plan, print_plan, run_and_report, training_library
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.signals import stop_on_signals

if TYPE_CHECKING:
    from valueshare.runs.plan import Plan


@dataclass(frozen=True)
class StudyArguments:
    """Options of every study, besides its scale."""

    eval_episodes: int | None = None
    """Episodes per evaluation; left out: the scale's own."""
    seeds: int | None = None
    """Agents per combination; left out: the scale's own."""
    out: Out = None
    """Folder of run, figures and report; left out: results/STUDY-SCALE."""
    device: Device = "auto"
    compile: AutoCompile = None
    tf32: Tf32 = False
    threads: Threads = 0
    plan: Annotated[bool, Parameter(group=GROUPS["execution"])] = False
    """Print all settings and the memory needed, without running anything."""

    def of_study(self) -> dict[str, Any]:
        """Those that the study itself takes."""
        return {"eval_episodes": self.eval_episodes, "seeds": self.seeds, "tf32": self.tf32}


Arguments = Annotated[StudyArguments, Parameter(name="*")]
DEFAULT = StudyArguments()


class StudyRun(NamedTuple):
    """One run, ready to be started: its agents and settings, and what it is called."""

    name: str  # of the study
    scale: str
    plan: "Plan"
    deviations: tuple[str, ...]
    options: Mapping[str, Any] = {}  # of the command, besides those of every study


def reproduce_study(
    study: StudyRun,
    given: StudyArguments,
    launcher: LauncherOptions,
) -> None:
    """Run or resume a study, write its report, and print what was found."""
    training = training_library()
    from valueshare import starting
    from valueshare.report.write import write_report
    from valueshare.result_files import OWN_LIMIT
    from valueshare.runs.execution import ExecutionOptions
    from valueshare.runs.storage.copies import synced_folder

    chosen = f"results/{study.name}-{study.scale}" if given.out is None else given.out
    whole = persistent_location(chosen) if given.plan else writable_location(chosen)
    plan, folder = starting.select_shard(study.plan, whole, launcher)
    device = None if given.device == "auto" else given.device
    options = {"scale": study.scale, "device": device, "eval_episodes": given.eval_episodes, "seeds": given.seeds}
    flags = {"compile": given.compile, "tf32": given.tf32 or None, "shard": launcher.shard}
    command = command_line(f"reproduce {study.name}", {**options, **study.options, **flags})
    with stop_on_signals() as stop:
        execution = ExecutionOptions(threads=given.threads or None, should_stop=stop, launcher=launcher)
        held = None if given.plan and not isinstance(folder, Path) else held_plan(folder, plan, launcher)
        if given.plan:
            if held is None:
                starting.check_plan(plan, folder, execution)
            print_plan(plan, execution)
            return
        if held is not None:
            again = partial(training.resume, threads=execution.threads, launcher=launcher, callbacks=())
            work = partial(again, whole, should_stop=stop)
        else:
            work = partial(starting.start, plan, folder, command, execution, study.deviations)
        run_and_report(work, folder, stop, in_study=True)
    if launcher.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with synced_folder(folder) as own:
        print_written(write_report([own], max_result_size=OWN_LIMIT), folder / "report")
