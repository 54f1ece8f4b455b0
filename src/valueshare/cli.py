"""The command line: finds the command, binds its arguments, and turns errors into one line."""

import contextlib
import functools
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tyro

import valueshare
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
from valueshare.errors import InvalidInput
from valueshare.runs.signals import INTERRUPTED, Stopped

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


def _dispatch(words: list[str]) -> None:
    if words in (["--version"], ["-V"]):
        print(f"valueshare {valueshare.__version__}")
        return
    if not words:
        words = ["--help"]
    # A command of two words, like `bench layer`, is one word to the parser.
    commands = COMMANDS
    group = {name: run for name, run in COMMANDS.items() if words and name.split()[0] == words[0]}
    if len(words) > 1 and (name := f"{words[0]} {words[1]}") in COMMANDS:
        words = [name, *words[2:]]
    elif group and words[0] not in COMMANDS:
        commands, words = group, words[1:] or ["--help"]
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
            if words[0] == "resume" and (other := re.match(r"Unrecognized.*?(--\S+)", line)):
                line = f"a run goes on with its own settings: leave out {other[1].rstrip(',')}"
            _fail(line)
        raise
    return bound


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
    unread = r"Could not find valid parse for arguments: \[(.*)\]"
    return re.sub(unread, r"cannot read \1: --help says what it takes", line)


def _fail(message: str) -> NoReturn:
    print(f"valueshare: {message}", file=sys.stderr)
    sys.exit(2)
