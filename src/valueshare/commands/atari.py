"""The Atari studies: scores on 57 games, sensitivity to k, RMSprop, and RDQ's beta."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import OmitArgPrefixes

from valueshare.commands.arguments import Flag, OutFolder
from valueshare.commands.training import to_the_end, training_library
from valueshare.errors import InvalidInput
from valueshare.experiments.atari_options import AtariOptions
from valueshare.runs.signals import stop_on_signals

if TYPE_CHECKING:
    from valueshare.experiments.atari import AtariStudy
    from valueshare.runs.plan import Plan
    from valueshare.runs.run_folder import Run


@dataclass(frozen=True)
class Running:
    """How a study is run here; nothing of it changes an agent's random numbers."""

    out: OutFolder = None
    """Folder of runs and report; left out: results/STUDY-SCALE."""
    plan: Flag = False
    """Print agents, populations, memory and hours, and run nothing."""
    rate: float = 0.0
    """Agent-steps a second that the plan's hours are counted with; 0: measured for a few seconds,
    and the steps of evaluation are counted at the same rate."""
    threads: int = 0
    """Of the emulators, shared among the groups; 0 is one a core."""
    groups: int = 1
    """Groups of agents that take turns: one acts while the emulators of another run."""


def reproduce_atari57(
    study: OmitArgPrefixes[AtariOptions],
    running: OmitArgPrefixes[Running],
    algorithms: tuple[str, ...] = (),
    k: tuple[float, ...] = (),
) -> None:
    """The paper's main result: algorithms with the layer and without, on Atari games.

    A study that was stopped goes on when the same command is given again.

    Args:
        study: What is run.
        running: How it is run.
        algorithms: At the paper's scale dqn, dueling-dqn, ib-dqn, rdq, iqn and ib-iqn, at the
            others dqn and ib-dqn.
        k: Of the algorithms that have one; left out: 1 and the number of actions, as in the paper,
            and at the other scales the number of actions.
    """
    _reproduce("atari57", study, running, algorithms=algorithms, k=k)


def reproduce_atari_sensitivity(
    study: OmitArgPrefixes[AtariOptions],
    running: OmitArgPrefixes[Running],
    k: tuple[float, ...] = (),
) -> None:
    """IB-DQN against k on NameThisGame, DemonAttack and StarGunner.

    Args:
        study: What is run.
        running: How it is run.
        k: Left out: 0, 1, 32, 64, ..., 1024, and fewer at the smaller scales.
    """
    _reproduce("atari-sensitivity", study, running, k=k)


def reproduce_atari_rmsprop(
    study: OmitArgPrefixes[AtariOptions], running: OmitArgPrefixes[Running]
) -> None:
    """DQN and IB-DQN(n) with centred RMSprop and the Huber loss, on 55 games.

    Args:
        study: What is run.
        running: How it is run.
    """
    _reproduce("atari-rmsprop", study, running)


def reproduce_atari_rdq_beta(
    study: OmitArgPrefixes[AtariOptions],
    running: OmitArgPrefixes[Running],
    beta: tuple[float, ...] = (),
) -> None:
    """RDQ with several weights of its penalty, on the validation games of Atari-5.

    Args:
        study: What is run.
        running: How it is run.
        beta: Left out: 0.00001, 0.0001, ..., 0.1, around the paper's 0.001.
    """
    _reproduce("atari-rdq-beta", study, running, beta=beta)


def _reproduce(
    name: str, options: AtariOptions, running: Running, **given: Sequence[str] | Sequence[float]
) -> None:
    training = training_library()
    from valueshare.experiments.atari import atari_study
    from valueshare.report.write import write_report
    from valueshare.runs.launch import Execution

    if not running.rate >= 0:
        raise InvalidInput(f"rate = {running.rate:g}: write agent-steps a second, or leave it out")
    if running.groups < 1:
        raise InvalidInput(f"groups = {running.groups}: write at least 1, or leave it out")
    study = atari_study(name, options, **given)  # type: ignore[arg-type]
    folder = Path("results") / f"{name}-{options.scale}" if running.out is None else running.out
    begun = [not running.plan and _holds(folder / run.name, run.plan) for run in study.runs]
    _print_plan(study, options, running, goes_on=any(begun))
    if running.plan:
        return
    command = _command(name, options, given)
    with stop_on_signals() as stop:
        for number, (run_name, plan) in enumerate(study.runs):
            own, there = folder / run_name, begun[number]

            def work(own: Path = own, plan: "Plan" = plan, there: bool = there) -> "Run":
                threads = running.threads or None
                done: Run
                if there:
                    done = training.resume(
                        own, threads=threads, should_stop=stop, groups=running.groups
                    )
                else:
                    how = Execution(threads=threads, should_stop=stop, groups=running.groups)
                    done = training.start(plan, own, command, how)
                return done

            to_the_end(work, own, stop)
    written = write_report([folder / run.name for run in study.runs], folder / "report")
    print(f"report: {written.folder}, figures {', '.join(written.figures)}")
    for note in written.notes:
        print(f"note: {note}")


def _print_plan(
    study: "AtariStudy", options: AtariOptions, running: Running, *, goes_on: bool
) -> None:
    """What will be run: agents, populations, memory and hours; what cannot be is refused.

    The hours of a study that goes on are not counted: part of it is done.
    """
    from valueshare.envs import atari_protocol
    from valueshare.experiments.atari import evaluation_steps
    from valueshare.runs.plan import parts

    needs = [_checked(run.plan) for run in study.runs]
    seconds = 0.0
    for run, memory in zip(study.runs, needs, strict=True):
        populations = parts(run.plan)
        sizes = [part.agents.height for part in populations]
        settings = populations[0].settings
        count = "1 population" if len(sizes) == 1 else f"{len(sizes)} populations"
        print(
            f"{run.name}: {sum(sizes):,} agents in {count} of at most {max(sizes)}, "
            f"{settings.total_steps:,} steps each and {evaluation_steps(settings):,} of evaluation"
        )
        print(f"  memory: {memory}")
        if goes_on:
            continue
        own = running.rate
        if not own:
            from valueshare.benchmarks.atari_loop import loop_rate

            own = loop_rate(
                populations[0],
                run.plan.device,
                run.plan.compiled,
                threads=running.threads or None,
                groups=running.groups,
            )
        each = settings.total_steps + evaluation_steps(settings)
        seconds += sum(sizes) * each / own
        words = "given" if running.rate else "measured here"
        print(f"  {_duration(sum(sizes) * each / own)} at {own:,.0f} agent-steps/s, {words}")
    agents = sum(run.plan.agents.height for run in study.runs)
    in_all = f", {_duration(seconds)}" if seconds else ""
    print(f"{study.name}: {agents:,} agents in all{in_all}, on {options.device}")
    print(*atari_protocol(options.atari_protocol).described(), sep="\n")
    for sentence in study.deviations:
        print(f"not as in the paper: {sentence}")


def _checked(plan: "Plan") -> str:
    """One line of the memory that a run needs; what does not fit can also be cut smaller.

    Its populations differ in their games and sizes alone: the largest one decides.
    """
    from valueshare.runs.launch import check
    from valueshare.runs.plan import parts

    largest = max(parts(plan), key=lambda part: part.agents.height)
    try:
        return check(plan._replace(agents=largest.agents, pieces={}))
    except InvalidInput as error:
        if "would fit" not in str(error):
            raise
        raise InvalidInput(f"{error}, or a smaller agents-at-once") from error


def _duration(seconds: float) -> str:
    if seconds >= 3_600:
        return f"{seconds / 3_600:,.1f} hours"
    return f"{seconds / 60:,.1f} minutes"


def _holds(folder: Path, plan: "Plan") -> bool:
    """Whether the folder holds a run of this very plan, finished or not; another is refused."""
    from valueshare.runs.directory import read_config
    from valueshare.runs.plan import KIND, config, difference

    stored = read_config(folder)
    if stored is None or stored.get("kind") != KIND:
        return False
    other = difference(stored, config(plan))
    if other is not None:
        raise InvalidInput(
            f"{folder} holds a run with other settings ({other}): choose another --out"
        )
    return True


def _command(
    name: str, options: AtariOptions, given: dict[str, Sequence[str] | Sequence[float]]
) -> str:
    """The command that makes the same study; no folder is in it."""
    words = ["valueshare", "reproduce", name, "--scale", options.scale]
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name == "scale" or value == field.default:
            continue
        words.append(f"--{field.name.replace('_', '-')}")
        if value is not True:
            words += [str(item) for item in (value if isinstance(value, tuple) else (value,))]
    for option, values in given.items():
        words += [f"--{option}", *(str(value) for value in values)] if values else []
    return shlex.join(words)
