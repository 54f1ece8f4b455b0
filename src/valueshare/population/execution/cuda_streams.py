"""CUDA streams of groups and of joint updates, and which of them waits for which."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from valueshare.population.execution.groups import Group, GroupedPopulation


class Streams:
    """Groups and joint updates may be on the same stream, the caller's; then nothing has to wait.

    On a CPU there are no streams, and all of this does nothing.
    """

    def __init__(self, grouped: GroupedPopulation) -> None:
        self._joint: torch.cuda.Stream | None = None
        self._learned: torch.cuda.Event | None = None
        self._groups: list[torch.cuda.Stream] = []  # except those that are `joint` as well
        if grouped.population.device.type == "cuda":
            self._caller = torch.cuda.current_stream(grouped.population.device)
            self._joint = grouped.learner.stream or self._caller
            streams = (group.stream or self._caller for group in grouped.groups)
            self._groups = [stream for stream in streams if stream != self._joint]

    def begin(self) -> None:
        """Make all streams wait for the work that the caller has launched."""
        if self._joint is not None:
            for stream in (self._joint, *self._groups):
                stream.wait_stream(self._caller)

    def end(self, *, wait: bool = False) -> None:
        """The caller's stream waits for all others; with `wait` the host does too."""
        if self._joint is not None:
            for stream in (self._joint, *self._groups):
                self._caller.wait_stream(stream)
            if wait:
                self._caller.synchronize()

    @contextmanager
    def joint(self) -> Iterator[None]:
        """Work launched within waits for all that the groups have launched so far."""
        if self._joint is None:
            yield
            return
        with torch.cuda.stream(self._joint):
            for stream in self._groups:
                self._joint.wait_stream(stream)
            yield

    def release(self) -> None:
        """Work that the groups launch from now on waits for the joint work so far."""
        if self._joint is not None and self._groups:
            done = self._joint.record_event()
            for stream in self._groups:
                stream.wait_event(done)

    def record_learning(self) -> None:
        """Let `after_learning` wait for the joint work so far."""
        if self._joint is not None:
            self._learned = self._joint.record_event()

    def after_learning(self) -> None:
        """Work launched on the current stream from now on waits for the last `record_learning`."""
        if self._learned is not None:
            torch.cuda.current_stream().wait_event(self._learned)

    @contextmanager
    def of(self, group: Group) -> Iterator[None]:
        """Make a group's stream the current one of this thread."""
        if self._joint is None:
            yield
            return
        stream = group.stream or self._caller
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            yield

    def switch(self, group: Group | None) -> None:
        """The same until the next switch, at less cost; None: the caller's stream."""
        if self._joint is not None:
            stream = None if group is None else group.stream
            torch.cuda.set_stream(stream or self._caller)
