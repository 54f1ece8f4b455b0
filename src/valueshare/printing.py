"""The one place that prints: text from the files of others cannot control the terminal."""

import sys

from valueshare.errors import printable


def print_line(*lines: str, error: bool = False) -> None:
    """Print lines at once, each as one line of printable characters; an `error` goes to standard error."""
    for line in lines:
        try:
            print(printable(line), file=sys.stderr if error else sys.stdout, flush=True)
        except BrokenPipeError:
            raise
        except OSError as failed:
            name = "standard error" if error else "standard output"
            raise OSError(failed.errno, f"cannot write to {name}: {failed.strerror}") from failed
