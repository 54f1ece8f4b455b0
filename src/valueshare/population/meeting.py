"""Where groups that go at their own pace meet, what only one does at a time, and what waits."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from valueshare.population.engine import Engine
from valueshare.population.groups import Group

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

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

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


class Streams:
    """On CUDA: the streams of groups and of what is joint, and what waits for what.

    Groups and joint work may be on the same stream, the caller's; then nothing has to wait.
    """

    def __init__(self, engine: Engine) -> None:
        self._joint: torch.cuda.Stream | None = None
        self._groups: list[torch.cuda.Stream] = []  # but for those that are `joint` as well
        if engine.population.device.type == "cuda":
            self._caller = torch.cuda.current_stream(engine.population.device)
            self._joint = engine.learner.stream or self._caller
            own = (group.stream or self._caller for group in engine.groups)
            self._groups = [stream for stream in own if stream != self._joint]

    def begin(self) -> None:
        """Everything comes after what the caller has launched."""
        if self._joint is not None:
            for stream in (self._joint, *self._groups):
                stream.wait_stream(self._caller)

    def end(self, *, at_once: bool = False) -> None:
        """What the caller launches next comes after everything; `at_once`: the host waits too."""
        if self._joint is not None:
            for stream in (self._joint, *self._groups):
                self._caller.wait_stream(stream)
            if at_once:
                self._caller.synchronize()

    @contextmanager
    def joint(self) -> Iterator[None]:
        """What is launched within comes after all that the groups have launched so far."""
        if self._joint is None:
            yield
            return
        with torch.cuda.stream(self._joint):
            for stream in self._groups:
                self._joint.wait_stream(stream)
            yield

    def release(self) -> None:
        """What the groups launch from here on comes after what is joint so far."""
        if self._joint is not None and self._groups:
            done = self._joint.record_event()
            for stream in self._groups:
                stream.wait_event(done)

    @contextmanager
    def of(self, group: Group) -> Iterator[None]:
        """A group's stream is the current one of this thread."""
        if self._joint is None:
            yield
            return
        stream = group.stream or self._caller
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            yield
