"""The command line: each command parses its arguments, calls the package and prints.

Heavy libraries are imported by the commands that need them.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from itertools import chain, pairwise
from typing import Any, get_origin

from cyclopts import App, CoercionError, CycloptsError, Parameter, Token, convert

from valueshare._version import __version__
from valueshare.cli.arguments import exit_with, with_options
from valueshare.cli.bench import bench_atari, bench_import, bench_layer, bench_population, bench_tabular
from valueshare.cli.evaluate import evaluate
from valueshare.cli.messages import message
from valueshare.cli.play import play
from valueshare.cli.report import best, paper_table, report, watch
from valueshare.cli.reproduce import STUDY_COMMANDS
from valueshare.cli.tabular import reproduce_gridworld, reproduce_gridworld_actions, tabular
from valueshare.cli.training import extend, resume, train
from valueshare.errors import CallbackFailed, EnvironmentFailed, InvalidInput, first_line
from valueshare.host_memory import is_out_of_memory
from valueshare.signals import INTERRUPTED, Stopped

LARGEST_EXPONENT = 10**100  # 1e400 would take memory; settings check their own ranges
PAIRS = "--compare"  # its values are pairs, with a comma
OUT_OF_MEMORY = "out of memory: give fewer agents, a smaller network or fewer results, or free memory"

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "report": report,
    "watch": watch,
    "play": play,
    "resume": resume,
    "extend": extend,
    "evaluate": evaluate,
    "best": best,
    "reproduce gridworld": reproduce_gridworld,
    "reproduce gridworld-actions": reproduce_gridworld_actions,
    **{f"reproduce {name}": command for name, command in STUDY_COMMANDS.items()},
    "paper-table": paper_table,
    "tabular": tabular,
    "bench tabular": bench_tabular,
    "bench layer": bench_layer,
    "bench population": bench_population,
    "bench atari": bench_atari,
    "bench import": bench_import,
}
COMMAND_GROUPS = {"reproduce": "Reproduce the paper, and additional studies", "bench": "Benchmarks"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exit with 2 and one line for what its caller can fix."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            run, bound, _ = make_app().parse_args(tokens, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            raise InvalidInput(message(error, list(COMMANDS))) from None
        run(*bound.args, **bound.kwargs)
    except InvalidInput as error:
        exit_with(with_options(error), 2)
    except (EnvironmentFailed, CallbackFailed) as error:
        exit_with(str(error), 1)
    except (KeyboardInterrupt, Stopped) as stop:
        code = getattr(stop, "exit_code", INTERRUPTED)
        exit_with("; ".join(["interrupted", *map(str, stop.args)]), code)
    except BrokenPipeError:
        # The reader of our output has gone, as after `| head -1`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except BaseException as error:  # some libraries' own are not an `Exception`
        if isinstance(error, OSError) and error.strerror:
            # For example a full disk. Half-written folders have been removed on the way here.
            exit_with(error.strerror, 1)
        if is_out_of_memory(error):
            exit_with(f"{OUT_OF_MEMORY} ({first_line(error)})", 1)
        if isinstance(error, OSError):
            exit_with(str(error), 1)
        raise


def make_app() -> App:
    """The parser of all commands."""
    defaults = Parameter(
        consume_multiple=1,  # --k 0 2; at least one value
        allow_repeating=None,  # refused, as in `_convert`
        negative=(),
        json_list=False,  # [64,64] is refused, as 64,64 is
        converter=_convert,
        show_default=_shown_default,
    )
    app = App(
        name="valueshare",
        help="Faster Q-learning by sharing value across actions.",
        version=f"valueshare {__version__}",
        version_flags=("-V", "--version"),
        help_flags=("-h", "--help"),
        help_format="markdown",  # breaks lines by the width alone
    )
    for number, (command, function) in enumerate(COMMANDS.items()):
        first, _, second = command.partition(" ")
        if second and first not in app:
            members = [name.split()[1] for name in COMMANDS if name.startswith(f"{first} ")]
            about = f"{COMMAND_GROUPS[first]}: {', '.join(members)}."
            app.command(App(name=first, help=about, sort_key=number))
        owner = app[first] if second else app
        owner.command(function, name=second or first, sort_key=number, default_parameter=defaults)
    return app


def _shown_default(value: Any) -> str | None:
    """A default as it would be written; none where the help says it in words."""
    if value is None or value is False or value in ("", ()):
        return None
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _convert(kind: Any, tokens: Sequence[Token]) -> Any:
    """The parser's own conversion; a whole number may also be written as 1e5 or 100k, and 1.5 is refused.

    An option with several values that is given twice is refused, as one with one value is by the parser.
    """
    starts = [i for i, token in enumerate(tokens) if token.keyword is not None and token.index == 0]
    option = str(tokens[0].keyword) if tokens else ""
    if len(starts) > 1:
        given = dict.fromkeys(tuple(token.value for token in tokens[i:j]) for i, j in pairwise([*starts, len(tokens)]))
        values = list(chain.from_iterable(given))
        shared = sum(len(set(group)) for group in given) > len(set(values))  # which of them are meant is not known
        once = f"all of its values after one {option}" if shared else shlex.join([option, *values])
        raise CoercionError(msg=f"{option} is given twice: write {once}", token=tokens[0])
    if get_origin(kind) is tuple and starts and option != PAIRS and any("," in token.value for token in tokens):
        values = [value for token in tokens for value in re.findall(r"[^\s,()\[\]]+", token.value)]
        apart = shlex.join([option, *values])
        raise CoercionError(msg=f"{option}: values are separated by spaces: write {apart}", token=tokens[0])
    if kind in (int, tuple[int, ...]):
        tokens = [_as_integer(token) for token in tokens]
    return convert(kind, tokens)


def _as_integer(token: Token) -> Token:
    """A token of a whole number without exponent and point; 100k is 100,000 and 1.5m is 1,500,000."""
    factor = {"k": 1_000, "m": 1_000_000}.get(token.value[-1:].lower(), 1)
    if factor == 1 and not any(sign in token.value for sign in ".eE"):
        return token
    with suppress(InvalidOperation, OverflowError):  # Infinity is too large for an integer
        number = Decimal(token.value if factor == 1 else token.value[:-1]) * factor
        if abs(number) < LARGEST_EXPONENT and number == int(number):
            return token.evolve(value=str(int(number)))
    raise CoercionError(token=token, target_type=int)
