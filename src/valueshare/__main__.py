"""`valueshare` and `python -m valueshare`: the command line, from its first import on."""

import io
import signal
import sys


def run() -> None:
    """Run a command; Ctrl-C ends it with one line even while libraries are being loaded."""
    # SIGTERM ends a command like an exception does, so that half-written folders are removed.
    # Training has handlers of its own.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our letters shows others
    try:
        from valueshare.cli import main

        main()
    except KeyboardInterrupt:
        print("valueshare: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
