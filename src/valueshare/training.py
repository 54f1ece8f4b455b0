"""Train a whole table of agents: `train` begins a run, `resume` resumes one.

>>> run = valueshare.train("CartPole-v1", "ib-dqn", k=[0, 4], seeds=8, steps=20_000)
>>> run.records.join(run.agents, on="agent").group_by("k", "step").agg(pl.col("score").mean())
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Unpack

from rich.console import Console

from valueshare.envs import announced_imports
from valueshare.envs.base import Backend
from valueshare.errors import InvalidInput
from valueshare.experiments.plans import default_folder, described, in_full, make_plan
from valueshare.population.state import NetworkFactory
from valueshare.runs import run_folder
from valueshare.runs.checks import (
    check_compiles,
    check_device,
    check_device_of,
    check_engine,
    check_network,
)
from valueshare.runs.engines import EngineOptions, shard_folder
from valueshare.runs.events import Events, require_tensorboard
from valueshare.runs.execution import Engine, Execution
from valueshare.runs.groups import group_scores, label, shown_score
from valueshare.runs.launch import launch, say
from valueshare.runs.memory import DoesNotFit
from valueshare.runs.options import Settings
from valueshare.runs.plan import Plan
from valueshare.runs.run_folder import Run
from valueshare.runs.shards import shard_plan
from valueshare.runs.storage.copies import check_free, check_unfilled, working_copy
from valueshare.runs.storage.leases import leased
from valueshare.runs.storage.places import Place, located
from valueshare.runs.storage.remote import Copy, is_small
from valueshare.runs.workers.here import Local
from valueshare.runs.workers.processes import Processes
from valueshare.text import how_many

LOCAL = EngineOptions()


def train(
    env: str | Sequence[str],
    algorithm: str | Sequence[str] = "ib-dqn",
    *,
    k: float | Sequence[float] = 0.0,
    seeds: int | Iterable[int] = 8,
    first_seed: int = 0,
    out: str | Path | None = None,
    network: NetworkFactory | None = None,
    device: str = "cpu",
    compile: bool = False,  # noqa: A002 (the name of the option)
    backend: Backend | None = None,
    threads: int | None = None,
    tensorboard: bool = False,
    progress: bool = True,
    should_stop: Callable[[], bool] | None = None,
    groups: int | None = None,
    engine: EngineOptions = LOCAL,
    **settings: Unpack[Settings],
) -> Run:
    """Train every combination of the given values, and leave a run folder (`out`).

    `settings` are any of `valueshare.runs.options.Settings` (`steps`, `eval_interval`, `step_size`,
    ...); those left out are the preset's of the environment. `seeds` is how many, from `first_seed`
    on, or which. `network` makes one agent's module from (NetworkShape, k), instead of the
    algorithm's own. `should_stop` is asked at every step, with several workers ten times a second;
    a run that it ends is not `finished`, and `resume` resumes it. `threads` are those of the
    environments, and `groups` of agents go at their own pace (None: as many as suit). `engine` says
    where populations run, and which.
    """
    plan = make_plan(
        env,
        algorithm,
        k=k,
        seeds=seeds,
        first_seed=first_seed,
        network=network,
        device=device,
        compiled=compile,
        backend=backend,
        **settings,
    )
    plan, folder = placed(plan, default_folder(plan) if out is None else out, engine)
    return start(
        plan,
        folder,
        "valueshare.train(...) from Python; config.json has the settings",
        Execution(network, threads, tensorboard, progress, should_stop, groups, engine),
    )


def placed(plan: Plan, folder: str | Place, engine: EngineOptions) -> tuple[Plan, Place]:
    """The plan to run and where: all of it in the folder, or a shard in one within it."""
    check_engine(engine)
    shard = engine.own_shard
    place = shard_folder(located(folder), shard)
    if shard is not None and isinstance(place, Path):
        for other in sorted(place.parent.glob("shard-*-of-*")):
            if not other.name.endswith(f"-of-{shard.of}"):
                raise InvalidInput(
                    f"shard = {shard}: {place.parent} holds {other.name}, of another number of "
                    "shards; write that number, or choose another --out"
                )
    return shard_plan(plan, shard), place


def start(
    plan: Plan, folder: Place, command: str, how: Execution, deviations: Sequence[str] = ()
) -> Run:
    """Begin the run of a plan in a new folder or at an address, once all is checked that can be.

    In a folder that holds it already, with no phase finished, it resumes, unless it is to be cut in
    another way. `deviations` from the paper are noted with it.
    """
    check_device(plan, how.engine)
    place = located(folder)
    as_it_was_cut = not how.engine.population_agents
    if as_it_was_cut and isinstance(place, Path) and run_folder.is_untrained(place, plan):
        return _resumed(place, how, command)
    console = Console(quiet=not how.progress)
    with _copied(place, how) as (own, copy):
        if copy is not None:
            check_free(copy)
        run_folder.check_absent(own, plan, copied=copy is not None)
        check_compiles(plan, how.engine)
        _ask_from_now_on(how)
        with running(how.engine) as engine:
            plan = engine.fitted(plan)
            _announce(console, plan, place, how, engine)
            _expect(console, plan, None, engine)
            with run_folder.created(
                own, plan, command, tensorboard=how.tensorboard, deviations=deviations
            ):
                return _launched(
                    plan, own, copy, how, console, engine, lambda: check_unfilled(copy)
                )


def planned(plan: Plan, how: Execution) -> Iterator[str]:
    """Everything a plan will run, the memory it needs, and how long it will take if that is known.

    What does not fit is refused once its plan is told. Nothing is written.
    """
    with running(how.engine) as engine:
        plan = engine.fitted(plan)
        try:
            memory = engine.check(plan, how)
        except DoesNotFit:
            yield from in_full(plan)
            raise
        expected = engine.expect(plan, None, measure=True)
    yield from (*in_full(plan), f"memory: {memory}")
    if expected is not None:
        yield expected


def running(options: EngineOptions) -> AbstractContextManager[Engine]:
    """The engine that the options name; a cluster is left when the context ends."""
    if options.engine == "local":
        return nullcontext(Local(options) if options.workers == 1 else Processes(options))
    from valueshare.runs.workers.ray import connected

    return connected(options)


def resume(
    folder: str | Place,
    *,
    network: NetworkFactory | None = None,
    threads: int | None = None,
    tensorboard: bool = False,
    progress: bool = True,
    should_stop: Callable[[], bool] | None = None,
    groups: int | None = None,
    engine: EngineOptions = LOCAL,
) -> Run:
    """Go on with a run from its last finished phase; it ends as if it had never stopped.

    Settings are the run's own, and so are TensorBoard events. A run with a network of its caller's
    own needs it here again.
    """
    check_engine(engine)
    place = shard_folder(located(folder), engine.own_shard)
    how = Execution(network, threads, tensorboard, progress, should_stop, groups, engine)
    return _resumed(place, how)


def _resumed(place: Place, how: Execution, command: str = "valueshare resume") -> Run:
    console = Console(quiet=not how.progress)
    run_folder.check_links(place)
    with _copied(place, how) as (own, copy):
        if copy is not None:
            copy.pull(is_small)
        plan = run_folder.open_plan(own)
        check_network(own, plan, how.network)
        done = run_folder.is_finished if copy is None else run_folder.is_committed
        if done(own, plan):
            say(console, f"this run is finished: {place}")
            if copy is None:
                # Who holds it already deletes them too; a folder that cannot be held stays.
                with suppress(OSError, InvalidInput), run_folder.held(own):
                    run_folder.remove_old_checkpoints(own, plan)
            records = run_folder.read_records(own)
            if copy is None and (how.tensorboard or _events_resume(own, console)):
                _ask_from_now_on(how)
                Events(own, plan.agents, records).close()  # all of them, whatever was lost
            return Run(place, plan.agents, records, finished=True)
        say(console, *announced_imports(plan.backends))
        check_device_of(own, plan, how.engine)
        check_compiles(plan, how.engine)
        how = how._replace(tensorboard=how.tensorboard or _events_resume(own, console))
        _ask_from_now_on(how)
        with running(how.engine) as runs, run_folder.held(own):
            _announce(console, plan, place, how, runs)
            _expect(console, plan, own, runs)

            def note() -> None:
                if copy is None:
                    run_folder.remove_old_checkpoints(own, plan)
                else:
                    copy.pull(is_small)  # who held it before may have resumed it
                run_folder.note_resumption(own, command, plan.device, how.tensorboard)

            # Once it is held: what is noted is what this process then does.
            return _launched(plan, own, copy, how, console, runs, note)


@contextmanager
def _copied(place: Place, how: Execution) -> Iterator[tuple[Path, Copy | None]]:
    """The folder that is worked in, and the copy that it is of a run at an address."""
    if isinstance(place, Path):
        yield place, None
        return
    run_folder.check_links(place)
    _ask_from_now_on(how)
    with working_copy(place, keep=True) as copy:
        yield copy.folder, copy


def _launched(
    plan: Plan,
    folder: Path,
    copy: Copy | None,
    how: Execution,
    console: Console,
    engine: Engine,
    begin: Callable[[], None],
) -> Run:
    """Run the plan; at an address, with its lease held and everything new sent there.

    `begin` is called once it is held.
    """
    if copy is None:
        begin()
        return launch(plan, folder, how, console, engine)
    if copy.url.scheme == "memory" and how.engine.workers > 1:
        raise InvalidInput("memory:// is of one process alone: leave out workers")
    with leased(copy.store, lambda line: say(console, line)) as lease:
        begin()
        copy.push()
        asked = how.should_stop or (lambda: False)
        how = how._replace(url=copy.url, should_stop=lambda: lease.lost or asked())
        run = launch(plan, folder, how, console, engine)
        if lease.lost:
            raise InvalidInput(
                f"{copy.url} was taken by another process while this one was not heard of: let it "
                "end, then resume"
            )
        copy.push(lambda name: name.startswith("tensorboard/"))
        return run._replace(folder=copy.url)


def summary(run: Run) -> list[str]:
    """How a run ended: the last score of each group, and how many agents diverged."""
    groups = group_scores(run.agents, run.records)
    lines = [
        f"{row['env']} {label(row)}: score {shown_score(row['score'])} at step {row['step']:,}, "
        f"{how_many(row['agents'], 'agent')}"
        for row in groups.to_dicts()
    ]
    diverged = groups["diverged"].sum()
    if diverged:
        lines.append(f"{diverged:,} of {run.agents.height:,} agents diverged and were frozen")
    else:
        lines.append("no agent diverged")
    return [*lines, f"records: {run.folder / 'records'}"]


def _announce(console: Console, plan: Plan, folder: Place, how: Execution, engine: Engine) -> None:
    """Refuse what cannot be run; say what will be."""
    if how.tensorboard:
        require_tensorboard()
    memory = engine.check(plan, how)
    note = engine.check_folder(folder)
    say(console, *described(plan), f"memory: {memory}", f"run folder: {folder}")
    if note is not None:
        say(console, f"note: {note}")


def _expect(console: Console, plan: Plan, folder: Path | None, engine: Engine) -> None:
    if (line := engine.expect(plan, folder, measure=False)) is not None:
        say(console, line)


def _ask_from_now_on(how: Execution) -> None:
    """Before something is written or begun: who can end this process leaves its end to us now."""
    if how.should_stop is not None:
        how.should_stop()


def _events_resume(folder: Path, console: Console) -> bool:
    """Whether a run has events; where nothing can write them they wait, and nothing is lost."""
    if not run_folder.has_events(folder):
        return False
    try:
        require_tensorboard()
    except InvalidInput:
        say(
            console,
            "note: TensorBoard is not installed here, so the run's events wait: `valueshare resume`"
            " where it is installed makes up for them",
        )
        return False
    return True
