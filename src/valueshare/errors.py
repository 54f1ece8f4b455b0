"""The exceptions that end a command with one line, and other exceptions in one line.

`InvalidInput` is for input that its author can fix, `EnvironmentFailed` and `CallbackFailed` for code of the user that
raises.
"""

import re
import traceback
from pathlib import Path

OTHER_OUT = "choose another `out`"
# Fillers, blanks that are no white space, and variation selectors: printable to Python, but invisible.
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159\U000e0000-\U000e01ef]"
)
MAX_LINE = 4_000  # characters of one line: a path of the system can be as long


class InvalidInput(ValueError):
    """Input that its author can fix; the message says what is wrong, and what to write instead.

    The message has settings in backticks, by their Python names: `step_size`, or `step_size = 0`. The command line
    writes these as options, --step-size 0 (`cli.arguments.with_options`).

    The command line prints it as one line and exits with 2. What is raised besides `EnvironmentFailed` and
    `CallbackFailed` is a defect of this package or of the machine, and keeps its traceback.
    """

    def __str__(self) -> str:
        """The message; parts of it may come from anybody's file, and Python prints it too."""
        return printable(super().__str__())


def check_module(env_id: str, error: Exception) -> None:
    """Refuse an environment module:Name-v0 that failed because there is no such module."""
    module, separator, name = env_id.partition(":")
    if separator and module.endswith(".py"):
        raise InvalidInput(
            f"there is no environment {env_id!r}: write the module without .py, {module[:-3]}:{name}"
        ) from error
    if separator and getattr(error.__cause__, "name", None) == module:  # Gymnasium's error has no name itself
        raise InvalidInput(
            f"there is no module {module!r} among installed packages or on PYTHONPATH; for {module}.py in this "
            "folder, write PYTHONPATH=. before the command"
        ) from error


class EnvironmentFailed(RuntimeError):
    """A third-party environment raised, or returned a value outside its spaces.

    The exception is the cause. The command line prints one line and exits with 1; what is found before anything has
    run is `InvalidInput` instead.
    """


class CallbackFailed(Exception):
    """A callback raised an exception, which is the cause; the command line prints one line and exits with 1."""


def printable(text: str, limit: int = MAX_LINE) -> str:
    """Text that a terminal shows as it is, in one line; of more than `limit` characters, the middle is left out.

    Control characters, line breaks, marks that change the direction of text and invisible characters are
    written as escapes, like \\x1b.
    """
    if _is_visible(text) and len(text) <= limit:
        return text
    characters = _shortened(text, limit)
    escaped = (
        character if _is_visible(character) else character.encode("unicode_escape").decode() for character in characters
    )
    return _shortened("".join(escaped), limit)


def _is_visible(text: str) -> bool:
    return text.isprintable() and INVISIBLE.search(text) is None


def _shortened(text: str, limit: int) -> str:
    half = (limit - 5) // 2
    return text if len(text) <= limit else f"{text[:half]} ... {text[-half:]}"


def one_line(error: object) -> str:
    """A text without line breaks, such as the message of an exception."""
    return " ".join(str(error).split())


def without_marks(error: Exception) -> str:
    """The message without backticks, for a setting that is in a file and so is no option."""
    return str(error).replace("`", "")


def exception_text(error: BaseException) -> str:
    """The type of an exception, its message, and the file and line that raised it."""
    where = traceback.extract_tb(error.__traceback__)[1:][-1:]  # the first is its caller
    position = "".join(f" ({Path(at.filename).name}, line {at.lineno})" for at in where)
    message = one_line(error)
    return (f"{type(error).__name__}: {message}" if message else type(error).__name__) + position


def first_line(error: BaseException) -> str:
    """The first line of the message of an error of another library."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__
