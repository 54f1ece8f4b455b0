"""The groups of options in the help of a command, in their order, and options that several packages declare.

The first group has what most runs set: env, algorithm, k, seeds, steps, out and device.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from typing import Annotated, Any

from cyclopts import Group, Parameter

_NAMES = "main environment algorithm exploration replay optimiser evaluation execution cluster"
GROUPS = {name: Group.create_ordered(name.capitalize()) for name in _NAMES.split()}


def in_group(group: str, /, **details: Any) -> Parameter:
    """An option of this group."""
    return Parameter(group=GROUPS[group], **details)


_COMPILE = "Compile the agents' step with torch.compile: takes a minute or two, then each step is faster"
Device = Annotated[str, in_group("main", help="cpu, cuda or cuda:0; auto: the GPU if there is one.")]
Compile = Annotated[bool, in_group("execution", negative="--no-compile", help=f"{_COMPILE}.")]
AutoCompile = Annotated[
    bool | None,
    in_group("execution", negative="--no-compile", help=f"{_COMPILE}; default: only if the run is long enough."),
]
