"""One line for every error of the parser: what is wrong, and what to write instead."""

import inspect
from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from valueshare.cli.training import train
from valueshare.errors import one_line
from valueshare.population.other_names import canonical_name
from valueshare.text import suggestion

OF_TRAIN = inspect.signature(train).parameters


def message(error: CycloptsError, commands: Sequence[str]) -> str:
    """The error in the words of a command, and what to write instead."""
    command = " ".join(error.command_chain or ())
    unused = error.unused_tokens or []
    options = _options(error)
    match error:
        case UnknownCommandError():
            return _no_command(command, unused, commands)
        case UnknownOptionError():
            return _no_option(command, error.token.keyword or error.token.value, options)
        case MissingArgumentError(argument=argument) if argument is not None:
            name = argument.name
            if argument.tokens or error.keyword:
                count = argument.token_count()[0]
                return f"{name}: write {'a value' if count == 1 else f'{count} values'} after it"
            for word in unused:
                option = word.partition("=")[0].replace("_", "-")
                if option.startswith("--") and option not in options:
                    return f"{name} is missing, and {_no_option(command, option, options)}"
            return f"{name} is missing: valueshare {command} --help says what it is"
        case CoercionError(argument=argument, token=token) if argument is not None:
            value = "" if token is None else f" {token.value!r}"
            return f"{argument.name}: cannot read{value}: write {_expected_type(error.target_type)}"
        case UnusedCliTokensError():
            return f"{command} takes no {unused[0]!r}: {_without(unused[0], error, options)}"
    error.verbose = False
    return one_line(error)


def _options(error: CycloptsError) -> list[str]:
    if error.app is None or isinstance(error, UnknownCommandError):
        return []
    return [name for argument in error.app.assemble_argument_collection() for name in argument.names]


def _without(word: str, error: CycloptsError, options: Sequence[str]) -> str:
    """What to write instead of a word too many: a switch before it takes none."""
    words = list(error.root_input_tokens or ())
    before = words[words.index(word) - 1] if word in words[1:] else ""
    switch = f"--{before.removeprefix('--').removeprefix('no-')}"
    if not before.startswith("--") or switch not in options:
        return "leave it out"
    negative = f"--no-{switch.removeprefix('--')}"
    return f"write {switch} or {negative}" if negative in options else f"write {switch} alone"


def _no_command(group: str, words: Sequence[str], commands: Sequence[str]) -> str:
    """The command that is probably meant, or all that there are."""
    known = {name.removeprefix(group).strip(): name for name in commands if name.startswith(group)}
    near = suggestion(" ".join(words[:2]), known, 1) or suggestion(words[0], known, 1)
    hint = near or f"write one of {', '.join(known.values())}"
    return f"there is no command {f'{group} {words[0]}'.strip()!r}: {hint}"


def _no_option(command: str, option: str, options: Sequence[str]) -> str:
    """The options that are probably meant."""
    option = option.partition("=")[0]
    if option in options:
        return f"options are not read after --: write {option} before it"
    if command == "resume" and option.lstrip("-").replace("-", "_") in OF_TRAIN:
        return f"a run resumes with its own settings: leave out {option}"
    ours = canonical_name(option.lstrip("-").replace("-", "_"))
    if ours is not None and (as_option := f"--{ours.replace('_', '-')}") in options:
        return f"{command} has no option {option}: it is called {as_option} here"
    hint = suggestion(option, options, 2) or f"valueshare {command} --help has all"
    return f"{command} has no option {option}: {hint}"


def _expected_type(kind: Any) -> str:
    """The values of a type, in words."""
    members = get_args(kind)
    if get_origin(kind) is Literal:
        names = list(dict.fromkeys(name.lower() for name in sorted(members)))
        return f"one of {', '.join(names)}" if len(names) > 1 else names[0]
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_expected_type(member) for member in members)
    return {int: "a whole number", float: "a number", bool: "True or False"}.get(kind, "another")
