"""Running the studies of deep Q-learners: their runs are started or resumed, and reported together.

The plan of an Atari study is printed before it starts: agents, populations, memory and hours.
"""

import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from valueshare.cli.arguments import AgentGroups, LauncherArguments, Out, Tf32, Threads, writable_location
from valueshare.cli.report import print_written
from valueshare.cli.run_and_report import command_line, require_training, run_and_report, stored_plan
from valueshare.errors import InvalidInput
from valueshare.option_groups import AutoCompile, Device, in_group
from valueshare.population.settings import SETTINGS
from valueshare.printing import print_line
from valueshare.runs.launcher_options import LOCAL, LauncherOptions
from valueshare.runs.storage.locations import Location, Url
from valueshare.signals import stop_on_signals
from valueshare.text import pluralize

if TYPE_CHECKING:
    from valueshare.experiments.study import Study
    from valueshare.runs.launchers import ExecutionOptions
    from valueshare.runs.plan import Plan

SCALE = "; default: that of the scale"


@dataclass(frozen=True)
class StudyOptions:
    """Options of every study."""

    seeds: Annotated[int | None, in_group("main")] = None
    """Number of seeds (agents per combination); default: that of the scale."""
    device: Device = "auto"
    compile: AutoCompile = None
    tf32: Tf32 = False
    out: Out = None
    """Folder to write to, runs and report; default: results/STUDY-SCALE."""
    plan: Annotated[bool, in_group("execution")] = False
    """Print the plan without running anything: the settings and the memory needed."""
    threads: Threads = 0
    launcher: LauncherArguments = LOCAL


def _setting(name: str, more: str = "") -> Parameter:
    """The help of a training setting; a switch of train can be switched off here too."""
    declared = SETTINGS[name]
    negative = f"--no-{name.replace('_', '-')}" if declared.kind is bool else ()
    return in_group(declared.group, help=declared.help.removesuffix(".") + more + ".", negative=negative)


@dataclass(frozen=True)
class AtariOptions:
    """Options of Atari studies alone."""

    env: Annotated[tuple[str, ...], in_group("main")] = ()
    """Environments: Atari games, like Pong or NameThisGame; default: those of the scale."""
    steps: Annotated[int | None, _setting("steps", SCALE)] = None
    eval_interval: Annotated[int | None, _setting("eval_interval", SCALE)] = None
    eval_timesteps: Annotated[int | None, in_group("evaluation")] = None
    """Environment steps per evaluation of one agent; default: that of the scale."""
    replay_capacity: Annotated[int | None, _setting("replay_capacity", ", 7.1 kB each" + SCALE)] = None
    replay_device: Annotated[Literal["cpu", "cuda", "disk"] | None, _setting("replay_device")] = None
    atari_protocol: Annotated[str, _setting("atari_protocol")] = "machado-2018"
    delayed_actor: Annotated[bool, _setting("delayed_actor")] = False
    rate: Annotated[float | None, in_group("execution")] = None
    """Agent-steps per second, to estimate the hours; default: measured for a few seconds."""
    groups: AgentGroups = 0


EXECUTION = ("out", "plan", "threads", "launcher", "rate", "groups")  # options that do not change a study


class StudyRun(NamedTuple):
    """One run of a study, or a shard's part of it."""

    plan: "Plan"
    folder: Location  # of the run, or of the shard within it
    resuming: bool  # a run of this very plan is in the folder


def reproduce(
    name: str,
    *,
    scale: str = "small",
    options: StudyOptions = StudyOptions(),  # noqa: B008 (frozen)
    atari: AtariOptions = AtariOptions(),  # noqa: B008 (frozen)
    **choices: Any,
) -> None:
    """Run or resume a study, write its report, and print what was found.

    `choices` are other arguments of `make_study`. The plan of an Atari study is printed before it starts; each run of
    another study prints its own when it starts.
    """
    is_atari, launcher = name.startswith("atari"), options.launcher
    require_training("atari" if is_atari else "train")
    from valueshare import starting
    from valueshare.experiments.study import make_study
    from valueshare.report.write import write_report
    from valueshare.result_files import TRUSTED_LIMIT
    from valueshare.runs.launchers import ExecutionOptions
    from valueshare.runs.storage.copies import synced_folder

    if atari.rate is not None and not 0 < atari.rate < math.inf:
        raise InvalidInput(f"`rate = {atari.rate:g}`: write agent-steps per second, or leave it out")
    if atari.rate is not None and launcher.launcher == "ray":
        raise InvalidInput("`rate` is the speed of one machine: leave it out, on Ray speeds are measured")
    given = {**_changed(atari), **_changed(options), **choices}
    study_options = {option: value for option, value in given.items() if option not in EXECUTION}
    study = make_study(name, scale, population_agents=launcher.population_agents, **study_options)
    unsplit = {"scale": scale, "population_agents": launcher.population_agents or None, **study_options}
    command = command_line(f"reproduce {name}", {**unsplit, "shard": launcher.shard})
    if is_atari:  # the plan is split already
        launcher = replace(launcher, population_agents=0)
    location = writable_location(f"results/{name}-{scale}" if options.out is None else options.out)
    study_runs = _study_runs(study, location, launcher, planned=options.plan)
    with stop_on_signals() as stop:
        execution = ExecutionOptions(
            threads=options.threads or None,
            should_stop=stop,
            groups=atari.groups or None,
            launcher=launcher,
            callbacks=(),
        )
        if options.plan or (is_atari and not any(run.resuming for run in study_runs)):
            for line in _plan_lines(study, study_runs, execution, atari.rate, planned=options.plan, timed=is_atari):
                print_line(line)
        if options.plan:
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


def _changed(options: StudyOptions | AtariOptions) -> dict[str, Any]:
    """The options that do not have their default value."""
    return {
        declared.name: value
        for declared in fields(options)
        if (value := getattr(options, declared.name)) != declared.default
    }


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
        study_runs.append(StudyRun(kept or plan, folder, resuming=kept is not None))
    return study_runs


def _plan_lines(
    study: "Study",
    study_runs: Sequence[StudyRun],
    execution: "ExecutionOptions",
    rate: float | None,
    *,
    planned: bool,
    timed: bool,
) -> Iterator[str]:
    """The plan of every run, its hours if it is `timed`, and its deviations from what is published.

    All settings and all deviations are listed if the study is only `planned`; else each run prints its plan when it
    begins. A study that does not fit into memory is
    refused after the lines, and its speed is not measured.
    """
    from valueshare.envs import atari_protocol
    from valueshare.experiments.study import evaluation_steps
    from valueshare.population.memory import DoesNotFit
    from valueshare.resources import cluster_for, prepare_plan
    from valueshare.runs.plan_text import plan_listing, plan_summary

    refusal, seconds, about = None, 0.0, plan_listing if planned else plan_summary
    with cluster_for(execution.launcher) as cluster:
        for run in study_runs:
            prepared = prepare_plan(run.plan, execution, cluster, try_compile=False)
            plan, launcher = prepared.plan, prepared.launcher
            lines = [*about(plan, prepared.resources.workers.value), *[""] * planned, *prepared.lines]
            try:
                lines.append(f"memory: {prepared.check().memory}")
                yield from lines if planned else ()  # else each run prints them when it begins
            except DoesNotFit as error:
                yield from (*lines, "memory: does not fit")
                refusal = refusal or error
            if cluster is not None and planned:  # else each run prints it when it begins
                yield from filter(None, [launcher.estimate(plan, None, measure=True)])
            elif timed and cluster is None and (rate or not refusal):
                if not rate:
                    yield "measuring the speed of this machine, which takes a minute or more; --rate skips it"
                speed = rate or _measured_speed(plan, execution)
                settings = next(iter(plan.settings.values()))
                run_seconds = plan.agents.height * (settings.steps + evaluation_steps(settings)) / speed
                origin = "as requested" if rate else "measured in this process"
                where = "" if planned else f"{run.folder}: "
                yield f"{where}{_duration(run_seconds)}, evaluations included, at {speed:,.0f} agent-steps/s ({origin})"
                seconds += run_seconds
            if planned:
                yield f"run folder: {run.folder}"
    agents = pluralize(sum(run.plan.agents.height for run in study_runs), "agent")
    share = f" of shard {execution.launcher.shard}" if execution.launcher.shard else ""
    yield f"{study.name}: {agents} in all{share}{f', {_duration(seconds)}' if seconds else ''}"
    first = next(iter(study_runs[0].plan.settings.values()))
    if first.atari_protocol:
        yield from atari_protocol(first.atari_protocol).described()
    deviations = [f"deviation: {sentence}" for sentence in study.deviations]
    if planned:
        yield f"settings are shown as options of train; valueshare reproduce {study.name} --help has its own"
    elif study.scale != "paper":
        count = pluralize(len(deviations), "deviation")
        deviations = [f"scale {study.scale}: {count}, listed by --plan and in the report"]
    yield from deviations
    if refusal:
        raise refusal


def _measured_speed(plan: "Plan", execution: "ExecutionOptions") -> float:
    """Agent-steps per second of the first population on this machine."""
    from valueshare.population.compilation import compiler_problem
    from valueshare.population.devices import checked_device
    from valueshare.runs.workers.tasks import population_speed

    compiled = bool(plan.compiled) and compiler_problem(checked_device(plan.device)) is None
    spec = next(iter(plan.populations.values()))
    return population_speed(spec, plan.device, compiled=compiled, threads=execution.threads, groups=execution.groups)


def _duration(seconds: float) -> str:
    return f"{seconds / 3_600:,.1f} hours" if seconds >= 3_600 else f"{seconds / 60:,.1f} minutes"
