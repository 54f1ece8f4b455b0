"""The plan of an Atari study, printed before it starts: agents, populations, memory, hours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from valueshare.cli.study import StudyExecution, StudyRun
from valueshare.errors import InvalidInput
from valueshare.text import how_many

if TYPE_CHECKING:
    from valueshare.experiments.study import Study
    from valueshare.resources import Prepared
    from valueshare.runs.execution import ExecutionOptions
    from valueshare.runs.plan import Plan


def announce_atari(
    running: StudyExecution,
    study: "Study",
    study_runs: Sequence[StudyRun],
    execution: "ExecutionOptions",
) -> None:
    """Print agents, populations, memory and hours of a study; refuse one that cannot run.

    Where the plan is all that is wanted, what does not fit is refused after it. The hours of a study that is resumed
    are not counted: part of it is done.
    """
    from valueshare.envs import atari_protocol
    from valueshare.experiments.atari import evaluation_steps
    from valueshare.resources import cluster_for, prepare

    with cluster_for(execution.launcher) as cluster:
        prepared = [
            prepare(run.plan, execution, cluster, begun=run.begun, stored_workers=run.stored_workers, compiles=False)
            for run in study_runs
        ]
        needs, refusal = _memory(prepared, execution, at_once=not running.plan)
        resumed = any(run.begun for run in study_runs)
        seconds = 0.0
        for run, prepared_run, memory in zip(study_runs, prepared, needs, strict=True):
            plan = prepared_run.plan
            populations = list(plan.populations.values())
            sizes = [spec.agents.height for spec in populations]
            settings = populations[0].settings
            agents, count = how_many(sum(sizes), "agent"), how_many(len(sizes), "population")
            steps = how_many(settings.steps, "step")
            print(
                f"{run.name}: {agents} in {count} of at most {max(sizes)}, {steps} each and "
                f"{evaluation_steps(settings):,} of evaluation"
            )
            print(*(f"  {line}" for line in (*prepared_run.lines, f"memory: {memory}")), sep="\n")
            if resumed or (refusal and not running.rate):  # what does not fit cannot be measured
                continue
            if execution.launcher.launcher == "ray":  # each run says so itself when it begins
                if running.plan and (line := prepared_run.launcher.estimate(plan, None, measure=True)) is not None:
                    print(f"  {line}")
                continue
            rate = running.rate or _measured(plan, running)
            each = settings.steps + evaluation_steps(settings)
            seconds += sum(sizes) * each / rate
            words = "given" if running.rate else "measured in this process"
            print(f"  {_duration(sum(sizes) * each / rate)} at {rate:,.0f} agent-steps/s, {words}")
        all_agents = how_many(sum(prepared_run.plan.agents.height for prepared_run in prepared), "agent")
        in_all = f", {_duration(seconds)}" if seconds else ""
        share = f" of shard {execution.launcher.shard}" if execution.launcher.shard else ""
        print(f"{study.name}: {all_agents} in all{share}{in_all}")
        print(*atari_protocol(str(settings.atari_protocol)).described(), sep="\n")
        print(*_departures(study, in_full=running.plan), sep="\n", flush=True)
        if refusal:
            raise refusal


def _departures(study: "Study", *, in_full: bool) -> list[str]:
    """Where a study departs from the paper; of a smaller scale, that it does and who lists it."""
    if in_full or study.scale == "paper":
        return [f"not as in the paper: {sentence}" for sentence in study.deviations]
    count = how_many(len(study.deviations), "departure")
    return [f"not as in the paper: scale {study.scale}, with {count} (see --plan or the report)"]


def _measured(plan: "Plan", running: StudyExecution) -> float:
    """Agent-steps per second of the first population on this machine."""
    from valueshare.benchmarks.training_loop import loop_rate
    from valueshare.population.compilation import compiler_problem
    from valueshare.population.train import checked_device

    print("  measuring the speed of this machine, which takes a minute or more; --rate skips it", flush=True)
    return loop_rate(
        next(iter(plan.populations.values())),
        plan.device,
        bool(plan.compiled) and compiler_problem(checked_device(plan.device)) is None,
        threads=running.threads or None,
        groups=running.groups or None,
    )


def _memory(
    prepared: "Sequence[Prepared]", execution: "ExecutionOptions", *, at_once: bool
) -> tuple[list[str], InvalidInput | None]:
    """A line of memory for each plan, and the first refusal if one is not to be `at_once`."""
    from valueshare.population.memory import DoesNotFit

    lines: list[str] = []
    refusal: InvalidInput | None = None
    for prepared_run in prepared:
        try:
            lines.append(prepared_run.launcher.check(prepared_run.plan, execution))
        except DoesNotFit as error:
            fewer = ", or a smaller agents-at-once" if error.one_fits else ""
            refusal = refusal or InvalidInput(f"{error}{fewer}")
            if at_once:
                raise refusal from error
            lines.append("does not fit")
    return lines, refusal


def _duration(seconds: float) -> str:
    if seconds >= 3_600:
        return f"{seconds / 3_600:,.1f} hours"
    return f"{seconds / 60:,.1f} minutes"
