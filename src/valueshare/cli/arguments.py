"""Arguments that several commands have, each with one name, one help text and one group."""

import errno
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, cast

from cyclopts import Parameter

from valueshare.errors import OTHER_OUT, InvalidInput
from valueshare.expansion import Coefficient
from valueshare.files import reason
from valueshare.option_groups import in_group
from valueshare.population.settings import GENERIC, PER_AGENT, SETTINGS
from valueshare.printing import print_line
from valueshare.runs.directory import try_folder
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.storage.locations import Location, Url, resolve_location
from valueshare.setting import Setting

_execution: Callable[..., Parameter] = partial(in_group, "execution")

K = Annotated[tuple[Coefficient, ...], in_group("main", metavar="FLOAT|n...", show_choices=False)]
Tf32 = Annotated[bool, _execution(negative="--no-tf32", help=SETTINGS["tf32"].help)]
Threads = Annotated[int, _execution(help="Threads that step the environments; 0: one per core.")]
AgentGroups = Annotated[
    int,
    _execution(
        help="Groups of agents that step independently; 0: one, or for Atari games with replay on a GPU up to four "
        "(in long runs by a trial of 2, 4 and 8)."
    ),
]
Log = Annotated[
    tuple[Literal["tensorboard", "wandb"], ...],
    _execution(help="Also write curves to TensorBoard (events in the run folder) or Weights & Biases, or both."),
]
Callbacks = Annotated[
    tuple[str, ...],
    _execution(
        metavar="MODULE:FUNCTION...",
        help="Functions of (records, run), called after each evaluation; modules are installed or on PYTHONPATH.",
    ),
]
NoCallbacks = Annotated[bool, _execution(help="Do not import and call the callbacks that the run names.")]
Overwrite = Annotated[bool, _execution(help="Replace what is there: run again, into the same folder.")]
MaxResultSize = Annotated[
    str, Parameter(help="Largest size of results in memory; larger ones are refused before they are read.")
]
# A path would lose a slash of s3://bucket.
Out = Annotated[str | None, in_group("main", metavar="PATH|URL")]
RunFolder = Annotated[str, Parameter(metavar="PATH|URL")]
# From the command line they are all text, from Python they may be paths.
RunFolders = Annotated[tuple[str | Path, ...], Parameter(name="RUN...", metavar="PATH|URL...")]
LauncherArguments = Annotated[LauncherOptions, in_group("cluster", name="*")]

_SETTING = re.compile("`(?P<name>[a-z][a-z_]*)( = (?P<value>[^`]*))?`")  # in a message
IN_MEMORY = ("memory",)  # URL schemes that end with their process


def as_option(declared: Setting) -> Any:
    """The type of a setting as an option, with its help and its value without a preset; None: that of the preset."""
    kind = declared.kind
    if declared.name in PER_AGENT:
        kind = cast(Any, tuple)[kind, ...]
    negative = f"--no-{declared.name.replace('_', '-')}" if kind is bool else ()
    option = in_group(declared.group, help=declared.help, negative=negative, show_default=_default(declared))
    return Annotated[kind | None, option]


def _default(declared: Setting) -> str | bool:
    """The value of a setting that is left out, where the help does not say it."""
    generic = GENERIC[declared.name]
    if generic is None or "default: " in declared.help:
        return False
    value = "off" if generic is False else " ".join(map(str, generic if isinstance(generic, tuple) else [generic]))
    return f"preset, else {value}"


def with_options(error: InvalidInput) -> str:
    """The message of an error with its settings as options: --eval-interval 5 for `eval_interval = 5` in backticks."""

    def option(setting: re.Match[str]) -> str:
        name, value = setting["name"].replace("_", "-"), setting["value"]
        if value is None or value == "True":
            return f"--{name}"
        return f"--no-{name}" if value == "False" else f"--{name} " + value.strip("'")

    return _SETTING.sub(option, str(error))


def exit_with(line: str, code: int) -> NoReturn:
    """End the command with one line and an exit code."""
    print_line(f"valueshare: {line}", error=True)
    sys.exit(code)


def persistent_location(folder: str | Location) -> Location:
    """The folder or URL to read or write; one that would end with the command is refused."""
    location = resolve_location(folder)
    if isinstance(location, Url) and location.scheme in IN_MEMORY:
        raise InvalidInput(
            f"{location} is in the memory of this command, and lost when it ends: write a folder or another URL"
        )
    return location


def writable_location(folder: str | Location) -> Location:
    """The folder or URL to write to; refused if the folder cannot be created."""
    location = persistent_location(folder)
    if not isinstance(location, Path):
        return location  # URLs are checked when they are opened
    try:
        if not location.exists():
            try_folder(location)
    except OSError as error:
        # The folder exists, but takes no others, like /proc.
        absent = error.errno == errno.ENOENT
        why = "no folder can be made there" if absent else reason(error)
        raise InvalidInput(f"cannot write to {location}: {why}; {OTHER_OUT}") from error
    return location
