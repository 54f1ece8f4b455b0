"""Writing in a thread: a checkpoint is written while the next phase trains."""

from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import NamedTuple, Self


class Pending(NamedTuple):
    """A checkpoint that is being written, and the function to call when it is published."""

    written: futures.Future[None]
    on_written: Callable[[], None]


class CheckpointWriter:
    """Writes one checkpoint at a time: in a thread where it is `in_background`, else at once.

    The thread that trains calls `poll` at every step. It is the one in which published checkpoints are reported and
    failures of the writer are raised. The context does not end before the write under way does.
    """

    def __init__(self, *, in_background: bool) -> None:
        self._in_background = in_background
        self._thread = futures.ThreadPoolExecutor(1, "checkpoint")  # started by the first submission
        self._pending: Pending | None = None

    def write(self, save: Callable[[], None], on_written: Callable[[], None]) -> None:
        """Save a checkpoint; `wait` comes first. In the background, what `save` reads must be copies."""
        assert self._pending is None
        if self._in_background:
            self._pending = Pending(self._thread.submit(save), on_written)
        else:
            save()
            on_written()

    def poll(self) -> None:
        """Report the checkpoint under way if it is published; raise the error if it failed."""
        if self._pending is not None and self._pending.written.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the checkpoint under way, if any, and report it or raise the error."""
        if self._pending is None:
            return
        written, on_written = self._pending
        futures.wait([written])
        self._pending = None
        written.result()
        on_written()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None or isinstance(error, Exception):  # not where a command is ended at once
                self.wait()
        finally:
            self._thread.shutdown()
