"""CUDA graphs: a step of device work is captured once and then replayed."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from valueshare.population.compilation import compiled_if


class GraphedStep:
    """A function without arguments that works in place on tensors which never move.

    Until `capture`, and always on a CPU, a call runs the function. After it, on CUDA, a call
    replays one graph: hundreds of kernels for the price of one launch, and the host does not wait.
    """

    def __init__(
        self,
        function: Callable[[], None],
        device: torch.device,
        *,
        compiled: bool,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` and `after` are copies from and to the host: captured, and never compiled."""
        self._device = device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._function = compiled_if(compiled, function)
        self._before, self._after = before, after

    def capture(self, pool: Any, stream: "torch.cuda.Stream") -> None:
        """Warm up and capture. The function runs a few times: put back afterwards what it wrote.

        Steps that never run at the same time, and leave their results in tensors made outside, can
        share one `pool` of memory for what they need in between, and one `stream` to be captured
        on. Steps that do run at the same time need streams of their own: cuBLAS has one workspace
        for each stream, and a graph keeps using that of its capture, wherever it is replayed.
        """
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(3):  # compilation, autotuning and lazy initialisation happen here
                self._run()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        # JAX has threads that use the same device, and calls of theirs must not end this capture.
        with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self._run()
        self._graph.replay()  # a graph's first launch may wait for all streams: not later

    def release(self) -> None:
        """Give up the graph, whose memory the device can then use again; it must not run any more."""
        self._graph = None

    def __call__(self) -> None:
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def _run(self) -> None:
        self._before()
        self._function()
        self._after()


def capture_all(
    steps: Sequence[GraphedStep],
    device: torch.device,
    *,
    high_priority: bool = False,
    stream: "torch.cuda.Stream | None" = None,
) -> None:
    """Capture steps that run one after the other; nothing to do on a CPU.

    Steps of different calls may run at the same time: memory and workspaces are each call's own.
    Where they do, the GPU prefers kernels of `high_priority` ones: a graph keeps the priority of the
    stream it was captured on, which is `stream` or a new one.
    """
    if device.type == "cuda":
        from torch._inductor import config

        pool = torch.cuda.graph_pool_handle()
        stream = new_stream(device, high_priority=high_priority) if stream is None else stream
        # The compiler's worker processes keep running and cost the environments a third of their
        # speed, some of it even after they are stopped. Compiling in this process needs none.
        with config.patch(compile_threads=1), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
            for step in steps:
                step.capture(pool, stream)


def new_stream(device: torch.device, *, high_priority: bool = False) -> "torch.cuda.Stream":
    """A stream that differs from the last few: PyTorch hands out 32 of each priority in turn."""
    priority = -1 if high_priority else 0
    stream: torch.cuda.Stream = torch.cuda.Stream(device, priority)  # type: ignore[no-untyped-call]
    return stream
