"""Signals that ask a run to end: it stops at the next tick, with all finished phases safe."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

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
    """Asked to end where it is: a run that did not come to its next tick in time, or was asked
    twice, and every command that is no run."""

    def __init__(self, *words: str, exit_code: int = INTERRUPTED) -> None:
        super().__init__(*words)
        self.exit_code = exit_code


class StopRequest:
    """Whether a signal has asked the run to end; call it to find out."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.signal] if self.signal is not None else 0

    def receive(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise Stopped(exit_code=self.exit_code)
        self.signal = signal.Signals(number)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)

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
            raise Stopped(exit_code=128 + number)

    return receive


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGUSR1 into a request to stop; afterwards all is as before."""
    request = StopRequest()
    handlers: dict[signal.Signals, Handler] = dict.fromkeys(EXIT_CODES, request.receive)
    handlers[signal.SIGALRM] = request.lose_patience
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield request
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
