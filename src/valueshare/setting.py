"""`setting(...)` declares one setting: a field of a dataclass, with its default, help and range.

Its name and type are the field's. The command line, signatures and checks are made from it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from functools import cache
from itertools import islice
from numbers import Real
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from valueshare.errors import InvalidInput
from valueshare.text import exact

MAX_COUNT = 10**12  # far beyond any run, far below what overflows
MAX_VALUES = 1_000  # in the list of one setting


class Setting(NamedTuple):
    """The declaration of one setting."""

    name: str
    kind: Any  # its type; of `int | None`, int
    item: Any  # the type of one value: of a list, that of its items
    optional: bool  # whether it can be None
    help: str = ""
    group: str = ""
    minimum: float = -math.inf
    maximum: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def check(self, value: Any) -> None:
        """Refuse a value of a wrong type or range."""
        _convert(self, value)


def setting(default: Any, help: str, *, group: str, **bounds: float) -> Any:  # noqa: A002 (the command line's word)
    """A field of a dataclass whose `__post_init__` calls `check_settings`; bounds as in `Setting`."""
    return field(default=default, metadata={"help": help, "group": group, **bounds})


@cache
def settings_of(owner: type) -> Mapping[str, Setting]:
    """The settings that a dataclass declares, by their names."""
    hints, settings = get_type_hints(owner), {}
    for declared in fields(owner):
        members = get_args(hints[declared.name])
        optional = NoneType in members
        kind = members[0] if optional else hints[declared.name]
        item = get_args(kind)[0] if get_origin(kind) is tuple else kind
        settings[declared.name] = Setting(declared.name, kind, item, optional, **declared.metadata)
    return MappingProxyType(settings)


def refuse_repeated(name: str, values: Sequence[Any]) -> None:
    """Refuse a list that holds a value twice."""
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        shown = str(twice) if isinstance(twice, str | int) else exact(twice + 0.0)  # not -0
        raise InvalidInput(f"`{name}`: {shown} is given more than once; write each value once")


def check_settings(instance: Any) -> None:
    """Check every setting of a frozen dataclass; lists from JSON and numbers from NumPy get the declared types."""
    owner: Any = type(instance)
    for name, declared in settings_of(owner).items():
        object.__setattr__(instance, name, _convert(declared, getattr(instance, name)))


def _convert(declared: Setting, value: Any) -> Any:
    if value is None and declared.optional:
        return None
    if declared.item is declared.kind:
        return _convert_item(declared, value)
    name, kinds = declared.name, get_args(declared.kind)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput(f"`{name} = {value!r}`: write a list of numbers, like [{value}]")
    values = tuple(islice(value, MAX_VALUES + 1))  # from Python, it may have no end
    if len(values) > MAX_VALUES:
        raise InvalidInput(f"`{name}` has more than {MAX_VALUES:,} numbers: write fewer")
    if kinds[-1] is not Ellipsis and len(values) != len(kinds):
        raise InvalidInput(f"`{name} = {values}`: write {len(kinds)} numbers")
    return tuple(_convert_item(declared, item) for item in values)


def _convert_item(declared: Setting, value: Any) -> Any:
    name, kind = declared.name, declared.item
    if kind in (int, float):
        value = as_int(name, value) if kind is int else as_float(name, value)
        _check_range(declared, value)
    elif kind is bool:
        if (isinstance(value, Real) and not _is_bool(value)) or value not in (True, False):
            raise InvalidInput(f"`{name} = {value!r}`: write True or False")
        value = bool(value)
    elif kind is str:
        if not isinstance(value, str):
            raise InvalidInput(f"`{name} = {value!r}`: write a name")
    elif value not in get_args(kind):  # a Literal
        raise InvalidInput(f"`{name} = {value!r}`: write one of {', '.join(get_args(kind))}")
    return value


def _check_range(declared: Setting, value: float) -> None:
    low, above, below = declared.minimum, declared.above, declared.below
    high = min(declared.maximum, MAX_COUNT) if declared.item is int else declared.maximum
    if low <= value <= high and above < value < below:
        return
    lower = f">= {low:g}" if low > above else f"> {above:g}"
    upper = f"<= {high:,}" if high < below else f"< {below:g}"
    if isinstance(value, float) and not math.isfinite(value):
        wanted = "finite number"
    elif math.isfinite(max(low, above)) and math.isfinite(min(declared.maximum, below)):
        wanted = f"number {lower} and {upper}"
    else:
        wanted = f"number {lower if value < low or value <= above else upper}"
    shown = exact(value) if isinstance(value, float) else value
    raise InvalidInput(f"`{declared.name} = {shown}`: write a {wanted}")


def as_int(name: str, value: Any) -> int:
    """A count as an integer: 1e3 from JSON is 1000, and 2.5 and True are rejected, NumPy's too."""
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        count = None
    if count is None or count != value or _is_bool(value):
        raise InvalidInput(f"`{name} = {value!r}`: write a whole number")
    return count


def as_float(name: str, value: Any) -> float:
    """A number as a float, NumPy's too; strings, True and False are rejected."""
    if not isinstance(value, Real) or _is_bool(value):
        raise InvalidInput(f"`{name} = {value!r}`: write a number")
    try:
        return float(value)
    except OverflowError as error:  # a whole number from JSON may have 4,300 digits
        raise InvalidInput(f"`{name}` is a number of more than 300 digits: write a finite number") from error


def _is_bool(value: Any) -> bool:
    """Whether a value is True or False, also of NumPy or PyTorch, which are not imported for it."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def as_count(name: str, value: Any, minimum: int = 1) -> int:
    """A whole number from `minimum` to MAX_COUNT."""
    count: int = _convert_item(Setting(name, int, int, optional=False, minimum=minimum), value)
    return count
