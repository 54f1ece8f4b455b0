"""The folder of a training run, from before its first step.

    config.json              every setting, the format of this folder, the version that wrote it
    agents.parquet           the table: one row per agent
    provenance.json          command, version, commit, machine, libraries; again for each resumption
    records/*.parquet        one row per agent and evaluation
    checkpoints/NAME/        the state from which population NAME resumes
    progress/NAME.json       its step, and how long it has taken; for displays
    .lock                    held by the process that runs it
    tensorboard/             events, with --log tensorboard
    evaluations.parquet      episodes that were played after training, by `valueshare evaluate`

It appears complete, with everything but records, checkpoints and events; those are written by `population.checkpoints`,
each file atomically.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl
import torch

from valueshare.cores import available_cores
from valueshare.errors import OTHER_OUT, InvalidInput, without_marks
from valueshare.files import refuse_links, remove_temporary_files, write_json
from valueshare.population.agents import check_table
from valueshare.population.checkpoints.files import Damaged, read_manifest, verify_all
from valueshare.population.checkpoints.loading import finished_phase_count, newest_manifest
from valueshare.population.checkpoints.saving import remove_old
from valueshare.population.phase import records_schema
from valueshare.population.run_config import damage_named, damaged_agents, read_agents
from valueshare.population.spec import PopulationSpec
from valueshare.records import AGENTS, CHECKPOINTS, NAMES, RECORDS, CheckpointPaths, read_progress, read_tables
from valueshare.result_files import TRUSTED_LIMIT, SizeLimit
from valueshare.runs.directory import check_results_target, results_folder
from valueshare.runs.locks import EVALUATIONS_LOCK, LOCK, lock_run, refuse_if_trained
from valueshare.runs.plan import CHOSEN_AT_START, KIND, Plan, difference, extension, from_config, to_config
from valueshare.runs.progress import remove_partial_progress, reset_progress
from valueshare.runs.provenance import DEVIATIONS, provenance, stored_provenance
from valueshare.runs.storage.leases import LEASE
from valueshare.runs.storage.locations import Location
from valueshare.runs.storage.remote import PROVENANCE
from valueshare.schema import CONFIG, check_format, read_config
from valueshare.text import resume_command

# Everything that a run writes, at a URL too.
RUN_CONTENTS = (CONFIG, PROVENANCE, LOCK, LEASE, EVALUATIONS_LOCK, *NAMES)


class UsedOptions(NamedTuple):
    """The options of a run's execution, for its `provenance.json`."""

    resources: Mapping[str, Any]  # device, worker processes and whether it is compiled, as they were chosen
    kept: Mapping[str, Any] = MappingProxyType({})  # options that a resumption has too: events, names of callbacks


def refuse_existing_run(folder: Path, plan: Plan, *, copied: bool = False) -> None:
    """Refuse a folder that is not empty, and say what to do with the run in it; a copied one has no states.

    A run that is damaged is refused as by `resume`.
    """
    stored = read_config(folder, skip_damaged=True)
    if stored is None:
        if (folder / CONFIG).is_file() and (folder / AGENTS).is_file():
            open_plan(folder)
        check_results_target(folder, to_config(plan))  # absent, empty, or something else
        return
    if stored.get("kind") != KIND:
        raise InvalidInput(f"{folder} holds results of another kind: {OTHER_OUT}")
    stored_plan = open_plan(folder)
    wanted = to_config(plan)
    other = difference(stored, wanted, lambda: (stored_plan.agents, plan.agents))
    if other is not None:
        longer = extension(stored, wanted) if is_finished(folder, stored_plan, copied=copied) else None
        way = ""
        if longer is not None:
            steps, remark = longer
            way = f", or continue it{remark}: valueshare extend {shlex.quote(str(folder))} --steps {steps}"
        raise InvalidInput(f"{folder} holds a run with other settings ({other}): {OTHER_OUT}{way}")
    if not copied:
        refuse_if_trained(folder)
    if is_finished(folder, replace(plan, chunks=stored.get("chunks", {})), copied=copied):
        raise InvalidInput(f"{folder} holds this run, finished: to repeat it, {OTHER_OUT}")
    raise InvalidInput(f"{folder} holds this run, unfinished: write {resume_command(folder)}")


def is_untrained(folder: Path, plan: Plan) -> bool:
    """Whether a folder holds a run of this plan, however split, without a finished phase."""
    stored = read_config(folder, skip_damaged=True) or {}
    ignored = {name: stored[name] for name in ("chunks", "valueshare") if name in stored}
    left_open = {name: stored[name] for name in CHOSEN_AT_START if name in stored}
    if not stored or stored != left_open | to_config(plan) | ignored:
        return False
    return not any(folder.glob(f"{RECORDS}/*")) and not any(folder.glob(f"{CHECKPOINTS}/*/*"))


@contextmanager
def create_run_folder(
    folder: Path, plan: Plan, command: str, used: UsedOptions, deviations: Sequence[str] = ()
) -> Iterator[None]:
    """Make the folder of a new run, and hold its lock while the context lasts.

    It appears complete or not at all, and is locked before it appears: no other process can resume it before its first
    step. `provenance.json` has `deviations` from what is published for its report.
    """
    with ExitStack() as stack:
        try:
            with results_folder(folder, to_config(plan)) as staging:
                plan.agents.write_parquet(staging / AGENTS)
                (staging / RECORDS).mkdir()
                (staging / CHECKPOINTS).mkdir()
                about = {**_origin(command, used), **used.kept, "resumed": []}
                if deviations:
                    about[DEVIATIONS] = list(deviations)
                write_json(staging / PROVENANCE, about)
                stack.enter_context(lock_run(staging))  # the lock is the folder's, whatever its name
        except InvalidInput:
            refuse_existing_run(folder, plan)  # another process may have started the same run meanwhile
            raise
        yield


def check_links(folder: Location) -> None:
    """Refuse symbolic links among the files of a run: writes would follow them out of the folder.

    The folder itself may be a link. URLs with local:// are folders too; other stores have no links, or separate
    their users themselves.
    """
    if isinstance(folder, Path):
        refuse_links(folder, *RUN_CONTENTS)
    elif folder.scheme == "local":
        refuse_links(Path(folder.full.partition("://")[2]), *RUN_CONTENTS)


def open_plan(folder: Path) -> Plan:
    """The plan of the run in a folder."""
    stored = read_config(folder)
    if stored is None or stored.get("kind") != KIND:
        problem = f"there is no training run in {folder}" if folder.exists() else f"{folder} does not exist"
        raise InvalidInput(f"{problem}: give the folder of a run")
    check_format(folder, stored)  # a run without a format is damaged
    agents = read_agents(folder, SizeLimit(TRUSTED_LIMIT))
    try:
        check_table(agents)
    except InvalidInput as error:
        raise damaged_agents(folder, without_marks(error)) from error
    with damage_named(folder):
        return from_config(stored, agents)


def record_resume(folder: Path, command: str, used: UsedOptions) -> None:
    """Add to `provenance.json` that the run resumes, on which machine and with which versions."""
    remove_temporary_files(folder, re.compile(re.escape(PROVENANCE)))
    _add_to_provenance(folder, "resumed", command, used)


def _add_to_provenance(folder: Path, name: str, command: str, used: UsedOptions, **extension: Any) -> None:
    """Add an entry to a list, in place of one of the same extension.

    A file that cannot be read is started anew, since no number depends on it.
    """
    stored = {"resumed": [], **stored_provenance(folder / PROVENANCE)}
    before = stored.get(name, [])
    entries = before if isinstance(before, list) else []
    if extension:
        entries = [
            entry for entry in entries if not isinstance(entry, dict) or entry.get("steps") != extension["steps"]
        ]
    entry = {**extension, **_origin(command, used)}
    write_json(folder / PROVENANCE, {**stored, **used.kept, name: [*entries, entry]})


def stored_workers(folder: Path) -> int:
    """The worker processes that last trained this run; 0: not known, or more than the cores of a smaller machine."""
    stored = stored_provenance(folder / PROVENANCE)
    try:
        every = [stored, *stored["resumed"], *stored.get("extended", [])]
        last = sorted(every, key=lambda origin: str(origin.get("started")))[-1]
        used, cores = last["resources"], last["machine"]["cores"]
        workers, own_cores = 0 if "launcher" in used else used["workers"], available_cores()
        possible = type(workers) is int and workers > 0 and (workers <= own_cores or cores <= own_cores)
    except (AttributeError, KeyError, TypeError):
        return 0
    return workers if possible else 0


def stored_groups(folder: Path, plan: Plan) -> dict[str, int | None]:
    """The groups of agents of each population that has a checkpoint; None where none are stored."""
    newest = {name: newest_manifest(CheckpointPaths(folder, name)) for name in plan.populations}
    return {name: manifest.groups for name, manifest in newest.items() if manifest is not None}


def write_extension(folder: Path, plan: Plan, command: str, used: UsedOptions) -> None:
    """Replace `config.json` by that of the extended plan, and add the extension to `provenance.json`.

    The caller holds the folder's lock. The first write makes the run an unfinished one, which can be resumed: a kill
    between the writes loses the entry in `provenance.json` alone.
    """
    steps = {
        env: {"from": plan.extended_from[env][-1], "to": settings.steps} for env, settings in plan.settings.items()
    }
    remove_temporary_files(folder, re.compile("|".join(map(re.escape, (CONFIG, PROVENANCE)))))
    write_json(folder / CONFIG, to_config(plan))
    sync_progress(folder, plan)
    _add_to_provenance(folder, "extended", command, used, steps=steps)


def sync_progress(folder: Path, plan: Plan) -> None:
    """Set the progress files to the last checkpoints, by their manifests.

    The step of a stopped attempt is later: displays would show it, and count the rate from there. The finished phases
    differ if a process was killed between the two writes, and once a run is extended: its last phase runs again. The
    caller holds the folder's lock.
    """
    for spec in plan.populations.values():
        interval = spec.settings.checkpoint_interval
        phases = finished_phase_count(CheckpointPaths(folder, spec.name), interval, spec.extended_from)
        step, written = spec.settings.phase_end(phases - 1), read_progress(folder, spec.name)
        if (step, phases) != (written.step, written.phases):
            reset_progress(folder, spec.name, step, phases)


def remove_leftovers(folder: Path, plan: Plan) -> None:
    """Delete a killed process's leftovers of finished populations: old checkpoints, partial progress files.

    The caller holds the folder's lock.
    """
    for spec in plan.populations.values():
        remove_old(CheckpointPaths(folder, spec.name), spec.last_phase)
        remove_partial_progress(folder, spec.name)


def is_finished(folder: Path, plan: Plan, *, copied: bool = False) -> bool:
    """Whether every population's last phase is there with right checksums; of a copied run, manifests are enough.

    All manifests are read before any checksum is compared: checkpoints may have gigabytes.
    """
    specs = plan.populations.values()
    has_ended = all(is_population_finished(folder, spec, copied=True) for spec in specs)
    return has_ended and (copied or all(is_population_finished(folder, spec) for spec in specs))


def is_population_finished(folder: Path, spec: PopulationSpec, *, copied: bool = False) -> bool:
    """Whether a population's last phase is there with right checksums; of a copied run, its manifest is enough.

    A run that was extended by less than a phase has the manifest of a shorter last phase until it is trained on.
    """
    paths = CheckpointPaths(folder, spec.name)
    try:
        manifest = read_manifest(paths.manifest(spec.last_phase))
        if not copied:
            verify_all(paths, manifest)
    except Damaged:
        return False
    return manifest.fingerprint.get("steps") not in spec.extended_from


def read_records(folder: Path, *, skip_damaged: bool = False) -> pl.DataFrame:
    """The records of all finished phases of all populations, by agent and step."""
    tables = read_tables(folder, skip_damaged=skip_damaged)
    if any(table.schema != records_schema() for table in tables):
        raise InvalidInput(f"records in {folder / RECORDS} have other columns than they should: {OTHER_OUT}")
    return pl.concat([records_schema().to_frame(), *tables]).sort("agent", "step")


def _origin(command: str, used: UsedOptions) -> dict[str, Any]:
    about = provenance(command)
    about["started"], device = about.pop("finished"), used.resources.get("device", "cpu")
    about["resources"] = dict(used.resources)
    if device.startswith("cuda") and torch.cuda.is_available():  # a cluster's driver may have none
        about["machine"]["gpu"] = torch.cuda.get_device_name(device)
    return about
