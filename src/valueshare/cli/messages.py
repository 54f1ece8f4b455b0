"""Errors of the command-line parser as one line: the problem and the fix."""

import inspect
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import cyclopts

from valueshare.cli.training import train
from valueshare.errors import one_line
from valueshare.experiments.tabular_designs import TabularStudy
from valueshare.population.other_names import canonical_name, other_name_advice
from valueshare.population.settings import SETTINGS
from valueshare.text import conjoin, either, suggestion

TRAIN_PARAMETERS = inspect.signature(train).parameters
FIXED_IN_STUDIES = {"env", "algorithm", "k", "seeds", "first_seed", *SETTINGS}
FIXED_IN_TABULAR_STUDIES = {field.name for field in fields(TabularStudy)}
TABULAR_STUDIES = ("reproduce gridworld", "reproduce gridworld-actions")
FIXED_SETTINGS = {"resume": "resumes", "extend": "is extended"}  # commands that take no settings, and their verb
# Examples of required arguments.
EXAMPLES = {
    "--agent": "--agent 0",
    "--env": "--env CartPole-v1",
    "--steps": "--steps 100k",
    "--video": "--video agent.mp4",
    "RUN": "runs/CartPole-v1-ib-dqn",
    "RUN...": "runs/CartPole-v1-ib-dqn",
}


def message(error: cyclopts.CycloptsError, commands: Sequence[str]) -> str:
    """The error and the fix, in terms of the command's options."""
    command = " ".join(error.command_chain or ())
    unused = error.unused_tokens or []
    options = _options(error)
    match error:
        case cyclopts.UnknownCommandError():
            return _no_command(command, unused, commands)
        case cyclopts.UnknownOptionError():
            return _no_option(command, error.token.keyword or error.token.value, options)
        case cyclopts.MissingArgumentError(argument=argument) if argument is not None:
            name = argument.name
            if argument.tokens or error.keyword:
                count = argument.token_count()[0]
                return f"{name}: write {'a value' if count == 1 else f'{count} values'} after it"
            if unused[:1] == ["help"]:
                return _use_help(command)
            if name == "--env" and unused and not unused[0].startswith("-"):
                return f"missing required argument --env: write --env {shlex.quote(unused[0])}"
            for word in unused:
                option = word.partition("=")[0].replace("_", "-")
                if option.startswith("--") and option not in options:
                    return f"missing required argument {name}, and {_no_option(command, option, options)}"
            names = [name, *_missing_besides(name, error)]
            what = "argument" if len(names) == 1 else "arguments"
            example = " ".join(EXAMPLES[each] for each in names)
            return f"missing required {what} {conjoin(names)}, for example {example}; see valueshare {command} --help"
        case cyclopts.RepeatArgumentError():
            return _given_twice(error.token.keyword or "", error.root_input_tokens or ())
        case cyclopts.CoercionError(msg=str() as text):
            return text
        case cyclopts.CoercionError(argument=argument, token=token) if argument is not None:
            value = "" if token is None else f" {token.value!r}"
            return f"{argument.name}: invalid value{value}: write {_expected_type(error.target_type)}"
        case cyclopts.UnusedCliTokensError() if unused[0] == "help":
            return _use_help(command)
        case cyclopts.UnusedCliTokensError():
            return f"{command}: unexpected argument {unused[0]!r}: {_without(command, unused[0], error, options)}"
    error.verbose = False
    return one_line(error)


def _options(error: cyclopts.CycloptsError, *, valued: bool = False) -> list[str]:
    """The options of a command; only those that take a value, if `valued`."""
    if error.app is None or isinstance(error, cyclopts.UnknownCommandError):
        return []
    arguments = error.app.assemble_argument_collection()
    return [name for argument in arguments if not (valued and _is_switch(argument)) for name in argument.names]


def _missing_besides(name: str, error: cyclopts.CycloptsError) -> list[str]:
    """Required options besides one that is missing, which are missing too."""
    assert error.app is not None
    given = {token.partition("=")[0] for token in error.root_input_tokens or ()}
    required = [argument for argument in error.app.assemble_argument_collection() if argument.required]
    options = [argument for argument in required if argument.name.startswith("--") and argument.name != name]
    return [option.name for option in options if given.isdisjoint(option.names)]


def _given_twice(option: str, tokens: Sequence[str]) -> str:
    """Refuse an option that is given twice, or as --X and --no-X."""
    name = f"--{option.removeprefix('--').removeprefix('no-')}"
    negative = f"--no-{name.removeprefix('--')}"
    if name in tokens and negative in tokens:
        return f"{name} and {negative} contradict each other: leave one out"
    return f"{option} is given twice: write it once"


def _is_switch(argument: cyclopts.Argument) -> bool:
    """Whether an option takes no value; one of `bool | None` counts a value, but is written --X or --no-X."""
    return argument.token_count()[0] == 0 or any(name.startswith("--no-") for name in argument.names)


def _without(command: str, word: str, error: cyclopts.CycloptsError, options: Sequence[str]) -> str:
    """Advice for an extra argument: a switch takes no value, most options take one."""
    tokens, valued = list(error.root_input_tokens or ()), _options(error, valued=True)
    is_value = [before in valued for before in ["", *tokens]]
    index = max((i for i, given in enumerate(tokens) if given == word and not is_value[i]), default=0)
    before, earlier = (tokens[index - back] if index >= back else "" for back in (1, 2))
    switch = f"--{before.removeprefix('--').removeprefix('no-')}"
    if before.startswith("--") and switch in options:
        negative = f"--no-{switch.removeprefix('--')}"
        return f"write {switch} or {negative}" if negative in options else f"leave it out, as {switch} takes no value"
    if earlier in valued:
        return f"{earlier} takes one value"
    is_first = before == command.rpartition(" ")[2]
    return f"write --env {shlex.quote(word)}" if is_first and "--env" in options else "leave it out"


def _no_command(group: str, tokens: Sequence[str], commands: Sequence[str]) -> str:
    """Refuse an unknown command; suggest a similar one, or list all."""
    if tokens[0] == "help":
        of = " ".join([group, *tokens[1:]]).strip()
        return _use_help(of if of in commands or of in groups(commands) else group)
    if tokens[0] == "version":
        return "unknown command 'version': write valueshare --version"
    known = {name.removeprefix(group).strip(): name for name in commands if name.startswith(group)}
    near = suggestion(" ".join(tokens[:2]), known, 1) or suggestion(tokens[0], known, 1)
    hint = near or f"write one of {', '.join(known.values())}"
    return f"unknown command {f'{group} {tokens[0]}'.strip()!r}: {hint}"


def groups(commands: Sequence[str]) -> set[str]:
    """The first words of commands of two words."""
    return {name.partition(" ")[0] for name in commands if " " in name}


def _use_help(command: str) -> str:
    return f"unknown command 'help': write {' '.join(['valueshare', *command.split()])} --help"


def _no_option(command: str, option: str, options: Sequence[str]) -> str:
    """Refuse an unknown option; suggest its name here, or a similar one."""
    option = option.partition("=")[0]
    if option in options:
        return f"options are not read after --: write {option} before it"
    name, refusal = _as_name(option), f"{command} has no option {option}"
    if not option.startswith("--") and (written := _as_option(name)) in options:
        return f"{refusal}: write {written}"
    ours = canonical_name(name, map(_as_name, options))
    if ours is not None:
        return f"{refusal}: {other_name_advice(name, ours)}"
    train_option = name if name in TRAIN_PARAMETERS else canonical_name(name)
    if train_option is not None and command in FIXED_SETTINGS:
        longer = "; valueshare extend trains for more steps" if (command, train_option) == ("resume", "steps") else ""
        return f"a run {FIXED_SETTINGS[command]} with its own settings: leave out {option}{longer}"
    advice = other_name_advice(name, None)
    if advice and all(named in options for named in ("--device", *map(_as_option, re.findall("`([a-z_]+)", advice)))):
        return f"{refusal}: {advice}"
    all_of_them = f"valueshare {command} --help has all"
    in_tabular = command in TABULAR_STUDIES
    fixed = FIXED_IN_TABULAR_STUDIES if in_tabular else FIXED_IN_STUDIES
    if command.startswith("reproduce ") and train_option in fixed:
        with_it = "tabular" if in_tabular else "train"
        return f"{refusal}, as it is fixed in the study: valueshare {with_it} has {_as_option(train_option)}"
    if train_option is not None:
        return f"{refusal}: {_as_option(train_option)} is an option of train; {all_of_them}"
    names = {_as_name(known): known for known in options}  # leading dashes would make all similar
    near = "" if advice else suggestion(name, names, 2)
    return f"{refusal}: {near or all_of_them}"


def _as_name(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _as_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _expected_type(kind: Any) -> str:
    """The values of a type, in words."""
    members = get_args(kind)
    if get_origin(kind) is Literal:
        names = list(dict.fromkeys(name.lower() for name in sorted(members)))
        return f"one of {', '.join(names)}" if len(names) > 1 else names[0]
    if get_origin(kind) in (Union, UnionType):
        return either(_expected_type(member) for member in members)
    return {int: "a whole number", float: "a number", bool: "True or False"}.get(kind, "another")
