"""The scales at which a study can be run."""

from collections.abc import Mapping
from typing import TypeVar

from valueshare.errors import InvalidInput

Name = TypeVar("Name", bound=str)
Value = TypeVar("Value")


def by_scale(scales: Mapping[Name, Value], scale: Name) -> Value:
    """The entry of a scale; an unknown name is refused."""
    if scale not in scales:
        raise InvalidInput(f"unknown scale {scale!r}: write one of {', '.join(scales)}")
    return scales[scale]
