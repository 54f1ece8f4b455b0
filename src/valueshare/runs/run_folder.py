"""The folder of a training run, from before its first step.

    config.json              every setting, the format of this folder, the version that wrote it
    agents.parquet           the table: one row per agent
    provenance.json          command, version, commit, machine, libraries; again for each resumption
    records/*.parquet        one row per agent and evaluation
    checkpoints/NAME/        what population NAME needs to resume
    progress/NAME.json       where it is, and how long it has taken; for displays
    .lock                    held by the process that runs it
    tensorboard/             events, where they were asked for

It appears whole, with everything but records, checkpoints and events; those are written by
`population.checkpoint`, each file whole or not at all.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl
import torch
from safetensors import safe_open
from torch import Tensor

from valueshare.errors import InvalidInput
from valueshare.files import refuse_links, remove_leftovers, write_json
from valueshare.population.agents import table_digest
from valueshare.population.checkpoints.files import Folder
from valueshare.population.checkpoints.loading import newest_state
from valueshare.population.checkpoints.manifest import is_whole
from valueshare.population.checkpoints.saving import remove_old
from valueshare.population.phase import records_schema
from valueshare.records import (
    CHECKPOINTS,
    RECORDS,
    TENSORBOARD,
    check_format,
    read_tables,
    run_config,
)
from valueshare.result_files import OWN_LIMIT, SizeLimit, Unreadable, read_parquet
from valueshare.runs.directory import CONFIG, check_target, read_config, results_folder
from valueshare.runs.locks import LOCK
from valueshare.runs.locks import held as held  # callers hold the folder that this room makes
from valueshare.runs.plan import (
    KIND,
    Part,
    Plan,
    config,
    difference,
    from_config,
    parts,
)
from valueshare.runs.progress import PROGRESS
from valueshare.runs.provenance import DEVIATIONS, provenance
from valueshare.runs.storage.copies import reading_copies, working_copy
from valueshare.runs.storage.leases import LEASE
from valueshare.runs.storage.places import Place, located
from valueshare.schema import Invalid, read_object

AGENTS, PROVENANCE = "agents.parquet", "provenance.json"
# All that a run writes, at an address too.
WRITTEN = (
    *(CONFIG, AGENTS, PROVENANCE, LOCK, LEASE),
    *(RECORDS, CHECKPOINTS, PROGRESS, TENSORBOARD),
)


class Run(NamedTuple):
    """A training run on disk: finished, or as far as it got."""

    folder: Place
    agents: pl.DataFrame  # the table
    records: pl.DataFrame  # one row per agent and evaluation
    finished: bool
    # Why populations ended that are not finished, by name; the others continued without them.
    failures: Mapping[str, str] = MappingProxyType({})

    def weights(self, agent: int) -> dict[str, Tensor]:
        """The state dictionary of one agent's network, as of the last finished phase."""
        if isinstance(self.folder, Path):
            return read_weights(self.folder, agent)
        with working_copy(self.folder) as copy:
            copy.pull(lambda name: name in (CONFIG, AGENTS))
            for part in parts(open_plan(copy.folder)):
                if agent in part.agents["agent"]:
                    copy.pull_weights(part.name)
            return read_weights(copy.folder, agent)


def check_absent(folder: Path, plan: Plan, *, copied: bool = False) -> None:
    """Refuse a folder that is in use, and say what to do with what is in it.

    How it was cut there is no other setting. A copy of what is at an address has no states.
    """
    stored = read_config(folder)
    if stored is None:
        check_target(folder, config(plan))  # absent, empty, or something else
        return
    if stored.get("kind") != KIND:
        raise InvalidInput(f"{folder} holds results of another kind: choose another --out")
    check_format(folder, stored)
    other = difference(stored, config(plan))
    if other is not None:
        raise InvalidInput(
            f"{folder} holds a run with other settings ({other}): choose another --out"
        )
    done = is_committed if copied else is_finished
    if done(folder, plan._replace(pieces=stored.get("pieces", {}))):
        raise InvalidInput(f"{folder} holds this run, finished: choose another --out to repeat it")
    again = f"valueshare resume {shlex.quote(str(folder))}"
    raise InvalidInput(f"{folder} holds this run, unfinished: write {again}")


def is_untrained(folder: Path, plan: Plan) -> bool:
    """Whether the run of this very plan is in a folder, however it was cut, and nothing learned."""
    stored = read_config(folder) or {}
    cut = {name: stored[name] for name in ("pieces", "valueshare") if name in stored}
    if not stored or stored != config(plan) | cut:
        return False
    return not any(folder.glob(f"{RECORDS}/*")) and not any(folder.glob(f"{CHECKPOINTS}/*/*"))


@contextmanager
def created(
    folder: Path,
    plan: Plan,
    command: str,
    *,
    tensorboard: bool = False,
    deviations: Sequence[str] = (),
) -> Iterator[None]:
    """Make the folder of a run that has not begun, and hold it while the context lasts.

    It appears whole or not at all, and is held before it appears: no other process can resume it
    between its making and its first step. Whether it has events is noted for who resumes it,
    and where its study departs from the paper, for who reads its results.
    """
    with ExitStack() as stack:
        with results_folder(folder, config(plan)) as staging:
            plan.agents.write_parquet(staging / AGENTS)
            (staging / RECORDS).mkdir()
            (staging / CHECKPOINTS).mkdir()
            about = {**_origin(command, plan.device), **_events(tensorboard), "resumed": []}
            if deviations:
                about[DEVIATIONS] = list(deviations)
            write_json(staging / PROVENANCE, about)
            stack.enter_context(held(staging))  # the lock is the folder's, whatever its name
        yield


def check_links(folder: Place) -> None:
    """Refuse symbolic links among the files of a run: what is written there would go elsewhere.

    The folder itself may be one, which its owner made. Addresses with local:// are folders too;
    other stores have no links, or keep their users apart themselves.
    """
    if isinstance(folder, Path):
        refuse_links(folder, *WRITTEN)
    elif folder.scheme == "local":
        refuse_links(Path(folder.full.partition("://")[2]), *WRITTEN)


def open_plan(folder: Path) -> Plan:
    """The plan of the run in a folder."""
    stored = run_config(folder)
    if stored is None or stored.get("kind") != KIND:
        raise InvalidInput(
            f"there is no training run in {folder}: give the folder that `valueshare train` made"
        )
    check_format(folder, stored)
    try:
        agents = read_parquet(folder / AGENTS, SizeLimit(OWN_LIMIT))
    except (OSError, pl.exceptions.PolarsError, Unreadable) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(
            f"{folder / AGENTS} is damaged ({reason}): put it back, or start the run again"
        ) from error
    try:
        plan, digest = from_config(stored, agents), stored["agents"]
    except (Invalid, InvalidInput) as error:
        raise InvalidInput(
            f"{folder / CONFIG} is damaged ({error}): put it back, or start the run again"
        ) from error
    if table_digest(agents) != digest:
        raise InvalidInput(f"{folder / AGENTS} is not the table of this run: start the run again")
    return plan


def open_run(folder: str | Path) -> Run:
    """The run in a folder or at an address, with its records so far."""
    place = located(folder)
    with reading_copies([place]) as copies:
        (own,) = copies.folders
        plan = open_plan(own)
        done = is_finished if own == place else is_committed
        return Run(place, plan.agents, read_records(own), done(own, plan))


def note_resumption(folder: Path, command: str, device: str, tensorboard: bool = False) -> None:
    """Add to `provenance.json` that the run resumes, where and with what.

    One that cannot be read, cut short at an address say, begins anew: no number depends on it.
    """
    try:
        stored = read_object(folder / PROVENANCE)
        before = list(stored["resumed"])
    except (OSError, Invalid, KeyError, TypeError):
        stored, before = {}, []
    now = {**stored, **_events(tensorboard), "resumed": [*before, _origin(command, device)]}
    remove_leftovers(folder, re.compile(re.escape(PROVENANCE)))
    write_json(folder / PROVENANCE, now)


def has_events(folder: Path) -> bool:
    """Whether TensorBoard events of this run were asked for, when it began or resumed."""
    try:
        return bool(read_object(folder / PROVENANCE)["tensorboard"])
    except (OSError, Invalid, KeyError):
        return False


def remove_old_checkpoints(folder: Path, plan: Plan) -> None:
    """Delete old checkpoints of finished populations, which a kill may have left.

    The caller holds the folder.
    """
    for part in parts(plan):
        remove_old(Folder(folder, part.name), part.settings.phases - 1)


def is_finished(folder: Path, plan: Plan) -> bool:
    """Whether every population's last phase is there, with every checksum right."""
    return all(is_part_finished(folder, part) for part in parts(plan))


def is_committed(folder: Path, plan: Plan) -> bool:
    """Whether every population's last manifest is there: what a copy without states can tell."""
    return all(
        Folder(folder, part.name).manifest(part.settings.phases - 1).is_file()
        for part in parts(plan)
    )


def is_part_finished(folder: Path, part: Part) -> bool:
    return is_whole(Folder(folder, part.name), part.settings.phases - 1)


def read_records(folder: Path, *, skip_damaged: bool = False) -> pl.DataFrame:
    """The records of all finished phases of all populations, by agent and step."""
    tables = read_tables(folder, skip_damaged=skip_damaged)
    return pl.concat([records_schema().to_frame(), *tables]).sort("agent", "step")


def read_weights(folder: Path, agent: int) -> dict[str, Tensor]:
    """The state dictionary of one agent's network, as of its last finished phase."""
    for part in parts(open_plan(folder)):
        row = part.agents["agent"].index_of(agent)
        if row is None:
            continue
        file = newest_state(Folder(folder, part.name))
        if file is None:
            raise InvalidInput(f"agent {agent} has no finished phase yet: resume {folder} first")
        prefixes = ("online.parameters.", "online.buffers.")
        with safe_open(file, "pt") as stored:  # of all agents, this one's alone are read
            return {
                name.removeprefix(prefix): stored.get_slice(name)[row]
                for name in stored.keys()  # noqa: SIM118 (it is no dictionary)
                for prefix in prefixes
                if name.startswith(prefix)
            }
    raise InvalidInput(f"there is no agent {agent} in {folder}: see its {AGENTS}")


def _events(tensorboard: bool) -> dict[str, bool]:
    return {"tensorboard": True} if tensorboard else {}


def _origin(command: str, device: str) -> dict[str, Any]:
    about = provenance(command)
    about["started"] = about.pop("finished")
    if device.startswith("cuda") and torch.cuda.is_available():  # on a cluster, it may be elsewhere
        about["machine"]["gpu"] = torch.cuda.get_device_name(device)
    return about
