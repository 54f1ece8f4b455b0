"""Why a run is not finished, and what to do: it was stopped, or files are damaged."""

from pathlib import Path
from typing import NoReturn

from valueshare.errors import InvalidInput
from valueshare.population.checkpoints.files import Damaged, read_manifest, verify_all
from valueshare.records import RECORDS, CheckpointPaths, read_tables
from valueshare.runs.plan import Plan
from valueshare.runs.run_folder import is_finished
from valueshare.runs.storage.locations import Location
from valueshare.text import resume_command


def refuse_unfinished(folder: Path, plan: Plan, location: Location, *, copied: bool = False) -> NoReturn:
    """Refuse a run that is not finished; what `resume` would refuse is refused in its words.

    States are not read of a run that was copied from a URL, nor of one with phases that have not ended: they may have
    gigabytes, and `resume` verifies them.
    """
    read_tables(folder, skip_damaged=True)  # refuses what training would not make again
    verifies = not copied and is_finished(folder, plan, copied=True)
    for name in plan.populations:
        why = _damage(CheckpointPaths(folder, name), verifies=verifies)
        if why:
            raise InvalidInput(
                f"the run in {location} is damaged ({why}): {resume_command(location)} trains that part again"
            )
    raise InvalidInput(
        f"the run in {location} is not finished: wait for it to finish, or if it was stopped, "
        f"{resume_command(location)} first"
    )


def _damage(paths: CheckpointPaths, *, verifies: bool) -> str:
    """What is missing or damaged of a population's newest checkpoint, or empty; refused where none is intact."""
    manifests = paths.manifests()
    newest = ""
    for path in manifests:
        try:
            manifest = read_manifest(path)
            if verifies:
                verify_all(paths, manifest)
        except Damaged as damage:
            newest = newest or f"{path.name}: {damage.seen_from(path)}"
        else:
            return newest
    if manifests:
        raise paths.none_is_intact(newest)
    has_records = any((paths.root / RECORDS).glob(f"{paths.name}-*.parquet"))
    return f"there are records of {paths.name} and no checkpoint" if has_records else ""
