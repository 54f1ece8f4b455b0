"""`valueshare` and `python -m valueshare`: the command line, from its first import on."""

import io
import signal
import sys

from valueshare.runs.signals import INTERRUPTED, Stopped, ended_by_signal


def run() -> None:
    """Run a command; a signal ends it with one line even while libraries are being loaded."""
    signal.signal(signal.SIGTERM, ended_by_signal())  # training has handlers of its own
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our letters shows others
    try:
        from valueshare.cli import main

        main()
    except (KeyboardInterrupt, Stopped) as stop:
        print("valueshare: interrupted", file=sys.stderr)
        sys.exit(getattr(stop, "exit_code", INTERRUPTED))


if __name__ == "__main__":
    run()
