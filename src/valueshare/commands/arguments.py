"""Kinds of arguments that several commands have."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, arg

from valueshare.errors import InvalidInput
from valueshare.runs.engines import EngineOptions
from valueshare.runs.storage.places import Place, Url, located

Flag = FlagCreatePairsOff[bool]  # --name, without --no-name beside it
# A path would lose a slash of s3://bucket.
OutFolder = Annotated[str | None, arg(metavar="PATH|URL", help_behavior_hint="")]
ReportFolder = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
RunFolder = Annotated[str, arg(metavar="PATH|URL")]
# From the command line they are all text, from Python they may be paths.
RunFolders = Annotated[tuple[str | Path, ...], arg(metavar="PATH|URL [PATH|URL ...]")]
EngineArguments = OmitArgPrefixes[EngineOptions]  # --engine, --ray-address, --shard, ...

PASSING = ("memory",)  # what is there ends with its process


def lasting(given: str | Path) -> Place:
    """The folder or address that is meant; one that would end with the command is refused."""
    place = located(given)
    if isinstance(place, Url) and place.scheme in PASSING:
        raise InvalidInput(
            f"{place} is in this command's own memory, and would be gone with it: write a folder, "
            "or an address that lasts"
        )
    return place
