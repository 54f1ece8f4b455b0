"""The Atari studies: scores on 57 games, sensitivity to k, RMSprop, and RDQ's beta."""

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tyro.conf import OmitArgPrefixes

from valueshare.commands.arguments import EngineArguments, Flag, OutFolder, lasting, writable
from valueshare.commands.training import FAILED, holds_run, to_the_end, training_library
from valueshare.errors import InvalidInput
from valueshare.experiments.atari_options import AtariOptions
from valueshare.runs.engines import EngineOptions, shard_folder
from valueshare.runs.options import NameList, Number, NumberList
from valueshare.runs.signals import stop_on_signals
from valueshare.runs.storage.places import Place
from valueshare.wording import how_many

if TYPE_CHECKING:
    from valueshare.experiments.atari import AtariStudy
    from valueshare.runs.execution import Engine, Execution
    from valueshare.runs.plan import Plan
    from valueshare.runs.run_folder import Run


@dataclass(frozen=True)
class Running:
    """How a study is run here; nothing of it changes an agent's random numbers."""

    out: OutFolder = None
    """Folder of runs and report; left out: results/STUDY-SCALE."""
    plan: Flag = False
    """Print agents, populations, memory and hours, and run nothing."""
    rate: Number = None
    """Agent-steps a second that the plan's hours are counted with; left out: measured for a few
    seconds, and the steps of evaluation are counted at the same rate. On Ray speeds are always
    measured."""
    threads: int = 0
    """Of the emulators, shared among the groups; 0 is one a core."""
    groups: int = 0
    """Of agents, each at its own pace; 0 is four beside a GPU that has the replay, else one."""


def reproduce_atari57(
    study: OmitArgPrefixes[AtariOptions],
    running: OmitArgPrefixes[Running],
    engine: EngineArguments,
    algorithms: NameList = (),
    k: NumberList = (),
) -> None:
    """The paper's main result: algorithms with the layer and without, on Atari games.

    A study that was stopped goes on when the same command is given again.

    Args:
        study: What is run.
        running: How it is run.
        engine: Where it runs.
        algorithms: Left out: dqn, ib-dqn, at the paper's scale dueling-dqn, rdq, iqn, ib-iqn too.
        k: Of the ib- ones; left out: the number of actions, for ib-dqn at the paper's scale 1 too.
    """
    _reproduce("atari57", study, running, engine, algorithms=algorithms, k=k)


def reproduce_atari_sensitivity(
    study: OmitArgPrefixes[AtariOptions],
    running: OmitArgPrefixes[Running],
    engine: EngineArguments,
    k: NumberList = (),
) -> None:
    """IB-DQN against k on NameThisGame, DemonAttack and StarGunner.

    Args:
        study: What is run.
        running: How it is run.
        engine: Where it runs.
        k: Left out: 0, 1, 32, 64, ..., 1024, and fewer at the smaller scales.
    """
    _reproduce("atari-sensitivity", study, running, engine, k=k)


def reproduce_atari_rmsprop(
    study: OmitArgPrefixes[AtariOptions], running: OmitArgPrefixes[Running], engine: EngineArguments
) -> None:
    """DQN and IB-DQN(n) with centred RMSprop and the Huber loss, on 55 games.

    Args:
        study: What is run.
        running: How it is run.
        engine: Where it runs.
    """
    _reproduce("atari-rmsprop", study, running, engine)


def reproduce_atari_rdq_beta(
    study: OmitArgPrefixes[AtariOptions],
    running: OmitArgPrefixes[Running],
    engine: EngineArguments,
    beta: NumberList = (),
) -> None:
    """RDQ with several weights of its penalty, on the validation games of Atari-5.

    Args:
        study: What is run.
        running: How it is run.
        engine: Where it runs.
        beta: Left out: 0.00001, 0.0001, ..., 0.1, around the paper's 0.001.
    """
    _reproduce("atari-rdq-beta", study, running, engine, beta=beta)


class _Piece(NamedTuple):
    """One run of a study, or what a shard has of it."""

    name: str
    plan: "Plan"
    folder: Place
    begun: bool  # a run of this very plan is in the folder


def _reproduce(
    name: str,
    options: AtariOptions,
    running: Running,
    engine: EngineOptions,
    **given: Sequence[str] | Sequence[float],
) -> None:
    training = training_library("atari")
    from valueshare.experiments.atari import atari_study
    from valueshare.report.elsewhere import report_places
    from valueshare.runs.execution import Execution
    from valueshare.runs.storage.copies import filled

    if running.rate is not None and not 0 < running.rate < math.inf:
        raise InvalidInput(f"rate = {running.rate:g}: write agent-steps a second, or leave it out")
    if running.rate is not None and engine.engine == "ray":
        raise InvalidInput("--rate is of one machine: leave it out, on Ray speeds are measured")
    if running.groups < 0:
        raise InvalidInput(f"groups = {running.groups}: write at least 1, or leave it out")
    study = atari_study(name, options, **given)  # type: ignore[arg-type]
    out = f"results/{name}-{options.scale}" if running.out is None else running.out
    whole = lasting(out) if running.plan else writable(out)
    pieces = _pieces(study, whole, engine, look=not running.plan)
    with stop_on_signals() as stop:
        how = Execution(
            threads=running.threads or None,
            should_stop=stop,
            groups=running.groups or None,
            engine=engine,
        )
        with training.running(engine) as runs:
            _print_plan(study, pieces, options, running, how, runs)
        if running.plan:
            return
        command = _command(name, options, given, engine)
        well = True
        for piece in pieces:

            def work(piece: _Piece = piece) -> "Run":
                done: Run
                if piece.begun:
                    done = training.resume(
                        whole / piece.name,
                        threads=how.threads,
                        should_stop=stop,
                        groups=how.groups,
                        engine=engine,
                    )
                else:
                    done = training.start(piece.plan, piece.folder, command, how)
                return done

            well &= to_the_end(work, piece.folder, stop, others_follow=True)
    if not well:
        sys.exit(FAILED)
    if engine.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with filled(whole / "report") as own:
        folders = [piece.folder for piece in pieces]
        written = report_places(folders, own, deviations=study.deviations)
    print(f"report: {whole / 'report'}, figures {', '.join(written.figures)}")
    for note in written.notes:
        print(f"note: {note}")


def _pieces(
    study: "AtariStudy", whole: Place, engine: EngineOptions, *, look: bool
) -> list[_Piece]:
    """What is run: every run of the study, or what the shard has of each.

    Where somebody will `look`, a folder that cannot be its place is refused.
    """
    from valueshare.runs.run_folder import check_absent
    from valueshare.runs.shards import shard_plans

    pieces = []
    plans = shard_plans([run.plan for run in study.runs], engine.own_shard)
    for run, plan in zip(study.runs, plans, strict=True):
        if plan is not None:
            folder = shard_folder(whole / run.name, engine.own_shard)
            begun = look and holds_run(folder, plan, engine)
            if look and not begun and isinstance(folder, Path):
                check_absent(folder, plan)
            pieces.append(_Piece(run.name, plan, folder, begun))
    return pieces


def _print_plan(
    study: "AtariStudy",
    pieces: Sequence[_Piece],
    options: AtariOptions,
    running: Running,
    how: "Execution",
    runs: "Engine",
) -> None:
    """What will be run: agents, populations, memory and hours; what cannot be is refused.

    Where the plan is all that is wanted, what does not fit is refused after it. The hours of a
    study that goes on are not counted: part of it is done.
    """
    from valueshare.envs import atari_protocol
    from valueshare.experiments.atari import evaluation_steps
    from valueshare.runs.plan import parts

    plans = [runs.fitted(piece.plan) for piece in pieces]
    needs, refusal = _memory(plans, how, runs, at_once=not running.plan)
    goes_on = any(piece.begun for piece in pieces)
    seconds = 0.0
    for piece, plan, memory in zip(pieces, plans, needs, strict=True):
        populations = parts(plan)
        sizes = [part.agents.height for part in populations]
        settings = populations[0].settings
        own, count = how_many(sum(sizes), "agent"), how_many(len(sizes), "population")
        steps = how_many(settings.total_steps, "step")
        print(
            f"{piece.name}: {own} in {count} of at most {max(sizes)}, {steps} each and "
            f"{evaluation_steps(settings):,} of evaluation"
        )
        print(f"  memory: {memory}")
        if goes_on or (refusal and not running.rate):  # what does not fit cannot be measured
            continue
        if how.engine.engine == "ray":  # each run says so itself when it begins
            if running.plan and (line := runs.expect(plan, None, measure=True)) is not None:
                print(f"  {line}")
            continue
        rate = running.rate or _measured(plan, running)
        each = settings.total_steps + evaluation_steps(settings)
        seconds += sum(sizes) * each / rate
        words = "given" if running.rate else "measured in this process"
        print(f"  {_duration(sum(sizes) * each / rate)} at {rate:,.0f} agent-steps/s, {words}")
    agents = how_many(sum(plan.agents.height for plan in plans), "agent")
    in_all = f", {_duration(seconds)}" if seconds else ""
    share = f" of shard {how.engine.shard}" if how.engine.shard else ""
    print(f"{study.name}: {agents} in all{share}{in_all}, on {options.device}")
    print(*atari_protocol(options.atari_protocol).described(), sep="\n")
    in_full = running.plan or bool(how.engine.shard)  # a shard has no report
    print(*_departures(study, options, in_full=in_full), sep="\n", flush=True)
    if refusal:
        raise refusal


def _departures(study: "AtariStudy", options: AtariOptions, *, in_full: bool) -> list[str]:
    """Where a study departs from the paper; of a smaller scale, that it does and who lists it."""
    if in_full or options.scale == "paper":
        return [f"not as in the paper: {sentence}" for sentence in study.deviations]
    count = how_many(len(study.deviations), "departure")
    who = "the report will list them, and --plan does"
    return [f"not as in the paper: scale {options.scale}, with {count}; {who}"]


def _measured(plan: "Plan", running: Running) -> float:
    """Agent-steps a second of the first population, here."""
    from valueshare.benchmarks.atari_loop import loop_rate
    from valueshare.runs.plan import parts

    return loop_rate(
        parts(plan)[0],
        plan.device,
        plan.compiled,
        threads=running.threads or None,
        groups=running.groups or None,
    )


def _memory(
    plans: "Sequence[Plan]", how: "Execution", runs: "Engine", *, at_once: bool
) -> tuple[list[str], InvalidInput | None]:
    """A line of memory for each plan, and the first refusal if one is not to be `at_once`."""
    from valueshare.runs.memory import DoesNotFit

    lines: list[str] = []
    refusal: InvalidInput | None = None
    for plan in plans:
        try:
            lines.append(runs.check(plan, how))
        except DoesNotFit as error:
            refusal = refusal or InvalidInput(f"{error}, or a smaller agents-at-once")
            if at_once:
                raise refusal from error
            lines.append("does not fit")
    return lines, refusal


def _duration(seconds: float) -> str:
    if seconds >= 3_600:
        return f"{seconds / 3_600:,.1f} hours"
    return f"{seconds / 60:,.1f} minutes"


def _command(
    name: str,
    options: AtariOptions,
    given: dict[str, Sequence[str] | Sequence[float]],
    engine: EngineOptions,
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
    words += ["--shard", engine.shard] if engine.shard else []
    return shlex.join(words)
