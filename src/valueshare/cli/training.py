"""The commands `train`, `resume` and `extend`: populations of deep Q-learners, here or on a cluster."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from valueshare.algorithm_info import ALGORITHM_INFO, algorithm_name
from valueshare.cli.arguments import (
    AgentGroups,
    Callbacks,
    K,
    LauncherArguments,
    Log,
    NoCallbacks,
    Out,
    RunFolder,
    Threads,
    as_option,
    persistent_location,
    with_options,
    writable_location,
)
from valueshare.cli.run_and_report import command_line, pythonpath, require_training, run_and_report
from valueshare.errors import InvalidInput
from valueshare.option_groups import AutoCompile, Device, in_group
from valueshare.population.other_names import check_known
from valueshare.population.settings import PER_AGENT, SETTINGS, settings_in_signature
from valueshare.printing import print_line
from valueshare.runs.launcher_options import LOCAL, LauncherOptions, shard_folder
from valueshare.runs.storage.locations import Location
from valueshare.schema import Backend
from valueshare.setting import as_count
from valueshare.signals import StopRequest, stop_on_signals

if TYPE_CHECKING:
    from valueshare.runs.run import Run

KNOWN_ALGORITHMS = f"Algorithms: {', '.join(ALGORITHM_INFO)}."


@settings_in_signature(as_option, None)
def train(
    *,
    env: Annotated[tuple[str, ...], in_group("main")],
    backend: Annotated[Literal["auto", Backend], in_group("environment")] = "auto",
    algorithm: Annotated[tuple[str, ...], in_group("main", help=KNOWN_ALGORITHMS)] = ("ib-dqn",),
    k: K = (0.0,),
    seeds: Annotated[int, in_group("main")] = 8,
    first_seed: Annotated[int, in_group("algorithm")] = 0,
    out: Out = None,
    plan: Annotated[bool, in_group("execution")] = False,
    device: Device = "auto",
    compile: AutoCompile = None,  # noqa: A002 (the name of the option)
    threads: Threads = 0,
    groups: AgentGroups = 0,
    log: Log = (),
    callback: Callbacks = (),
    launcher: LauncherArguments = LOCAL,
    **settings: Any,
) -> None:
    """Train every combination of environment, algorithm, k, settings and seed.

    Defaults come from the environment's preset; otherwise those below (four of them differ for images). --plan prints
    them. Per-agent options (--env, --algorithm, --k, --step-size, --discount, --epsilon-*, --beta) take several values;
    every combination is trained.

    Args:
        env: Environments: Gymnasium ids with Box or Discrete observations and Discrete actions, like LunarLander-v3;
            Atari games, like Pong; MinAtar games, like Breakout-MinAtar; Box actions in bins, like
            LunarLanderContinuous-v3-bins7x7.
        backend: Library that steps the environments; auto: ALE for Atari games, numba for MinAtar games and
            LunarLander, Gymnax (jax) for bsuite, else EnvPool or Gymnasium.
        k: Value-sharing k, of the ib- algorithms: the mean of the action outputs is scaled by k + 1 (0: none, as in
            dqn; n: the number of actions).
        seeds: Number of seeds (agents per combination).
        first_seed: First seed; the seeds are consecutive.
        out: Folder to write to, or URL like s3://bucket/run; default: runs/ENVIRONMENT-ALGORITHM.
        plan: Print the plan without running anything: all settings and the memory needed.
    """
    overrides = {name: value for name, value in settings.items() if value is not None}
    _check_before_imports(algorithm, seeds, overrides)
    with stop_on_signals() as stop:
        require_training()
        from valueshare import starting
        from valueshare.runs.launchers import ExecutionOptions
        from valueshare.runs.plan_text import about_settings
        from valueshare.runs.planning import default_folder, make_plan
        from valueshare.runs.shards import shard_plan

        overrides |= {"k": k, "seeds": seeds, "first_seed": first_seed}
        explicit_backend = None if backend == "auto" else backend
        run_plan = make_plan(env, algorithm, device=device, compiled=compile, backend=explicit_backend, **overrides)
        chosen = default_folder(run_plan) if out is None else out
        location = writable_location(chosen)
        about = about_settings(run_plan, env)
        run_plan, folder = shard_plan(run_plan, launcher.selected_shard), starting.shard_location(location, launcher)
        execution = ExecutionOptions(
            threads=threads or None,
            log=log,
            should_stop=stop,
            groups=groups or None,
            launcher=launcher,
            callbacks=callback,
        )
        if plan:
            for line in starting.plan_lines(run_plan, execution, about):
                print_line(line)  # a refusal may follow
            print_line(f"run folder: {folder}")
            try:
                starting.check_plan(run_plan, folder, execution)
            except InvalidInput as refusal:
                print_line(f"note: {with_options(refusal)}")
            return
        explicit_device = None if device == "auto" else device
        named = {"env": env, "algorithm": algorithm, **overrides, "device": explicit_device, "compile": compile}
        command = command_line("train", {**named, "backend": backend, "callback": callback, "shard": launcher.shard})
        work = partial(starting.start, run_plan, folder, command, execution, about=about)
        _run(work, folder, launcher, stop)


def _check_before_imports(algorithms: Sequence[str], seeds: int, settings: Mapping[str, Any]) -> None:
    """Refuse values that are wrong by themselves, before PyTorch is imported, which takes seconds."""
    for name in algorithms:
        check_known("algorithm", algorithm_name(name), ALGORITHM_INFO)
    as_count("seeds", seeds)
    for name, value in settings.items():
        for checked in value if name in PER_AGENT else (value,):
            SETTINGS[name].check(checked)


@dataclass(frozen=True)
class ResumeArguments:
    """Options of `resume` and `extend`."""

    threads: Threads = 0
    groups: AgentGroups = 0
    log: Log = ()
    callback: Callbacks = ()
    no_callbacks: NoCallbacks = False


Arguments = Annotated[ResumeArguments, Parameter(name="*")]
TotalSteps = Annotated[int, in_group("main")]
RESUMED = ResumeArguments()


def resume(run: RunFolder, /, *, options: Arguments = RESUMED, launcher: LauncherArguments = LOCAL) -> None:
    """Resume a run from its last checkpoint; the results are bit-identical to an uninterrupted run.

    Args:
        run: The run's folder or URL; with --shard, the folder that holds the shards.
    """
    _resume(run, options, launcher)


def extend(
    run: RunFolder, /, *, steps: TotalSteps, options: Arguments = RESUMED, launcher: LauncherArguments = LOCAL
) -> None:
    """Continue training a finished run for more steps; its schedules stay as they were.

    Unless the step size falls linearly, the result is bit-identical to a run of this number of steps from the start.

    Args:
        run: The run's folder or URL; with --shard, the folder that holds the shards.
        steps: Environment steps per agent, in total: more than the run has.
    """
    _resume(run, options, launcher, steps)


def _resume(run: str, options: ResumeArguments, launcher: LauncherOptions, steps: int | None = None) -> None:
    with stop_on_signals() as stop:
        require_training()
        from valueshare.runs.launchers import ExecutionOptions
        from valueshare.starting import extend_run, resume_run

        folder = shard_folder(persistent_location(run), launcher.selected_shard)
        if options.callback and options.no_callbacks:
            raise InvalidInput("`callback` and `no_callbacks` contradict each other: leave one out")
        execution = ExecutionOptions(
            threads=options.threads or None,
            log=options.log,
            should_stop=stop,
            groups=options.groups or None,
            launcher=launcher,
            callbacks=options.callback if options.callback or options.no_callbacks else None,
        )
        work = partial(resume_run if steps is None else partial(extend_run, steps=steps), folder, execution)
        _run(work, folder, launcher, stop)


def _run(work: "Callable[[], Run]", folder: Location, launcher: LauncherOptions, stop: StopRequest) -> None:
    """Run, and print the commands that show the finished run; a shard is shown with the others."""
    code = run_and_report(work, folder, stop)
    if code:
        sys.exit(code)
    if launcher.shard:
        return
    run = shlex.quote(str(folder))
    commands = [f"valueshare report {run}", f"valueshare watch {run}"]
    if isinstance(folder, Path):
        commands.append(f"{pythonpath(folder)}valueshare play {run} --agent 0 --video agent.mp4")
    print_line("next:", *(f"  {command}" for command in commands))
