"""Kinds of arguments that several commands have."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, arg

from valueshare.runs.engines import EngineOptions

Flag = FlagCreatePairsOff[bool]  # --name, without --no-name beside it
OutFolder = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
Engine = OmitArgPrefixes[EngineOptions]  # --engine, --ray-address, --shard, ...
