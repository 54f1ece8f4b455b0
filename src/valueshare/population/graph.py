"""One step of device work: eager, compiled, or on CUDA captured once and replayed."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


class GraphedStep:
    """A function without arguments that works in place on tensors which never move.

    Until `capture`, and always on a CPU, a call runs the function. After it, on CUDA, a call
    replays one graph: hundreds of kernels for the price of one launch, and the host does not wait.
    """

    def __init__(
        self, function: Callable[[], None], device: torch.device, *, compiled: bool
    ) -> None:
        self._device = device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._run: Callable[[], None] = (
            torch.compile(function, fullgraph=True, dynamic=False) if compiled else function
        )

    def capture(self, pool: Any = None, stream: "torch.cuda.Stream | None" = None) -> None:
        """Warm up and capture. The function runs a few times: put back afterwards what it wrote.

        Steps that never run at the same time, and leave their results in tensors made outside, can
        share one `pool` of memory for what they need in between, and one `stream` to be captured
        on. Steps that do run at the same time need streams of their own: cuBLAS has one workspace
        for each stream, and a graph goes on using that of its capture, wherever it is replayed.
        """
        stream = new_stream(self._device) if stream is None else stream
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(3):  # compilation, autotuning and lazy initialisation happen here
                self._run()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=stream):
            self._run()

    def __call__(self) -> None:
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()


def capture_all(steps: Sequence[GraphedStep], device: torch.device) -> None:
    """Capture steps that run one after the other; nothing to do on a CPU.

    Steps of different calls may run at the same time: memory and workspaces are each call's own.
    """
    if device.type == "cuda":
        from torch._inductor import config

        pool, stream = torch.cuda.graph_pool_handle(), new_stream(device)
        # The compiler's worker processes stay ready for more and cost the environments a third of
        # their speed; sent away, they leave some of that behind. Compiled here there are none.
        with config.patch(compile_threads=1):
            for step in steps:
                step.capture(pool, stream)


def new_stream(device: torch.device) -> "torch.cuda.Stream":
    """A stream that differs from the last few: PyTorch hands out 32 in turn."""
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream
