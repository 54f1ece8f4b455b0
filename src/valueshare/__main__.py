"""`valueshare` and `python -m valueshare`: the command line, from its first import on."""

import io
import signal
import sys

from valueshare.runs.signals import INTERRUPTED, ended_by_signal, ignore_signals, loading

EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: 128 + signal.SIGTERM}


def run() -> None:
    """Run a command; a signal ends it with one line even while libraries are being loaded."""
    # A shell has its background jobs ignore Ctrl-C: so do we.
    codes = {n: code for n, code in EXIT_CODES.items() if signal.getsignal(n) != signal.SIG_IGN}
    with loading(codes):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without our letters shows others
        from valueshare.cli import main
    end = ended_by_signal()
    for number in codes:
        signal.signal(number, end)  # training has handlers of its own
    try:
        main()
    finally:
        ignore_signals()


if __name__ == "__main__":
    run()
