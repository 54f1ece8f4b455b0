"""What workers write into a run's folder, told to those who watch the run."""

from pathlib import Path

import polars as pl

from valueshare.population.checkpoint import Folder
from valueshare.runs.plan import Part
from valueshare.runs.progress import Progress, read_progress
from valueshare.runs.tasks import Listener


def tell(folder: Path, part: Part, before: Progress, listener: Listener) -> Progress:
    """Pass on what a worker has written since; what an earlier process wrote is not news."""
    now = read_progress(folder, part.name)
    if now._replace(seconds=before.seconds) == before:
        return before
    files = Folder(folder, part.name)
    try:
        new = [pl.read_parquet(files.records(phase)) for phase in range(before.phases, now.phases)]
    except (OSError, pl.exceptions.PolarsError):
        return before  # not yet to be seen from here: at the next look
    for phase, records in enumerate(new, before.phases):
        listener.on_phase(part.name, part.settings.phase_end(phase), records)
    if now.step != part.settings.phase_end(max(0, now.phases - 1)):
        listener.on_step(part.name, now.step)
    return now
