"""Kinds of arguments that several commands have."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, arg

Flag = FlagCreatePairsOff[bool]  # --name, without --no-name beside it
OutFolder = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
