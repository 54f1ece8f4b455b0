"""The cost of the mean-expansion layer in the Nature network, forward and backward.

The networks alternate within one run, so that a busy machine slows all of them alike. The network without the layer
runs twice: the second one's distance to ratio 1 is the noise of the machine.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from valueshare.benchmarks.output import Output, Row
from valueshare.nn.append import append_mean_expansion
from valueshare.nn.expansion import MeanExpansion

REPEATS, BATCH_SIZE, ACTIONS = 50, 32, 18
ALONE = "the layer alone"


def nature_network(actions: int) -> nn.Module:
    """The network of Mnih et al. (2015). Shapes: frames [B, 4, 84, 84] -> q [B, actions]."""
    return nn.Sequential(
        nn.Conv2d(4, 32, kernel_size=8, stride=4),  # [B, 32, 20, 20]
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=4, stride=2),  # [B, 64, 9, 9]
        nn.ReLU(),
        nn.Conv2d(64, 64, kernel_size=3, stride=1),  # [B, 64, 7, 7]
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, actions),
    )


def measure(device: str, repeats: int = REPEATS, batch_size: int = BATCH_SIZE, actions: int = ACTIONS) -> list[Row]:
    """Time the network without the layer, the same again, with it (k = `actions`), and it alone.

    Each is compared with the network without the layer in the same round; the layer alone has no such limit.
    """
    networks = {
        "without": nature_network(actions),
        "without, again": nature_network(actions),
        "with": append_mean_expansion(nature_network(actions), actions),
    }
    frames = torch.rand(batch_size, 4, 84, 84, device=device)
    passes = {name: _forward_backward(m.to(device), frames) for name, m in networks.items()}
    z = torch.rand(batch_size, actions, device=device, requires_grad=True)
    passes[ALONE] = _forward_backward(MeanExpansion(actions, device=device), z)
    forward_backward = list(passes.values())
    for forward_and_backward in forward_backward * 3:  # warm up: memory, threads, kernels
        forward_and_backward()
    rng = np.random.default_rng(0)  # a new order each round: none is always first
    ms = np.empty((repeats, len(forward_backward)))  # [rounds, networks]
    for row in ms:
        for i in rng.permutation(len(forward_backward)):
            row[i] = forward_backward[i]()
    rows = []
    for name, median, ratios in zip(passes, np.median(ms, 0).tolist(), (ms / ms[:, :1]).T, strict=True):
        low, ratio, high = np.percentile(ratios, [25, 50, 75]).tolist()
        limit, share = ("", None) if name == ALONE else ("without the layer", 1 / ratio)
        note = f"{ratio:.3f} ({low:.3f} to {high:.3f}) of the time without"
        rows.append(Row(f"{name}, {device}", median, 1e3 / median, limit, share, note))
    return rows


def run(as_json: bool = False) -> None:
    """`valueshare bench layer`: on the CPU, and on the GPU where there is one."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    output = Output("layer", "passes", as_json=as_json)
    output.say(f"Nature network, forward and backward, batch size {BATCH_SIZE}, {ACTIONS} actions")
    output.say(f"medians of {REPEATS} passes; the networks alternate")
    for device in devices:
        for row in measure(device):
            output.add(row)
    output.end(devices[-1])


def _forward_backward(network: nn.Module, x: torch.Tensor) -> Callable[[], float]:
    """A function that runs one pass and returns its milliseconds."""
    on_gpu = x.is_cuda

    def timed_pass() -> float:
        network.zero_grad(set_to_none=True)
        x.grad = None
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        network(x).square().mean().backward()
        if on_gpu:
            torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    return timed_pass
