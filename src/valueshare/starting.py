"""Starting and resuming the run of a plan: checks, the folder or address, the launcher, and what is printed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from valueshare.envs import announced_imports
from valueshare.errors import InvalidInput
from valueshare.population.memory import DoesNotFit
from valueshare.population.train import checked_device
from valueshare.resources import Prepared, cluster_for, prepare
from valueshare.runs import run_folder
from valueshare.runs.display import say
from valueshare.runs.events import Events, require_tensorboard
from valueshare.runs.execution import ExecutionOptions
from valueshare.runs.launch import launch
from valueshare.runs.launcher_options import LauncherOptions, shard_folder
from valueshare.runs.locks import held
from valueshare.runs.plan import AUTO, Plan
from valueshare.runs.planning import described, in_full
from valueshare.runs.run import Run
from valueshare.runs.shards import shard_plan
from valueshare.runs.storage.copies import check_free, check_unfilled, working_copy
from valueshare.runs.storage.leases import leased
from valueshare.runs.storage.locations import Location, resolve_location
from valueshare.runs.storage.remote import Copy, is_small
from valueshare.runs.variants import label, shown_score, variant_scores
from valueshare.text import how_many


def select_shard(plan: Plan, folder: str | Location, launcher: LauncherOptions) -> tuple[Plan, Location]:
    """The plan to run and its location: the whole in the folder, or a shard in one within it."""
    check_launcher(launcher)
    shard = launcher.own_shard
    location = shard_folder(resolve_location(folder), shard)
    if shard is not None and isinstance(location, Path):
        for other in sorted(location.parent.glob("shard-*-of-*")):
            if not other.name.endswith(f"-of-{shard.of}"):
                raise InvalidInput(
                    f"shard = {shard}: {location.parent} holds {other.name}, of another number of "
                    "shards; write that number, or choose another --out"
                )
    return shard_plan(plan, shard), location


def start(
    plan: Plan, folder: str | Location, command: str, execution: ExecutionOptions, deviations: Sequence[str] = ()
) -> Run:
    """Start the run of a plan in a new folder or at an address, after all checks.

    A folder that holds it already, without a finished phase, is resumed, unless populations are to
    be split differently. `deviations` from the paper are stored with the run.
    """
    check_device(plan, execution.launcher)
    location = resolve_location(folder)
    splits = execution.launcher.population_agents
    if not splits and isinstance(location, Path) and run_folder.is_untrained(location, plan):
        return resume_run(location, execution, command)
    console = Console(quiet=not execution.progress)
    events = execution.tensorboard
    with _workspace(location, execution) as work:
        if work.copy is not None:
            check_free(work.copy)
        run_folder.check_absent(work.folder, plan, copied=work.copied)
        _poll_stop(execution)
        with cluster_for(execution.launcher) as cluster:
            made = prepare(plan, execution, cluster, location)
            _announce(console, made, work, execution, begun=False)
            own = made.resources.to_json()
            with run_folder.created(work.folder, made.plan, command, own, tensorboard=events, deviations=deviations):
                return _launch(made, work, execution, console, lambda: check_unfilled(work.copy))


def plan_lines(plan: Plan, execution: ExecutionOptions) -> Iterator[str]:
    """Every setting of a plan, the memory it needs, and how long it will take if that is known.

    A plan that does not fit is refused after its lines. Nothing is written.
    """
    with cluster_for(execution.launcher) as cluster:
        made = prepare(plan, execution, cluster, compiles=False)
        lines = [*in_full(made.plan), "", *made.lines]
        try:
            memory = made.launcher.check(made.plan, execution)
        except DoesNotFit:
            yield from lines
            raise
        estimate = made.launcher.estimate(made.plan, None, measure=True)
    yield from (*lines, f"memory: {memory}")
    if estimate is not None:
        yield estimate


def summary(run: Run) -> list[str]:
    """How a run ended: the last score of each variant, and how many agents diverged."""
    variants = variant_scores(run.agents, run.records)
    lines = [
        f"{row['env']} {label(row)}: score {shown_score(row['score'])} at step {row['step']:,}, "
        f"{how_many(row['agents'], 'agent')}"
        for row in variants.to_dicts()
    ]
    diverged = variants["diverged"].sum()
    if diverged:
        lines.append(f"{diverged:,} of {run.agents.height:,} agents diverged and were frozen")
    else:
        lines.append("no agent diverged")
    return [*lines, f"records: {run.folder / 'records'}"]


def check_device(plan: Plan, launcher: LauncherOptions) -> None:
    """Refuse a device that is not here; the nodes of a cluster may have it."""
    if launcher.launcher == "local" and plan.device != AUTO:
        checked_device(plan.device)


def resume_run(location: Location, execution: ExecutionOptions, command: str = "valueshare resume") -> Run:
    console = Console(quiet=not execution.progress)
    run_folder.check_links(location)
    with _workspace(location, execution) as work:
        folder, copy = work.folder, work.copy
        if copy is not None:
            copy.pull(is_small)
        plan = run_folder.open_plan(folder)
        _check_stored(folder, plan, execution)
        if run_folder.is_finished(folder, plan, copied=work.copied):
            say(console, f"this run is finished: {location}")
            return _finished(plan, work, execution, console)
        say(console, *announced_imports(plan.backends))
        try:
            check_device(plan, execution.launcher)
        except InvalidInput as error:
            raise InvalidInput(
                f"the run in {folder} is on {plan.device}, and there is no such device here: "
                "resume it on a machine that has one"
            ) from error
        events = execution.tensorboard or _has_events(folder, console)
        execution = execution._replace(tensorboard=events)
        _poll_stop(execution)
        with cluster_for(execution.launcher) as cluster, held(folder):
            made = prepare(plan, execution, cluster, location, begun=True)
            _announce(console, made, work, execution, begun=True)

            def begin() -> None:
                if copy is None:
                    run_folder.remove_old_checkpoints(folder, plan)
                else:
                    copy.pull(is_small)  # another process may have resumed it meanwhile
                run_folder.note_resumption(folder, command, made.resources.to_json(), events)

            return _launch(made, work, execution, console, begin)


class _Workspace(NamedTuple):
    """Where the files of a run are written."""

    location: Location
    folder: Path  # the location itself, or a local copy of it
    copy: Copy | None = None

    @property
    def copied(self) -> bool:
        return self.copy is not None


@contextmanager
def _workspace(location: Location, execution: ExecutionOptions) -> Iterator[_Workspace]:
    if isinstance(location, Path):
        yield _Workspace(location, location)
        return
    run_folder.check_links(location)
    _poll_stop(execution)
    with working_copy(location, keep=True) as copy:
        yield _Workspace(location, copy.folder, copy)


def _finished(plan: Plan, work: _Workspace, execution: ExecutionOptions, console: Console) -> Run:
    """A run that was finished before; leftovers go, and lost TensorBoard events are written."""
    records = run_folder.read_records(work.folder)
    if not work.copied:
        # A process that holds the lock removes them too; a read-only folder stays as it is.
        with suppress(OSError, InvalidInput), held(work.folder):
            run_folder.remove_old_checkpoints(work.folder, plan)
        if execution.tensorboard or _has_events(work.folder, console):
            _poll_stop(execution)
            Events(work.folder, plan.agents, records).close()
    return Run(work.location, plan.agents, records, finished=True)


def _launch(
    made: Prepared, work: _Workspace, execution: ExecutionOptions, console: Console, begin: Callable[[], None]
) -> Run:
    """Run the plan; at an address, with its lease held and all new files sent there.

    `begin` is called once the folder's lock and the lease are held.
    """
    copy = work.copy
    if copy is None:
        begin()
        return launch(made.plan, work.folder, execution, console, made.launcher)
    if copy.url.scheme == "memory" and execution.launcher.workers > 1:
        raise InvalidInput("memory:// is of one process alone: leave out workers")
    with leased(copy.store, lambda line: say(console, line)) as lease:
        begin()
        copy.push()
        stop = execution.should_stop or (lambda: False)
        execution = execution._replace(url=copy.url, should_stop=lambda: lease.lost or stop())
        run = launch(made.plan, work.folder, execution, console, made.launcher)
        if lease.lost:
            raise InvalidInput(
                f"{copy.url} was taken by another process, as this one did not renew its lease: let it end, then resume"
            )
        copy.push(lambda name: name.startswith("tensorboard/"))
        return replace(run, folder=copy.url)


def _announce(console: Console, made: Prepared, work: _Workspace, execution: ExecutionOptions, *, begun: bool) -> None:
    """Refuse a plan that cannot be run; print what will be, and how long it will take."""
    if execution.tensorboard:
        require_tensorboard()
    plan, launcher = made.plan, made.launcher
    memory = launcher.check(plan, execution)
    warning = launcher.check_location(work.location)
    say(console, *described(plan), *made.lines, f"memory: {memory}", f"run folder: {work.location}")
    if warning is not None:
        say(console, f"note: {warning}")
    estimate = launcher.estimate(plan, work.folder if begun else None, measure=False)
    if estimate is not None:
        say(console, estimate)


def check_launcher(launcher: LauncherOptions) -> None:
    if not isinstance(launcher, LauncherOptions):
        raise InvalidInput(
            f"launcher is given as {type(launcher).__name__}: write LauncherOptions(...) of "
            "valueshare.runs.launcher_options, like LauncherOptions(workers=2)"
        )


def _check_stored(folder: Path, plan: Plan, execution: ExecutionOptions) -> None:
    """Refuse a stored run without the network of its own that it needs, or with one too many."""
    if plan.network is not None and execution.network is None:
        raise InvalidInput(
            f"the run in {folder} has a network of its own, {plan.network}: resume it from Python, "
            "valueshare.resume(folder, network=...)"
        )
    if plan.network is None and execution.network is not None:
        raise InvalidInput(f"the run in {folder} has no network of its own: leave network out")


def _poll_stop(execution: ExecutionOptions) -> None:
    """Call `should_stop` before anything is written: from then on, signals are requests to stop."""
    if execution.should_stop is not None:
        if not callable(execution.should_stop):
            raise InvalidInput(f"should_stop = {execution.should_stop!r}: give a function without arguments")
        execution.should_stop()


def _has_events(folder: Path, console: Console) -> bool:
    """Whether a run has events that can be written here; otherwise they can be written later."""
    if not run_folder.has_events(folder):
        return False
    try:
        require_tensorboard()
    except InvalidInput:
        say(
            console,
            "note: TensorBoard is not installed here, so no events are written: `valueshare resume`"
            " where it is installed writes all of them",
        )
        return False
    return True
