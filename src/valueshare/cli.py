"""The command line: finds the command, binds its arguments, and turns errors into one line."""

import contextlib
import functools
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import tyro

from valueshare._version import __version__
from valueshare.commands.atari import (
    reproduce_atari57,
    reproduce_atari_rdq_beta,
    reproduce_atari_rmsprop,
    reproduce_atari_sensitivity,
)
from valueshare.commands.bench import (
    bench_atari,
    bench_import,
    bench_layer,
    bench_population,
    bench_tabular,
)
from valueshare.commands.lunarlander import reproduce_lunarlander
from valueshare.commands.paper_table import paper_table
from valueshare.commands.play import play
from valueshare.commands.report import report
from valueshare.commands.tabular import reproduce_gridworld, tabular
from valueshare.commands.training import resume, train
from valueshare.commands.watch import watch
from valueshare.errors import EnvironmentFailed, InvalidInput, first_line
from valueshare.host_memory import is_out_of_memory
from valueshare.signals import INTERRUPTED, Stopped

RAN_OUT = "memory ran out: give fewer agents, a smaller network or fewer results, or free some"

Command = Callable[..., None]

COMMANDS: dict[str, Command] = {
    "reproduce gridworld": reproduce_gridworld,
    "reproduce lunarlander": reproduce_lunarlander,
    "reproduce atari57": reproduce_atari57,
    "reproduce atari-sensitivity": reproduce_atari_sensitivity,
    "reproduce atari-rmsprop": reproduce_atari_rmsprop,
    "reproduce atari-rdq-beta": reproduce_atari_rdq_beta,
    "train": train,
    "resume": resume,
    "report": report,
    "watch": watch,
    "play": play,
    "paper-table": paper_table,
    "tabular": tabular,
    "bench tabular": bench_tabular,
    "bench layer": bench_layer,
    "bench population": bench_population,
    "bench atari": bench_atari,
    "bench import": bench_import,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exit with 2 and one line for what its caller can mend."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _dispatch(words)
    except InvalidInput as error:
        _fail(str(error))
    except EnvironmentFailed as error:
        print(f"valueshare: {error}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, Stopped) as stop:
        print("; ".join(["valueshare: interrupted", *map(str, stop.args)]), file=sys.stderr)
        sys.exit(getattr(stop, "exit_code", INTERRUPTED))
    except BrokenPipeError:
        # The reader of our output has gone, `| head -1` say: nothing is left to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        # A full disk, say. Half-written folders have been removed on the way here.
        print(f"valueshare: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
    except BaseException as error:  # some libraries' own are no `Exception`
        if not is_out_of_memory(error):
            raise
        print(f"valueshare: {RAN_OUT} ({first_line(error)})", file=sys.stderr)
        sys.exit(1)


def _dispatch(words: list[str]) -> None:
    if words in (["--version"], ["-V"]):
        print(f"valueshare {__version__}")
        return
    if not words:
        words = ["--help"]
    # A command of two words, like `bench layer`, is one word to the parser.
    commands = COMMANDS
    group = {name: run for name, run in COMMANDS.items() if words and name.split()[0] == words[0]}
    if len(words) > 1 and (name := f"{words[0]} {words[1]}") in COMMANDS:
        words = [name, *words[2:]]
    elif group and words[0] not in COMMANDS:
        if len(words) > 1 and not words[1].startswith("-"):
            raise InvalidInput(_no_member(words[0], words[1], group))
        commands, words = group, words[1:] or ["--help"]
    elif not group and not words[0].startswith("-"):
        said = (" ".join(words[:2]), words[0])
        near = [name for word in said for name in get_close_matches(word, COMMANDS, 1)]
        hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(COMMANDS)}"
        raise InvalidInput(f"there is no command {words[0]!r}: {hint}")
    _parse(commands, words)()


def _parse(commands: dict[str, Command], words: list[str]) -> Callable[[], None]:
    """The command with its arguments bound, not yet run."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            bound: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(command) for name, command in commands.items()},
                prog="valueshare",
                description="Faster Q-learning by sharing value across actions.",
                args=words,
            )
    except SystemExit as exit_:
        if exit_.code:
            line = _one_line(said.getvalue())
            _fail(_misspelt(words, line) if words[0] in commands else line)
        raise
    return bound


def _no_member(group: str, given: str, commands: dict[str, Command]) -> str:
    """What to write instead of the second word of a command, in a group that is there."""
    near = get_close_matches(given, [name.split()[1] for name in commands], 1)
    hint = f"did you mean {group} {near[0]}?" if near else f"write one of {', '.join(commands)}"
    return f"there is no command '{group} {given}': {hint}"


def _misspelt(words: list[str], line: str) -> str:
    """What the parser says of a command's words, by the option that is misspelt, if one is.

    Of one that is required the parser says that it is missing, and not what is in its place.
    """
    command = words[0]
    if unknown := re.match(r"Unrecognized.*?(--[^\s,;=]+)", line):
        return _no_option(command, unknown[1])
    missing = re.match(r"Missing (?:from .*?: (--[\w-]+)|value for argument '(.*?)')", line)
    given = [word.partition("=")[0] for word in words[1:] if re.match(r"--\w", word)]
    if missing and given:
        known = _options(command)
        for option in given:
            if option.replace("_", "-") not in known:
                return f"{missing[1] or missing[2]} is missing, and {_no_option(command, option)}"
    return line


def _no_option(command: str, option: str) -> str:
    """What to write instead of an option that the command does not have."""
    if command == "resume" and option in _options("train"):
        return f"a run goes on with its own settings: leave out {option}"
    near = get_close_matches(option, _options(command), 2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"valueshare {command} --help has all"
    return f"{command} has no option {option}: {hint}"


def _options(command: str) -> list[str]:
    """The options of a command, as its help names them."""
    helped = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(helped):
        _parse(COMMANDS, [command, "--help"])
    found = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", helped.getvalue())
    return list(dict.fromkeys(found))


def _deferred(command: Command) -> Callable[..., Callable[[], None]]:
    @functools.wraps(command)
    def bind(*args: Any, **options: Any) -> Callable[[], None]:
        return functools.partial(command, *args, **options)

    return bind


def _one_line(box: str) -> str:
    """What the parser says in a box, as one sentence: its first part, and what it suggests."""
    text = [
        re.sub(r"^[│╭╰].?|│$|[─╮╯]|^ *-{5,} *$", " ", line).strip() for line in box.splitlines()
    ]
    parts = [" ".join(part.split()) for part in "\n".join(text[1:]).split("\n\n")]
    said = [part for part in parts if part]
    kept = said[:1] + [part for part in said[1:] if part.startswith(("Perhaps", "Available"))]
    line = "; ".join(kept) or "the arguments could not be read"
    line = re.sub(r"^Error parsing (\S+inner\S*: )?", "", line)
    for pattern, plain in _PLAINER.items():
        line = re.sub(pattern, plain, line)
    return re.sub(_CHOICE, _one_of, line)


def _one_of(said: re.Match[str]) -> str:
    """A choice that there is not; what is left out is not to be written, so None is none."""
    names = sorted(set(re.findall(r"'([^']+)'", said[3])) - {"None"})
    return f"{said[2]}: cannot read {said[1]}: write one of {', '.join(names)}"


# What Python and the parser say of values, as we would.
_PLAINER = {
    r"Could not find valid parse for arguments: \[(.*)\]": (
        r"cannot read \1: --help says what it takes"
    ),
    r"invalid literal for int\(\) with base 10: ('.*')": r"cannot read \1: write a whole number",
    r"could not convert string to float: ('.*')": r"cannot read \1: write a number",
    r"no type matching \{None\}\|INT could be instantiated from \[(.*)\]\.?": (
        r"cannot read \1: write a whole number"
    ),
    r"no type matching \{None\}\|FLOAT could be instantiated from \[(.*)\]\.?": (
        r"cannot read \1: write a number"
    ),
    r"no type matching \{None\}\|\{?(.*?)\}? could be instantiated from \[(.*)\]\.?": (
        r"cannot read \2: write \1"
    ),
}
_CHOICE = r"invalid choice ('.*?') for argument '(\S+?)'\. Expected one of \((.*?)\)\."


def _fail(message: str) -> NoReturn:
    print(f"valueshare: {message}", file=sys.stderr)
    sys.exit(2)
