"""Synchronisation of groups in threads: updates wait for all groups, and some work is exclusive."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from valueshare.population.state import Population

POLL_SECONDS = 0.1  # between checks for signals, which a lock alone would not let through


class Locks:
    """Locks for work that only one group may do at a time."""

    def __init__(self, population: Population, groups: int) -> None:
        unlocked: AbstractContextManager[object] = nullcontext()
        # On a CPU all groups compute with one module, which holds one group's weights at a time.
        on_cpu = groups > 1 and population.device.type == "cpu"
        self.computing = threading.Lock() if on_cpu else unlocked
        # Gymnasium environments are third-party Python code, which may not be thread-safe.
        third_party = groups > 1 and population.env.backend == "gymnasium"
        self.stepping = threading.Lock() if third_party else unlocked


class UpdateBarrier:
    """Groups arrive at an update: the last to arrive makes it, and none continues before that."""

    def __init__(self, groups: int, update: Callable[[int], None]) -> None:
        self._groups, self._update = groups, update
        self._changed = threading.Condition()
        self._arrived = 0
        self._updated: int | None = None  # the step of the last update
        self._failure: BaseException | None = None

    def arrive(self, t: int) -> None:
        """At the update of step t."""
        with self._changed:
            self._arrived += 1
            if self._arrived == self._groups:
                self._arrived = 0
                self._update(t)
                self._updated = t
                self._changed.notify_all()

    def wait(self, t: int) -> None:
        """Until the update of step t is made."""
        with self._changed:
            while self._updated != t and self._failure is None:
                self._changed.wait(POLL_SECONDS)
        self.check()

    def check(self) -> None:
        """End the steps of this group if another has failed."""
        if self._failure is not None:
            raise _Cancelled

    @contextmanager
    def cancel_on_failure(self) -> Iterator[None]:
        """An exception within ends the steps of all groups; `raise_failure` then raises it."""
        try:
            yield
        except _Cancelled:
            pass
        except BaseException as failure:
            with self._changed:
                self._failure = self._failure or failure
                self._changed.notify_all()

    def raise_failure(self) -> None:
        """Raise the first failure, if any; it is not kept, because its frames refer to tensors."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure


class _Cancelled(Exception):
    """Another group has failed."""
