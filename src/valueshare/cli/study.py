"""Running the studies of deep Q-learners: their runs are started or resumed, and reported together.

The plan of an Atari study is printed before it starts: agents, populations, memory and hours.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from valueshare.cli.arguments import AgentGroups, LauncherArguments, Out, Threads, writable_location
from valueshare.cli.report import print_written
from valueshare.cli.run_and_report import command_line, print_plan, require_training, run_and_report, stored_plan
from valueshare.errors import InvalidInput
from valueshare.option_groups import in_group
from valueshare.printing import print_line
from valueshare.runs.launcher_options import LOCAL, LauncherOptions
from valueshare.runs.storage.locations import Location, Url
from valueshare.signals import stop_on_signals
from valueshare.text import pluralize

if TYPE_CHECKING:
    from valueshare.experiments.study import Study
    from valueshare.resources import PreparedPlan
    from valueshare.runs.launchers import ExecutionOptions
    from valueshare.runs.plan import Plan


@dataclass(frozen=True)
class StudyExecution:
    """Options of running a study; none of them changes an agent's random numbers."""

    out: Out = None
    """Folder of runs and report; default: results/STUDY-SCALE."""
    plan: Annotated[bool, in_group("execution")] = False
    """Print the plan and the memory needed, without running anything."""
    threads: Threads = 0
    launcher: LauncherArguments = LOCAL


@dataclass(frozen=True)
class AtariExecution:
    """Options of running an Atari study."""

    study: Annotated[StudyExecution, Parameter(name="*")] = StudyExecution()
    rate: Annotated[float | None, in_group("execution")] = None
    """Agent-steps per second, to estimate the hours; default: measured for a few seconds."""
    groups: AgentGroups = 0


class StudyRun(NamedTuple):
    """One run of a study, or a shard's part of it."""

    name: str
    plan: "Plan"
    folder: Location  # of the run, or of the shard within it
    resuming: bool  # a run of this very plan is in the folder


def reproduce(
    study: "Study", running: StudyExecution, options: Mapping[str, Any], atari: AtariExecution | None = None
) -> None:
    """Run or resume a study, write its report, and print what was found.

    `options` of the command change the study. The plan of a whole Atari study is
    printed before anything is run; each run of another study prints its own when it starts.
    """
    require_training()
    from valueshare import starting
    from valueshare.report.write import write_report
    from valueshare.result_files import TRUSTED_LIMIT
    from valueshare.runs.launchers import ExecutionOptions
    from valueshare.runs.storage.copies import synced_folder

    launcher = running.launcher
    out = f"results/{study.name}-{study.scale}" if running.out is None else running.out
    location = writable_location(out)
    study_runs = _study_runs(study, location, launcher, planned=running.plan)
    chosen = {"scale": study.scale, "population_agents": launcher.population_agents or None, **options}
    command = command_line(f"reproduce {study.name}", {**chosen, "shard": launcher.shard})
    with stop_on_signals() as stop:
        execution = ExecutionOptions(
            threads=running.threads or None,
            should_stop=stop,
            groups=(atari.groups if atari else 0) or None,
            launcher=launcher,
            callbacks=(),
        )
        if atari:
            for line in study_lines(study, atari, study_runs, execution):
                print_line(line)
        elif running.plan:
            for run in study_runs:
                print_plan(run.plan, execution)
                print_line(f"run folder: {run.folder}")
            print_line(f"settings are shown as options of train; valueshare reproduce {study.name} --help has its own")
        if running.plan:
            return
        code = 0
        for run in study_runs:
            work = partial(starting.start, run.plan, run.folder, command, execution, study.deviations)
            if run.resuming:
                work = partial(starting.resume_run, run.folder, execution)
            code = run_and_report(work, run.folder, stop, in_study=True) or code
    if code:
        sys.exit(code)
    if launcher.shard:
        print_line(f"when all shards are there: valueshare report {shlex.quote(str(location))}")
        return
    with synced_folder(location / "report") as report_folder:
        written = write_report([run.folder for run in study_runs], report_folder, max_result_size=TRUSTED_LIMIT)
        print_written(written, location / "report")


def _study_runs(study: "Study", location: Location, launcher: LauncherOptions, *, planned: bool) -> list[StudyRun]:
    """The runs of the study, or the part of each that is in the shard.

    A run of the same plan in its folder is resumed, and a folder with anything else is refused. A run that is only
    `planned` is shown as new, and its URL is not read.
    """
    from valueshare.runs.run_folder import refuse_existing_run
    from valueshare.runs.shards import shard_plans
    from valueshare.starting import shard_location

    study_runs = []
    plans = shard_plans(list(study.runs.values()), launcher.selected_shard)
    for name, plan in zip(study.runs, plans, strict=True):
        if plan is None:
            continue
        folder = shard_location(location / name if name else location, launcher)
        stored = None if planned and isinstance(folder, Url) else stored_plan(folder, plan, launcher)
        if stored is None and isinstance(folder, Path):
            refuse_existing_run(folder, plan)
        kept = None if planned else stored
        study_runs.append(StudyRun(name, kept or plan, folder, resuming=kept is not None))
    return study_runs


def study_lines(
    study: "Study", running: AtariExecution, study_runs: Sequence[StudyRun], execution: "ExecutionOptions"
) -> Iterator[str]:
    """Agents, populations, memory and hours of an Atari study, line by line; one that cannot run is refused.

    With `--plan`, a refusal for lack of memory comes after all lines. Hours are not estimated for a resumed study.
    """
    from valueshare.envs import atari_protocol
    from valueshare.experiments.atari import evaluation_steps
    from valueshare.resources import cluster_for, prepare_plan
    from valueshare.runs.run_folder import stored_workers

    with cluster_for(execution.launcher) as cluster:
        launch_plans = []
        for run in study_runs:
            workers = stored_workers(run.folder) if run.resuming and isinstance(run.folder, Path) else 0
            launch_plans.append(
                prepare_plan(
                    run.plan, execution, cluster, resuming=run.resuming, stored_workers=workers, try_compile=False
                )
            )
        needs, refusal = _memory_lines(launch_plans, at_once=not running.study.plan)
        # A run that does not fit cannot be measured.
        estimates = not any(run.resuming for run in study_runs) and (running.rate or not refusal)
        seconds = 0.0
        for run, launch_plan, memory in zip(study_runs, launch_plans, needs, strict=True):
            plan, specs = launch_plan.plan, list(launch_plan.plan.populations.values())
            agents, settings = plan.agents.height, specs[0].settings
            count, largest = pluralize(len(specs), "population"), max(spec.agents.height for spec in specs)
            yield (
                f"{run.name}: {pluralize(agents, 'agent')} in {count} of at most {largest}, "
                f"{pluralize(settings.steps, 'step')} each and {evaluation_steps(settings):,} of evaluation"
            )
            yield from (f"  {line}" for line in (*launch_plan.lines, f"memory: {memory}"))
            if estimates and execution.launcher.launcher == "ray":  # each run prints it itself when it begins
                if running.study.plan and (line := launch_plan.launcher.estimate(plan, None, measure=True)) is not None:
                    yield f"  {line}"
            elif estimates:
                if not running.rate:
                    yield "  measuring the speed of this machine, which takes a minute or more; --rate skips it"
                rate = running.rate or _measure_rate(plan, execution)
                run_seconds = agents * (settings.steps + evaluation_steps(settings)) / rate
                origin = "given" if running.rate else "measured in this process"
                yield f"  {_duration(run_seconds)} at {rate:,.0f} agent-steps/s, {origin}"
                seconds += run_seconds
    all_agents = pluralize(sum(run.plan.agents.height for run in study_runs), "agent")
    in_all = f", {_duration(seconds)}" if seconds else ""
    share = f" of shard {execution.launcher.shard}" if execution.launcher.shard else ""
    yield f"{study.name}: {all_agents} in all{share}{in_all}"
    first, *_ = study_runs[0].plan.settings.values()
    yield from atari_protocol(str(first.atari_protocol)).described()
    deviations: Sequence[str] = study.deviations
    if not running.study.plan and study.scale != "paper":
        count = pluralize(len(deviations), "departure")
        deviations = [f"scale {study.scale}, with {count} (see --plan or the report)"]
    yield from (f"not as in the paper: {sentence}" for sentence in deviations)
    if refusal:
        raise refusal


def _measure_rate(plan: "Plan", execution: "ExecutionOptions") -> float:
    """Agent-steps per second of the first population on this machine."""
    from valueshare.population.compilation import compiler_problem
    from valueshare.population.devices import checked_device
    from valueshare.runs.workers.tasks import population_speed

    compiled = bool(plan.compiled) and compiler_problem(checked_device(plan.device)) is None
    spec = next(iter(plan.populations.values()))
    return population_speed(spec, plan.device, compiled=compiled, threads=execution.threads, groups=execution.groups)


def _memory_lines(launch_plans: "Sequence[PreparedPlan]", *, at_once: bool) -> tuple[list[str], InvalidInput | None]:
    """A line of memory for each plan, and the first refusal if one is not to be raised `at_once`."""
    from valueshare.population.memory import DoesNotFit

    lines: list[str] = []
    refusal: InvalidInput | None = None
    for launch_plan in launch_plans:
        try:
            lines.append(launch_plan.check())
        except DoesNotFit as error:
            fewer = ", or a smaller `population_agents`" if error.fewer_agents_fit else ""
            refusal = refusal or InvalidInput(f"{error}{fewer}")
            if at_once:
                raise refusal from error
            lines.append("does not fit")
    return lines, refusal


def _duration(seconds: float) -> str:
    if seconds >= 3_600:
        return f"{seconds / 3_600:,.1f} hours"
    return f"{seconds / 60:,.1f} minutes"
