"""Kinds of arguments that several commands have."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, arg

from valueshare.runs.engines import EngineOptions

Flag = FlagCreatePairsOff[bool]  # --name, without --no-name beside it
# A path would lose a slash of s3://bucket.
OutFolder = Annotated[str | None, arg(metavar="PATH|URL", help_behavior_hint="")]
ReportFolder = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
RunFolder = Annotated[str, arg(metavar="PATH|URL")]
EngineArguments = OmitArgPrefixes[EngineOptions]  # --engine, --ray-address, --shard, ...
