"""The Atari studies: scores on 57 games, sensitivity to k, RMSprop, and RDQ's beta."""

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from valueshare.cli.arguments import GROUPS, LOCAL, LauncherArguments, persistent_location, writable_location
from valueshare.cli.atari_plan import StudyExecution, StudyRun, print_plan
from valueshare.cli.training import FAILED, command_line, held_plan, run_and_report, training_library
from valueshare.errors import InvalidInput
from valueshare.experiments.atari_options import AtariOptions
from valueshare.runs.launcher_options import LauncherOptions, shard_folder
from valueshare.runs.storage.locations import Location
from valueshare.signals import stop_on_signals

if TYPE_CHECKING:
    from valueshare.experiments.atari import AtariStudy

Study = Annotated[AtariOptions, Parameter(name="*")]
ExecutionArguments = Annotated[StudyExecution, Parameter(name="*", group=GROUPS["execution"])]
Coefficients = Annotated[tuple[float, ...], Parameter(group=GROUPS["algorithm"])]
DEFAULT, HERE = AtariOptions(), StudyExecution()


def reproduce_atari57(
    *,
    algorithms: Annotated[tuple[str, ...], Parameter(group=GROUPS["algorithm"])] = (),
    k: Coefficients = (),
    study: Study = DEFAULT,
    running: ExecutionArguments = HERE,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """The paper's main result: algorithms with the layer and without, on Atari games.

    To resume a stopped study, give the same command again.

    Args:
        algorithms: Left out: dqn and ib-dqn; at the paper's scale also dueling-dqn, rdq, iqn and ib-iqn.
        k: Coefficients of the ib- algorithms; left out: the number of actions; for ib-dqn at the paper's scale also 1.
    """
    _reproduce("atari57", study, running, launcher, algorithms=algorithms, k=k)


def reproduce_atari_sensitivity(
    *,
    k: Coefficients = (),
    study: Study = DEFAULT,
    running: ExecutionArguments = HERE,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """IB-DQN against k on NameThisGame, DemonAttack and StarGunner.

    Args:
        k: Left out: 0, 1, 32, 64, ..., 1024; fewer at the smaller scales.
    """
    _reproduce("atari-sensitivity", study, running, launcher, k=k)


def reproduce_atari_rmsprop(
    *, study: Study = DEFAULT, running: ExecutionArguments = HERE, launcher: LauncherArguments = LOCAL
) -> None:
    """DQN and IB-DQN(n) with centred RMSprop and the Huber loss, on 55 games."""
    _reproduce("atari-rmsprop", study, running, launcher)


def reproduce_atari_rdq_beta(
    *,
    beta: Coefficients = (),
    study: Study = DEFAULT,
    running: ExecutionArguments = HERE,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """RDQ with several weights of its penalty, on the validation games of Atari-5.

    Args:
        beta: Left out: 0.00001, 0.0001, ..., 0.1, around the paper's 0.001.
    """
    _reproduce("atari-rdq-beta", study, running, launcher, beta=beta)


def _reproduce(
    name: str,
    options: AtariOptions,
    running: StudyExecution,
    launcher: LauncherOptions,
    **given: Sequence[str] | Sequence[float],
) -> None:
    training = training_library("atari")
    from valueshare import starting
    from valueshare.experiments.atari import atari_study
    from valueshare.report.write import write_report
    from valueshare.resources import cluster_for, prepare
    from valueshare.result_files import OWN_LIMIT
    from valueshare.runs.execution import ExecutionOptions
    from valueshare.runs.storage.copies import synced_folder

    if running.rate is not None and not 0 < running.rate < math.inf:
        raise InvalidInput(f"rate = {running.rate:g}: write agent-steps per second, or leave it out")
    if running.rate is not None and launcher.launcher == "ray":
        raise InvalidInput("--rate is of one machine: leave it out, on Ray speeds are measured")
    if running.groups < 0:
        raise InvalidInput(f"groups = {running.groups}: write at least 1, or leave it out")
    study = atari_study(name, options, **given)  # type: ignore[arg-type]
    out = f"results/{name}-{options.scale}" if running.out is None else running.out
    whole = persistent_location(out) if running.plan else writable_location(out)
    study_runs = _study_runs(study, whole, launcher, planned=running.plan)
    with stop_on_signals() as stop:
        execution = ExecutionOptions(
            threads=running.threads or None, should_stop=stop, groups=running.groups or None, launcher=launcher
        )
        with cluster_for(launcher) as cluster:
            made = [
                prepare(
                    run.plan,
                    execution,
                    cluster,
                    begun=run.begun,
                    stored_workers=run.stored_workers,
                    compiles=False,
                )
                for run in study_runs
            ]
            print_plan(study, study_runs, options, running, execution, made)
        if running.plan:
            return
        usual = asdict(DEFAULT)
        changed = {name: value for name, value in asdict(options).items() if value != usual[name]}
        same = {"scale": options.scale, **changed, **given, "shard": launcher.shard}
        command = command_line(f"reproduce {name}", same)
        well = True
        for run in study_runs:
            if run.begun:
                again = partial(training.resume, threads=execution.threads, groups=execution.groups)
                resume = partial(again, launcher=launcher, callbacks=())
                work = partial(resume, whole / run.name, should_stop=stop)
            else:
                work = partial(starting.start, run.plan, run.folder, command, execution, study.deviations)
            well &= run_and_report(work, run.folder, stop, in_study=True, others_follow=True)
    if not well:
        sys.exit(FAILED)
    if launcher.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with synced_folder(whole / "report") as own:
        written = write_report([run.folder for run in study_runs], own, max_result_size=OWN_LIMIT)
    print(f"report: {whole / 'report'}, figures {', '.join(written.figures)}")
    for note in written.notes:
        print(f"note: {note}")


def _study_runs(study: "AtariStudy", whole: Location, launcher: LauncherOptions, *, planned: bool) -> list[StudyRun]:
    """The runs to make: every run of the study, or the part of each that is in the shard.

    A folder that cannot be its place is refused. Of runs that are only planned, addresses are not read, and those that
    are there do not matter.
    """
    from valueshare.runs.run_folder import check_absent
    from valueshare.runs.shards import shard_plans

    study_runs = []
    plans = shard_plans([run.plan for run in study.runs], launcher.own_shard)
    for run, plan in zip(study.runs, plans, strict=True):
        if plan is not None:
            folder = shard_folder(whole / run.name, launcher.own_shard)
            held = None if planned and not isinstance(folder, Path) else held_plan(folder, plan, launcher)
            if held is None and isinstance(folder, Path):
                check_absent(folder, plan)
            held = None if planned else held
            study_runs.append(StudyRun(run.name, held or plan, folder, begun=held is not None))
    return study_runs
