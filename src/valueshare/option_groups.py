"""The groups of options in the help of a command, in their order.

Nothing heavy is imported here: the command line reads it before it knows the command.
"""

from typing import Any

from cyclopts import Group, Parameter

_NAMES = "environment algorithm exploration replay optimiser evaluation execution cluster"
GROUPS = {name: Group.create_ordered(name.capitalize()) for name in _NAMES.split()}


def in_group(group: str, /, **details: Any) -> Parameter:
    """An option of this group."""
    return Parameter(group=GROUPS[group], **details)
