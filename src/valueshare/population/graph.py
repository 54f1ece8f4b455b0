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

    def capture(self, pool: Any = None) -> None:
        """Warm up and capture. The function runs a few times: put back afterwards what it wrote.

        Steps that never run at the same time, and leave their results in tensors made outside, can
        share one `pool` of memory for what they need in between.
        """
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(3):  # compilation, autotuning and lazy initialisation happen here
                self._run()
        torch.cuda.current_stream(self._device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._run()

    def __call__(self) -> None:
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()


def capture_all(steps: Sequence[GraphedStep], device: torch.device) -> None:
    """Capture steps that run one after the other; nothing to do on a CPU."""
    if device.type == "cuda":
        from torch._inductor import config

        pool = torch.cuda.graph_pool_handle()
        # The compiler's worker processes stay ready for more and cost the environments a third of
        # their speed; sent away, they leave some of that behind. Compiled here there are none.
        with config.patch(compile_threads=1):
            for step in steps:
                step.capture(pool)
