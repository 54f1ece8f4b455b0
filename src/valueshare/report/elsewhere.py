"""Reports of runs wherever they are, object stores too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from valueshare.report.write import Written, write_report
from valueshare.runs.storage.copies import reading_copies
from valueshare.runs.storage.locations import Location, Url


def report_places(
    places: Sequence[Location], out: Path | None = None, names: Sequence[str] = (), **options: Any
) -> Written:
    """What `write_report` does, of folders and addresses; left out, `out` is never an address."""
    if out is None and any(isinstance(place, Url) for place in places):
        out = Path("report")
    with reading_copies(places) as copies:
        written = write_report(copies.folders, out, names, **options)
        return written._replace(notes=tuple(copies.named(note) for note in written.notes))
