"""Signals that end a command: a run stops at its next step, with all finished phases safe."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # a shell's exit code for a command that Ctrl-C ended
PREEMPTED = 75  # EX_TEMPFAIL: try again later
PAGE_THREAD = "valueshare-page"  # serves the page of `watch`; the process ends without waiting for it

EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: PREEMPTED, signal.SIGUSR1: PREEMPTED}
# A compilation or a checkpoint may delay the next step. After this many seconds the run is ended at once: an unfinished
# phase leaves no trace.
GRACE_SECONDS = 10

Handler = Callable[[int, FrameType | None], None]


class Stopped(BaseException):
    """Ends a command at once: a run that did not reach its next step in time, or any other."""

    def __init__(self, *words: str, exit_code: int = INTERRUPTED) -> None:
        super().__init__(*words)
        self.exit_code = exit_code


class StopRequest:
    """Called by a run at every step: whether a signal has asked it to end.

    Before the first call nothing is written, and a signal ends the process at once. From then on it is a request, and
    the run has some seconds to end; further signals in that time are ignored.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._is_polled = False
        self.is_over = False  # the run has ended: later signals are ignored

    def __call__(self) -> bool:
        self._is_polled = True
        return self.signal is not None

    def raise_if_requested(self, *_: object) -> None:
        """Raise `Stopped` if a signal has come; for commands that write nothing before their end."""
        if self():
            raise Stopped("nothing was written", exit_code=self.exit_code)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.signal] if self.signal is not None else 0

    def receive(self, number: int, _frame: FrameType | None) -> None:
        if self.is_over:
            return
        if not self._is_polled:
            _end_process(EXIT_CODES[signal.Signals(number)])
        if self.signal is None:
            self.signal = signal.Signals(number)
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        elif not signal.getitimer(signal.ITIMER_REAL)[0]:
            raise Stopped(exit_code=self.exit_code)

    def time_out(self, _number: int, _frame: FrameType | None) -> None:
        raise Stopped(exit_code=self.exit_code)


def raise_on_signal() -> Handler:
    """A handler that ends a command by an exception, so that no half-written files stay.

    Further signals are ignored while files are removed: `timeout`, for example, sends each twice.
    """
    ending = -math.inf

    def receive(number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        now = time.monotonic()
        if now - ending >= GRACE_SECONDS:
            ending = now
            raise KeyboardInterrupt if number == signal.SIGINT else Stopped(exit_code=128 + number)

    return receive


@contextmanager
def exit_during_import(exit_codes: Mapping[signal.Signals, int] = EXIT_CODES) -> Iterator[None]:
    """While libraries are loaded, a signal ends the process at once, with one line."""

    def end(number: int, _frame: FrameType | None) -> None:
        _end_process(exit_codes[signal.Signals(number)])

    with handled(dict.fromkeys(exit_codes, end)):
        yield


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGUSR1 into a request to stop; afterwards all is as before."""
    request = StopRequest()
    handlers: dict[signal.Signals, Handler] = dict.fromkeys(EXIT_CODES, request.receive)
    handlers[signal.SIGALRM] = request.time_out
    with handled(handlers):
        try:
            yield request
        finally:
            request.is_over = True
            signal.setitimer(signal.ITIMER_REAL, 0)


def exit_code_on_signal(exit_code: int) -> None:
    """After a command has ended, a signal ends the process at once with the same exit code."""

    for number in EXIT_CODES:
        signal.signal(number, lambda _number, _frame: flush_and_exit(exit_code))


def flush_and_exit(exit_code: int) -> NoReturn:
    """End the process at once, with all that was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # closed, in use when a signal came, or nobody reads it
            stream.flush()
    os._exit(exit_code)


def ignore_signals() -> None:
    """Ignore signals at exit: the interpreter would restore the default handlers, which kill the process."""
    for number in EXIT_CODES:
        signal.signal(number, signal.SIG_IGN)


def _end_process(exit_code: int) -> NoReturn:
    """End the process at once: libraries that are being loaded would swallow an exception, print it, or abort."""
    os.write(2, b"valueshare: interrupted\n")
    os._exit(exit_code)


@contextmanager
def handled(handlers: Mapping[signal.Signals, Handler | signal.Handlers | int | None]) -> Iterator[None]:
    """These handlers, and afterwards those from before."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
