"""On CUDA: the streams of groups and of what is joint, and what waits for what."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from valueshare.population.engine import Engine
from valueshare.population.groups import Group


class Streams:
    """Groups and joint work may be on the same stream, the caller's; then nothing has to wait.

    On a CPU there are none, and all of this does nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._joint: torch.cuda.Stream | None = None
        self._learned: torch.cuda.Event | None = None
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

    def note_learning(self) -> None:
        """What is joint so far is what `after_learning` waits for."""
        if self._joint is not None:
            self._learned = self._joint.record_event()

    def after_learning(self) -> None:
        """What the current stream gets from here on comes after what was noted last."""
        if self._learned is not None:
            torch.cuda.current_stream().wait_event(self._learned)

    @contextmanager
    def of(self, group: Group) -> Iterator[None]:
        """A group's stream is the current one of this thread."""
        if self._joint is None:
            yield
            return
        stream = group.stream or self._caller
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            yield

    def switch(self, group: Group | None) -> None:
        """The same until the next switch, which costs less; None: the caller's stream."""
        if self._joint is not None:
            own = None if group is None else group.stream
            torch.cuda.set_stream(own or self._caller)
