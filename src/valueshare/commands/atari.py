"""The Atari studies: scores on 57 games, sensitivity to k, RMSprop, and RDQ's beta."""

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import OmitArgPrefixes

from valueshare.commands.arguments import EngineArguments, lasting, writable
from valueshare.commands.atari_plan import Piece, Running, print_plan
from valueshare.commands.training import FAILED, holds_run, to_the_end, training_library
from valueshare.errors import InvalidInput
from valueshare.experiments.atari_options import AtariOptions
from valueshare.runs.engines import EngineOptions, shard_folder
from valueshare.runs.options import NameList, NumberList
from valueshare.runs.signals import stop_on_signals
from valueshare.runs.storage.places import Place

if TYPE_CHECKING:
    from valueshare.experiments.atari import AtariStudy
    from valueshare.runs.run_folder import Run


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


def _reproduce(
    name: str,
    options: AtariOptions,
    running: Running,
    engine: EngineOptions,
    **given: Sequence[str] | Sequence[float],
) -> None:
    training = training_library("atari")
    from valueshare.experiments.atari import atari_study
    from valueshare.report.write import write_report
    from valueshare.result_files import OWN_LIMIT
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
            print_plan(study, pieces, options, running, how, runs)
        if running.plan:
            return
        command = _command(name, options, given, engine)
        well = True
        for piece in pieces:

            def work(piece: Piece = piece) -> "Run":
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
                    done = training.start(
                        piece.plan, piece.folder, command, how, deviations=study.deviations
                    )
                return done

            well &= to_the_end(work, piece.folder, stop, in_study=True)
    if not well:
        sys.exit(FAILED)
    if engine.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with filled(whole / "report") as own:
        written = write_report([piece.folder for piece in pieces], own, max_result_size=OWN_LIMIT)
    print(f"report: {whole / 'report'}, figures {', '.join(written.figures)}")
    for note in written.notes:
        print(f"note: {note}")


def _pieces(study: "AtariStudy", whole: Place, engine: EngineOptions, *, look: bool) -> list[Piece]:
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
            pieces.append(Piece(run.name, plan, folder, begun))
    return pieces


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
