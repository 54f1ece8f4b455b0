"""Where groups that go at their own pace meet, and what only one of them does at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from valueshare.population.engine import Engine

PATIENCE = 0.1  # seconds between looks at signals; a lock alone would not let them through


class Turns:
    """What only one group may do at a time; an update comes when nobody does any of it."""

    def __init__(self, engine: Engine) -> None:
        several, population = len(engine.groups) > 1, engine.population
        free: AbstractContextManager[object] = nullcontext()
        # On a CPU all groups compute with one module, into which each puts its agents' weights.
        on_cpu = several and population.device.type == "cpu"
        self.computing = threading.Lock() if on_cpu else free
        # Environments of Gymnasium are strangers' Python, which knows nothing of threads.
        strange = several and population.env.backend == "gymnasium"
        self.stepping = threading.Lock() if strange else free


class Meeting:
    """Where groups meet for an update: the last to come makes it, and nobody goes on before."""

    def __init__(self, groups: int, update: Callable[[int], None]) -> None:
        self._groups, self._update = groups, update
        self._changed = threading.Condition()
        self._came = 0
        self._updated: int | None = None  # the step of the last update
        self._failure: BaseException | None = None

    def come(self, t: int) -> None:
        """To the update of step t."""
        with self._changed:
            self._came += 1
            if self._came == self._groups:
                self._came = 0
                self._update(t)
                self._updated = t
                self._changed.notify_all()

    def wait(self, t: int) -> None:
        """Until the update of step t is made."""
        with self._changed:
            while self._updated != t and self._failure is None:
                self._changed.wait(PATIENCE)
        self.check()

    def check(self) -> None:
        """End the steps of this group if another has failed."""
        if self._failure is not None:
            raise _Ended

    @contextmanager
    def left_on_failure(self) -> Iterator[None]:
        """What is raised within ends the steps of all groups; `raise_failure` then raises it."""
        try:
            yield
        except _Ended:
            pass
        except BaseException as failure:
            with self._changed:
                self._failure = self._failure or failure
                self._changed.notify_all()

    def raise_failure(self) -> None:
        """What was raised, if anything; it is not kept, because it refers to all that was there."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure


class _Ended(Exception):
    """Another group has failed."""
