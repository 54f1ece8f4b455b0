"""`valueshare` and `python -m valueshare`: the command line, from its first import on."""

import os
import sys

# `python -m` puts the current folder first in sys.path, and a module that a run folder names would be imported from
# there. PYTHONPATH=. puts it there on purpose, as a second entry, which stays.
if __name__ == "__main__" and not sys.flags.safe_path:
    try:
        current = os.getcwd()  # noqa: PTH109 (before modules that could come from that folder)
    except OSError:  # it was deleted
        current = ""
    if sys.path[0] in ("", current):
        del sys.path[0]

import atexit
import faulthandler
import io
import logging
import signal
import threading
from contextlib import suppress

from valueshare.errors import printable
from valueshare.host_memory import NO_ADDRESSES, has_small_address_space, is_out_of_memory
from valueshare.printing import print_line
from valueshare.signals import (
    INTERRUPTED,
    PAGE_THREAD,
    exit_code_on_signal,
    exit_during_import,
    flush_and_exit,
    ignore_signals,
    raise_on_signal,
)

COMMAND_EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: 128 + signal.SIGTERM}  # while nothing is training


class _OneLine(logging.Formatter):
    """Formats warnings as printable text: they may quote file names and contents."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def run() -> None:
    """Run a command; a signal ends it with one line even while libraries are being loaded."""
    atexit.register(ignore_signals)  # the first is called last
    with suppress(OSError, RuntimeError):  # no file to write to
        faulthandler.enable()  # a library that crashes would say nothing
    # A shell makes its background jobs ignore Ctrl-C; that is kept.
    codes = {n: code for n, code in COMMAND_EXIT_CODES.items() if signal.getsignal(n) != signal.SIG_IGN}
    with exit_during_import(codes):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that lacks a character shows another
        if has_small_address_space():  # libraries would abort or hang while they load, each in its own way
            print_line(f"valueshare: {NO_ADDRESSES}", error=True)
            sys.exit(1)
        try:
            from valueshare.cli import main
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            print_line("valueshare: out of memory: the libraries cannot be loaded", error=True)
            sys.exit(1)
    end = raise_on_signal()
    for number in codes:
        signal.signal(number, end)  # training has handlers of its own
    handler, logger = logging.StreamHandler(), logging.getLogger("valueshare")
    handler.setFormatter(_OneLine("note: %(message)s"))  # the command goes on: it is not an error
    logger.addHandler(handler)
    try:
        main()
    except SystemExit as ended:
        exit_code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        exit_code_on_signal(exit_code)
        _exit_if_page_is_being_built(exit_code)
        raise
    finally:
        logger.removeHandler(handler)
    exit_code_on_signal(0)
    _exit_if_page_is_being_built(0)


def _exit_if_page_is_being_built(exit_code: int) -> None:
    """End the process now if `watch` builds a page: a thread that is in C++ when the interpreter ends aborts it."""
    if any(thread.name == PAGE_THREAD for thread in threading.enumerate()):
        flush_and_exit(exit_code)


if __name__ == "__main__":
    run()
