"""Kinds of arguments that several commands have."""

import errno
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, arg

from valueshare.errors import InvalidInput
from valueshare.files import reason
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.staging import UNNAMED, remove_unnamed
from valueshare.runs.storage.locations import Location, Url, resolve_location

Flag = FlagCreatePairsOff[bool]  # --name, without --no-name beside it
# A path would lose a slash of s3://bucket.
OutFolder = Annotated[str | None, arg(metavar="PATH|URL", help_behavior_hint="")]
ReportFolder = Annotated[str | Path | None, arg(metavar="PATH", help_behavior_hint="")]
RunFolder = Annotated[str, arg(metavar="PATH|URL")]
# From the command line they are all text, from Python they may be paths.
RunFolders = Annotated[
    tuple[str | Path, ...],
    arg(metavar="PATH|URL [PATH|URL ...]", help_behavior_hint="(required)"),
]
LauncherArguments = OmitArgPrefixes[LauncherOptions]  # --launcher, --ray-address, --shard, ...

PASSING = ("memory",)  # what is there ends with its process


def lasting(given: str | Path) -> Location:
    """The folder or address that is meant; one that would end with the command is refused."""
    if given == "":
        raise InvalidInput("'' is no folder: write its name, like runs/first")
    place = resolve_location(given)
    if isinstance(place, Url) and place.scheme in PASSING:
        raise InvalidInput(
            f"{place} is in this command's own memory, and would be gone with it: write a folder, "
            "or an address that lasts"
        )
    return place


def writable(given: str | Path) -> Location:
    """The same of a place to write to; where no folder can be made, it is refused at once."""
    place = lasting(given)
    if not isinstance(place, Path):
        return place  # who writes there looks by itself
    try:
        if not place.exists():
            above = next(folder for folder in place.absolute().parents if folder.exists())
            remove_unnamed(above)
            made = Path(tempfile.mkdtemp(prefix=UNNAMED, dir=above))
            with suppress(FileNotFoundError):  # another process took it for left
                made.rmdir()
    except OSError as error:
        # Of a folder that is there, like /proc: it takes no others.
        absent = error.errno == errno.ENOENT
        why = "no folder can be made there" if absent else reason(error)
        raise InvalidInput(f"cannot write to {place}: {why}; choose another --out") from error
    return place
