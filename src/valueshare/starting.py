"""Starting and resuming the run of a plan: checks, the folder or URL, and the launcher."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from valueshare.envs import announce_imports
from valueshare.errors import OTHER_OUT, InvalidInput
from valueshare.population.devices import checked_device
from valueshare.population.memory import DoesNotFit
from valueshare.resources import PreparedPlan, cluster_for, prepare_plan
from valueshare.runs import run_folder
from valueshare.runs.callbacks import KEY as CALLBACKS
from valueshare.runs.callbacks import resolve_callbacks, resumed_callbacks
from valueshare.runs.directory import refuse_read_only
from valueshare.runs.display import NOTE, print_lines
from valueshare.runs.launcher_options import LauncherOptions, shard_folder
from valueshare.runs.launchers import ExecutionOptions
from valueshare.runs.locks import lock_run, refuse_if_trained
from valueshare.runs.logs import TensorBoardLog, require_tensorboard, require_wandb
from valueshare.runs.plan import AUTO, Plan, extend_plan, to_config
from valueshare.runs.plan_text import plan_listing, plan_summary, schedule_notes
from valueshare.runs.policies import check_network_factory
from valueshare.runs.provenance import stored_provenance
from valueshare.runs.run import Run
from valueshare.runs.run_plan import run_plan
from valueshare.runs.storage.copies import open_storage, refuse_new_run, refuse_other_files
from valueshare.runs.storage.leases import leased, remove_abandoned
from valueshare.runs.storage.locations import Location
from valueshare.runs.storage.remote import PROVENANCE, RunStorage, is_metadata
from valueshare.runs.unfinished import refuse_unfinished
from valueshare.schema import CONFIG


def shard_location(folder: Location, launcher: LauncherOptions) -> Location:
    """The folder itself, or a shard's folder in it; refused if it contains shards of a different split."""
    shard = launcher.selected_shard
    location = shard_folder(folder, shard)
    if shard is not None and isinstance(location, Path):
        for other in sorted(location.parent.glob("shard-*-of-*")):
            if not other.name.endswith(f"-of-{shard.of}"):
                raise InvalidInput(
                    f"`shard = {shard}`: {location.parent} contains shards of a different split ({other.name}): "
                    f"use the same number of shards, or {OTHER_OUT}"
                )
    return location


def start(
    plan: Plan,
    location: Location,
    command: str,
    execution: ExecutionOptions,
    deviations: Sequence[str] = (),
    about: Sequence[str] = (),
) -> Run:
    """Start the run of a plan in a new folder or at a URL, after all checks.

    A folder that holds it already, without a finished phase, is resumed, unless populations are to
    be split differently. `deviations` from what is published are stored with the run. Lines `about` the settings are
    printed.
    """
    check_device(plan, execution.launcher)
    execution = replace(execution, callbacks=resolve_callbacks(execution.callbacks or ()))
    if _can_resume(plan, location, execution):
        return resume_run(location, execution, command)
    with _open_storage(location, execution) as storage:
        refuse_other_files(storage)
        run_folder.refuse_existing_run(storage.folder, plan, copied=storage.is_remote)
        execution.poll_stop()
        with (
            _choose_resources(plan, storage, execution, resuming=False, about=about) as prepared,
            run_folder.create_run_folder(
                storage.folder, prepared.plan, command, _stored_options(prepared, execution), deviations
            ),
        ):
            return _run_prepared(prepared, storage, execution, lambda: refuse_new_run(storage))


def check_plan(plan: Plan, location: Location, execution: ExecutionOptions) -> None:
    """Refuse the folder of a plan that is not started, as `start` would; URLs are not read."""
    if isinstance(location, Path) and not _can_resume(plan, location, execution):
        run_folder.refuse_existing_run(location, plan)


def _can_resume(plan: Plan, location: Location, execution: ExecutionOptions) -> bool:
    """Whether to start a plan is to resume it: its folder is there, without a finished phase."""
    splits = execution.launcher.population_agents
    return not splits and isinstance(location, Path) and run_folder.is_untrained(location, plan)


def plan_lines(plan: Plan, execution: ExecutionOptions, about: Sequence[str] = ()) -> Iterator[str]:
    """Every setting of a plan, the memory it needs, and how long it will take if that is known.

    Callbacks and logs that cannot be used are refused; a plan that does not fit is refused after its lines. Nothing is
    written.
    """
    execution = replace(execution, callbacks=resolve_callbacks(execution.callbacks or ()))
    _check_logs(execution)
    with cluster_for(execution.launcher) as cluster:
        prepared = prepare_plan(plan, execution, cluster, try_compile=False)
        lines = [*plan_listing(prepared.plan, prepared.resources.workers.value), "", *about, *prepared.lines]
        try:
            checked = prepared.check()
        except DoesNotFit:
            yield from lines
            raise
        estimate = prepared.launcher.estimate(prepared.plan, None, measure=True)
    yield from (*lines, f"memory: {checked.memory}", *(f"{NOTE}{note}" for note in checked.notes))
    if estimate is not None:
        yield estimate


def _check_logs(execution: ExecutionOptions) -> None:
    """Refuse logs whose libraries are not installed."""
    for target in execution.log:
        (require_tensorboard if target == "tensorboard" else require_wandb)()


def check_device(plan: Plan, launcher: LauncherOptions) -> None:
    """Refuse a device that is not here; the nodes of a cluster may have it."""
    if launcher.launcher == "local" and plan.device != AUTO:
        checked_device(plan.device)


def resume_run(location: Location, execution: ExecutionOptions, command: str = "valueshare resume") -> Run:
    """Resume a run from its last checkpoint; one that is finished is only opened."""
    with _stored_run(location, execution) as (plan, storage):
        if run_folder.is_finished(storage.folder, plan, copied=storage.is_remote):
            print_lines(execution.console, f"this run is finished: {location}")
            return _open_finished(plan, storage, execution)
        run_folder.read_records(storage.folder, skip_damaged=True)  # refuses what training would not make again
        if not storage.is_remote and not any(storage.folder.glob("checkpoints/*/checkpoint-*.json")):
            print_lines(execution.console, f"no checkpoint in {location}: training starts from the first step")

        def begin(plan: Plan, used: run_folder.UsedOptions) -> None:
            run_folder.sync_progress(storage.folder, plan)
            run_folder.record_resume(storage.folder, command, used)

        return _continue(plan, storage, execution, begin)


def extend_run(location: Location, execution: ExecutionOptions, steps: int) -> Run:
    """Continue training a finished run to `steps` steps in total."""
    with _stored_run(location, execution) as (stored, storage):
        if not storage.is_remote:  # at a URL, its lease is seen when this one begins
            refuse_if_trained(storage.folder)
        if not run_folder.is_finished(storage.folder, stored, copied=storage.is_remote):
            refuse_unfinished(storage.folder, stored, location, copied=storage.is_remote)

        def begin(plan: Plan, used: run_folder.UsedOptions) -> None:
            if to_config(run_folder.open_plan(storage.folder)) != to_config(stored):
                raise InvalidInput(f"another command has extended the run in {location} meanwhile: run this one again")
            run_folder.write_extension(storage.folder, plan, f"valueshare extend --steps {steps}", used)
            storage.push(lambda name: name == CONFIG)  # before everything else, as in a folder

        plan = extend_plan(stored, steps)
        print_lines(execution.console, *schedule_notes(plan))
        return _continue(plan, storage, execution, begin)


@contextmanager
def _stored_run(location: Location, execution: ExecutionOptions) -> Iterator[tuple[Plan, RunStorage]]:
    """The plan of a run, and the folder or copy in which it continues."""
    run_folder.check_links(location)
    with _open_storage(location, execution) as storage:
        storage.pull(is_metadata)
        plan = run_folder.open_plan(storage.folder)
        check_network_factory(storage.folder, plan, execution.network)
        yield plan, storage


def _continue(
    plan: Plan, storage: RunStorage, execution: ExecutionOptions, begin: Callable[[Plan, run_folder.UsedOptions], None]
) -> Run:
    """Train a stored run to the end of the plan; `begin` records it in the folder, whose lock is held then."""
    folder = storage.folder
    if not storage.is_remote:
        refuse_read_only(folder)
    announce_imports(plan.backends)
    execution = replace(execution, callbacks=resumed_callbacks(execution.callbacks, folder / PROVENANCE))
    try:
        check_device(plan, execution.launcher)
    except InvalidInput as error:
        raise InvalidInput(
            f"the run in {folder} is on {plan.device}, and there is no such device here: "
            "resume it on a machine that has one"
        ) from error
    if _writes_events(folder, execution):
        execution = replace(execution, log=(*execution.log, "tensorboard"))
    execution.poll_stop()
    with lock_run(folder), _choose_resources(plan, storage, execution, resuming=True) as prepared:

        def begin_locked() -> None:
            storage.pull(is_metadata)  # another process may have resumed it meanwhile
            if not storage.is_remote:
                run_folder.remove_leftovers(folder, plan)
            begin(prepared.plan, _stored_options(prepared, execution))

        return _run_prepared(prepared, storage, execution, begin_locked)


def _stored_options(prepared: PreparedPlan, execution: ExecutionOptions) -> run_folder.UsedOptions:
    """The options that are stored with the run; cluster workers are not stored."""
    cluster = {} if execution.launcher.launcher == "local" else {"launcher": execution.launcher.launcher}
    callbacks = [callback.name for callback in execution.resolved_callbacks if callback.is_stored]
    kept = {"tensorboard": "tensorboard" in execution.log, CALLBACKS: callbacks}
    return run_folder.UsedOptions({**prepared.resources.to_json(), **cluster}, {k: v for k, v in kept.items() if v})


def _open_storage(location: Location, execution: ExecutionOptions) -> AbstractContextManager[RunStorage]:
    """The storage to which a run is written."""
    if not isinstance(location, Path):
        run_folder.check_links(location)
        execution.poll_stop()
    return open_storage(location, keep=True)


def _open_finished(plan: Plan, storage: RunStorage, execution: ExecutionOptions) -> Run:
    """A run that was finished before; leftovers go, and lost TensorBoard events are written."""
    records = run_folder.read_records(storage.folder)
    if storage.is_remote:  # its driver may have been killed after the last manifest was sent
        remove_abandoned(storage.store, lambda line: print_lines(execution.console, line))
    else:
        # A process that holds the lock removes them too; a read-only folder stays as it is.
        with suppress(OSError, InvalidInput), lock_run(storage.folder):
            run_folder.remove_leftovers(storage.folder, plan)
        if _writes_events(storage.folder, execution):
            refuse_read_only(storage.folder)
            execution.poll_stop()
            TensorBoardLog(storage.folder, plan.agents, records).close()
    return Run(storage.location, plan.agents, records, finished=True)


@contextmanager
def _choose_resources(
    plan: Plan, storage: RunStorage, execution: ExecutionOptions, *, resuming: bool, about: Sequence[str] = ()
) -> Iterator[PreparedPlan]:
    """The plan with its resources chosen, on a cluster if one is named; what will run is printed, or refused.

    Lines `about` the settings are printed too.
    """
    _check_logs(execution)
    with cluster_for(execution.launcher) as cluster:
        workers = run_folder.stored_workers(storage.folder) if resuming else 0
        groups = run_folder.stored_groups(storage.folder, plan) if resuming else {}
        prepared = prepare_plan(
            plan,
            execution,
            cluster,
            storage.location,
            resuming=resuming,
            stored_workers=workers,
            stored_groups=groups,
        )
        plan, launcher, checked = prepared.plan, prepared.launcher, prepared.check()
        warning = launcher.check_location(storage.location)
        notes = [f"{NOTE}{note}" for note in (warning, *checked.notes) if note is not None]
        about_plan = plan_summary(plan, prepared.resources.workers.value)
        lines = [*about_plan, *about, *prepared.lines, f"memory: {checked.memory}"]
        print_lines(execution.console, *lines, f"run folder: {storage.location}", *notes)
        estimate = launcher.estimate(plan, storage.folder if resuming else None, measure=False)
        if estimate is not None:
            print_lines(execution.console, estimate)
        yield prepared


def _run_prepared(
    prepared: PreparedPlan, storage: RunStorage, execution: ExecutionOptions, begin: Callable[[], None]
) -> Run:
    """Run the plan; at a URL, with its lease held and all new files sent there.

    `begin` is called once the folder's lock and the lease are held.
    """
    if storage.url is None:
        begin()
        return run_plan(prepared.plan, storage.folder, execution, prepared.launcher)
    with leased(storage.store, lambda line: print_lines(execution.console, line)) as lease:
        storage.store.delete_partial_files()
        begin()
        storage.push()
        poll_stop = execution.poll_stop
        execution = replace(execution, url=storage.url, should_stop=lambda: lease.lost or poll_stop())
        run = run_plan(prepared.plan, storage.folder, execution, prepared.launcher)
        if lease.lost:
            raise InvalidInput(
                f"{storage.url} may be trained by another process, as this one did not renew its lease in time: "
                "resume once no other process does"
            )
        storage.push(lambda name: name.startswith("tensorboard/"))
        return run


def _writes_events(folder: Path, execution: ExecutionOptions) -> bool:
    """Whether TensorBoard events are written: asked for now, or the run has some and TensorBoard is installed here."""
    if "tensorboard" in execution.log:
        return True
    if not stored_provenance(folder / PROVENANCE).get("tensorboard"):
        return False
    try:
        require_tensorboard()
    except InvalidInput:
        print_lines(
            execution.console,
            "note: TensorBoard is not installed here, so no events are written: valueshare resume"
            " where it is installed writes all of them",
        )
        return False
    return True
