"""Callbacks: user functions that are called after each evaluation of a run."""

import inspect
import pkgutil
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.errors import CallbackFailed, InvalidInput, exception_text, first_line, one_line
from valueshare.printing import print_line
from valueshare.runs.provenance import stored_provenance

KEY = "callbacks"  # in provenance.json
MAX_CALLBACKS = 16
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

CallbackFunction = Callable[[pl.DataFrame, Any], object]  # called with an evaluation's records and the run so far


class Callback(NamedTuple):
    """A function and its name in messages."""

    name: str
    function: CallbackFunction
    is_stored: bool  # whether it has a name by which a later process can import it


def resolve_callbacks(callbacks: Sequence[str | CallbackFunction | Callback]) -> tuple[Callback, ...]:
    """Callbacks from functions, and from names module:function, which are imported; others are refused."""
    if isinstance(callbacks, str) or not isinstance(callbacks, Sequence):
        raise InvalidInput(f"`callbacks = {callbacks!r}`: give a list of functions, or of names like my_module:log")
    if len(callbacks) > MAX_CALLBACKS:
        raise InvalidInput(f"{len(callbacks)} callbacks: give at most {MAX_CALLBACKS}")
    return tuple(map(_resolve, callbacks))


def resumed_callbacks(
    callbacks: Sequence[str | CallbackFunction | Callback] | None, provenance: Path
) -> tuple[Callback, ...]:
    """The callbacks of a resumed run; None: those named in its provenance.json.

    The file is untrusted: a line is printed before a module that it names is imported.
    """
    if callbacks is None:
        callbacks = names = stored_provenance(provenance).get(KEY, [])
        if not isinstance(names, list) or len(names) > MAX_CALLBACKS:
            raise InvalidInput(
                f"{provenance} is damaged ({KEY} is not a short list of names): put it back, or delete it"
            )
        for name in names:
            _check_name(name)
        for name in names:
            print_line(f"importing {name.partition(':')[0]} for the callback {name}")
    return resolve_callbacks(callbacks)


def call_all(callbacks: Sequence[Callback], records: pl.DataFrame, run: object) -> None:
    """Call all in order; an exception ends the run."""
    for callback in callbacks:
        try:
            callback.function(records, run)
        except (Exception, SystemExit) as error:
            raise CallbackFailed(f"the callback {callback.name} raised {exception_text(error)}") from error


def _resolve(callback: str | CallbackFunction | Callback) -> Callback:
    if isinstance(callback, Callback):
        return callback
    if not isinstance(callback, str):
        if not callable(callback):
            raise InvalidInput(
                f"the callback {callback!r} is not callable: give a function of (records, run), or a name "
                "like my_module:log"
            )
        name = getattr(callback, "__qualname__", type(callback).__name__)
        _check_signature(name, callback)
        return Callback(name, callback, is_stored=False)
    _check_name(callback)
    try:
        function = pkgutil.resolve_name(callback)
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"the callback {callback} cannot be imported ({type(error).__name__}: {first_line(error)}): name a "
            "function of a module on PYTHONPATH"
        ) from error
    if not callable(function):
        raise InvalidInput(f"the callback {callback} is not a function: name a function of (records, run)")
    _check_signature(callback, function)
    return Callback(callback, function, is_stored=True)


def _check_signature(name: str, function: CallbackFunction) -> None:
    """Refuse, before anything is trained, a function that cannot be called with (records, run)."""
    for called in (function, getattr(type(function), "__call__", None)):  # noqa: B004 (a method of an object)
        if inspect.iscoroutinefunction(called):
            raise InvalidInput(f"the callback {name} is a coroutine, which nothing awaits: write it without async")
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise InvalidInput(f"the callback {name} is a generator, which nothing iterates: write it without yield")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C have none
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise InvalidInput(
            f"the callback {name} takes {signature}, and is called with (records, run): {one_line(error)}"
        ) from error


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(f"the callback {str(name)[:60]!r} has no module: write module:function, like my_module:log")
