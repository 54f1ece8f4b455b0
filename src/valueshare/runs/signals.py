"""Signals that ask a run to end: it stops at the next tick, with all finished phases safe."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # what a shell answers for a command that Ctrl-C ended
PREEMPTED = 75  # EX_TEMPFAIL: try again later

EXIT_CODES = {
    signal.SIGINT: INTERRUPTED,
    signal.SIGTERM: PREEMPTED,
    signal.SIGUSR1: PREEMPTED,
}
# A compilation or a checkpoint may keep a run from its next tick. After this many seconds it is
# ended where it is: a phase that is not finished leaves no trace.
PATIENCE_SECONDS = 10


Handler = Callable[[int, FrameType | None], None]


class Stopped(BaseException):
    """Asked to end where it is: a run that did not come to its next tick in time, and every command
    that is no run."""

    def __init__(self, *words: str, exit_code: int = INTERRUPTED) -> None:
        super().__init__(*words)
        self.exit_code = exit_code


class StopRequest:
    """Whether a signal has asked the run to end; call it to find out.

    Before it is called for the first time nothing is written, and a signal ends the process itself.
    From then on it is a request, and the run has some seconds to come to its end: signals that come
    meanwhile ask for nothing new, and could only leave something half-done.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._is_heard = False
        self.is_over = False  # the run has ended: what comes now is not for it

    def __call__(self) -> bool:
        self._is_heard = True
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.signal] if self.signal is not None else 0

    def receive(self, number: int, _frame: FrameType | None) -> None:
        if self.is_over:
            return
        if not self._is_heard:
            _end_process(EXIT_CODES[signal.Signals(number)])
        if self.signal is None:
            self.signal = signal.Signals(number)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
        elif not signal.getitimer(signal.ITIMER_REAL)[0]:
            raise Stopped(exit_code=self.exit_code)

    def lose_patience(self, _number: int, _frame: FrameType | None) -> None:
        raise Stopped(exit_code=self.exit_code)


def ended_by_signal() -> Handler:
    """A handler that ends a command like an exception does, so that nothing half-written stays.

    While that is being removed it is not asked again: `timeout`, say, sends every signal twice.
    """
    ending = -math.inf

    def receive(number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        now = time.monotonic()
        if now - ending >= PATIENCE_SECONDS:
            ending = now
            raise KeyboardInterrupt if number == signal.SIGINT else Stopped(exit_code=128 + number)

    return receive


@contextmanager
def loading(exit_codes: Mapping[signal.Signals, int] = EXIT_CODES) -> Iterator[None]:
    """While libraries are being loaded, a signal ends the process itself, with one line."""

    def end(number: int, _frame: FrameType | None) -> None:
        _end_process(exit_codes[signal.Signals(number)])

    with _handled(dict.fromkeys(exit_codes, end)):
        yield


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGUSR1 into a request to stop; afterwards all is as before."""
    request = StopRequest()
    handlers: dict[signal.Signals, Handler] = dict.fromkeys(EXIT_CODES, request.receive)
    handlers[signal.SIGALRM] = request.lose_patience
    with _handled(handlers):
        try:
            yield request
        finally:
            request.is_over = True
            signal.setitimer(signal.ITIMER_REAL, 0)


def end_with(exit_code: int) -> None:
    """A command has ended with this: signals change nothing of it, and hurry what is left to do."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, RuntimeError):  # closed, or in use when it came
                stream.flush()
        os._exit(exit_code)

    for number in EXIT_CODES:
        signal.signal(number, end)


def ignore_signals() -> None:
    """For the very end: the interpreter would give them back their power to kill."""
    for number in EXIT_CODES:
        signal.signal(number, signal.SIG_IGN)


def _end_process(exit_code: int) -> NoReturn:
    """End at once, where nothing is there to be removed.

    An exception would not do: libraries that are being loaded lose it, show it, or abort.
    """
    os.write(2, b"valueshare: interrupted\n")
    os._exit(exit_code)


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """These handlers, and afterwards those from before."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
