"""Learning and acting of a population of Atari agents on a GPU, without the emulators.

    python benchmarks/gpu_atari.py                    # 16 agents, every row that 100 s allow
    python benchmarks/gpu_atari.py --rows dqn iqn --kernels

A row is one compiled and captured step of the population: an update (sample, differentiate, Adam) of DQN or IQN with
the paper's network, batch and quantiles, or acting on one observation each. Prints one table last.
Without an installed valueshare, put src/ on PYTHONPATH.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from valueshare.envs.base import EnvironmentSpec
from valueshare.nn import operators
from valueshare.population.act import act
from valueshare.population.agents import agent_table
from valueshare.population.devices import training_on
from valueshare.population.execution.cuda_graphs import GraphedStep, capture_all
from valueshare.population.learn import learn
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.state import State, initial_state, make_population
from valueshare.replay.transitions import SAMPLING_LAG

REPLAY = 4_000  # transitions an agent: enough that no cache holds them


class Row(NamedTuple):
    """A step to time: an algorithm, learning or acting, and whether it is compiled and has kernels of its own."""

    algorithm: str
    step: str = "learn"
    compiled: bool = True
    kernels: bool = True


# In the order of their use: what does not fit into the time is left out.
ROWS = {
    "dqn": Row("dqn"),
    "iqn": Row("iqn"),
    "dqn acting": Row("dqn", "act"),
    "iqn acting": Row("iqn", "act"),
    "rdq": Row("rdq"),
    "dqn not compiled": Row("dqn", compiled=False),
    "dqn without kernels": Row("dqn", kernels=False),
    "iqn without kernels": Row("iqn", kernels=False),
}


def main() -> None:
    options = parsed()
    began = time.perf_counter()
    console = Console(width=120)
    device = torch.device(options.device)
    console.print(f"torch {torch.__version__}, {device_name(device)}", highlight=False)
    results: list[dict[str, Any]] = []
    with training_on(device, tf32=True):
        if device.type == "cuda":
            print_products(console, options, device)
        for name in options.rows:
            left = options.limit - (time.perf_counter() - began)
            if left < options.longest:
                results.append({"row": name, "error": "no time left"})
                continue
            try:
                results.append({"row": name, **timed(ROWS[name], options, device)})
            except Exception as error:  # the other rows are still wanted
                results.append({"row": name, "error": f"{type(error).__name__}: {error}"[:300]})
            print(json.dumps(results[-1]), flush=True)  # what is known so far
            if options.out is not None:
                options.out.mkdir(parents=True, exist_ok=True)
                text = json.dumps({"device": device_name(device), "rows": results}, indent=1)
                (options.out / "gpu_atari.json").write_text(text + "\n")
    console.print(table_of(results, options, device))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--limit", type=float, default=100.0, help="seconds in all")
    parser.add_argument("--longest", type=float, default=18.0, help="seconds a row may need")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--kernels", type=int, nargs="?", const=14, help="so many of the slowest kernels of each row")
    parser.add_argument("--out", type=Path, default=None, help="folder for gpu_atari.json")
    return parser.parse_args()


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def timed(row: Row, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Milliseconds a step, seconds of compiling and capturing, and the most memory in use."""
    with patch.object(operators, "available", operators.available if row.kernels else lambda weight: False):
        return measured(lambda: step_of(row, options, device), options.kernels, device)


def measured(
    make: Callable[[], tuple[GraphedStep, State]], kernels: int | None, device: torch.device
) -> dict[str, Any]:
    """The same of the step that `make` returns, whose slowest `kernels` are printed."""
    cuda = device.type == "cuda"
    torch.compiler.reset()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    step, state = make()
    began = time.perf_counter()
    if cuda:
        capture_all([step], device)
    else:
        step()
    seconds = time.perf_counter() - began
    ms = milliseconds(step, device)
    if kernels and cuda:
        print_kernels(step, ms, kernels)
    diverged = int((state.diverged_at >= 0).sum())
    return {
        "ms": round(ms, 4),
        "compile_s": round(seconds, 1),
        "peak_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 2) if cuda else 0.0,
        **({"error": f"{diverged} agents diverged"} if diverged else {}),
    }


def step_of(row: Row, options: argparse.Namespace, device: torch.device) -> tuple[GraphedStep, State]:
    quantiles = row.algorithm == "iqn"
    mean = quantiles or row.algorithm == "rdq"
    settings = TrainingSettings(
        steps=REPLAY,
        checkpoint_interval=REPLAY,
        eval_interval=REPLAY,
        hidden=(512,),
        batch_size=options.batch_size,
        replay_capacity=REPLAY,
        reduction="mean" if mean else "sum",
        optimizer_epsilon=3.125e-4 if quantiles else 1.5e-4,
        clip_rewards=True,
        tf32=True,
    )
    env = EnvironmentSpec(
        name="noise",
        backend="gymnasium",
        observation_shape=(84, 84),
        observation_dtype=np.dtype(np.uint8),
        actions=18,
        episode_limit=None,
        stack=4,
    )
    agent_settings = AgentSettings(step_size=5e-5 if quantiles else 6.25e-5)
    agents = agent_table("noise", row.algorithm, seeds=range(options.agents), agent_settings=agent_settings)
    population = make_population(agents, settings, env, device)
    state = initial_state(population)
    fill(state)
    seen = state.replay.observation[:, :4].clone()  # [P, 4, 84, 84]
    actions = torch.zeros(options.agents, dtype=torch.int64, device=device)

    def act_step() -> None:
        actions.copy_(act(population, state, seen))

    def learn_step() -> None:
        learn(population, state)
        state.step.add_(1)  # other transitions every time

    function = act_step if row.step == "act" else learn_step
    compiled = row.compiled and not options.eager
    return GraphedStep(function, device, compiled=compiled), state


def fill(state: State) -> None:
    """Noise in every frame, transitions everywhere, none of them near an episode's start."""
    replay = state.replay
    count = replay.action.shape[1]
    replay.observation.random_(0, 256)
    replay.action.random_(0, 18)
    replay.reward.random_(-1, 2)
    replay.discount.fill_(0.99)
    replay.row.copy_(torch.arange(count, device=replay.row.device))
    replay.age.fill_(3)
    replay.rows.fill_(count + 1)
    replay.written.fill_(count)
    replay.oldest.fill_(SAMPLING_LAG)


def milliseconds(step: Callable[[], object], device: torch.device, seconds: float = 0.4) -> float:
    """The median of five stretches, each timed by the device itself."""

    def stretch(count: int) -> float:
        if device.type != "cuda":
            began = time.perf_counter()
            for _ in range(count):
                step()
            return 1e3 * (time.perf_counter() - began) / count
        first, last = event(), event()
        first.record()
        for _ in range(count):
            step()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / count

    count = max(1, int(seconds / 5 * 1e3 / stretch(3)))
    return median(stretch(count) for _ in range(5))


def event() -> torch.cuda.Event:
    made: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return made


def print_products(console: Console, options: argparse.Namespace, device: torch.device) -> None:
    """Each matrix product of an update alone: what no arrangement around them can go below."""
    p, b = options.agents, options.batch_size
    # rows of the patches, numbers a patch, outputs
    layers = {
        "convolution 1": (400, 256, 32),
        "convolution 2": (81, 512, 64),
        "convolution 3": (49, 576, 64),
        "dense": (1, 3136, 512),
        "iqn embedding": (64, 64, 3136),
        "iqn dense": (64, 3136, 512),
    }
    table = Table(title=f"microseconds of the matrix products, {p} agents, batch {b}, TF32")
    for heading in ("layer", "forwards", "of inputs", "of weights", *(f"/{s}" for s in (2, 4, 8))):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for name, (rows, k, n) in layers.items():
        x = torch.randn(p, b * rows, k, device=device)
        w = torch.randn(p, k, n, device=device)
        y = torch.randn(p, b * rows, n, device=device)

        pairs = [(x, w), (y, w.transpose(1, 2))]
        for parts in (1, 2, 4, 8):
            of_x, of_y = (t.reshape(p * parts, -1, t.shape[-1]) for t in (x, y))
            pairs.append((of_x.transpose(1, 2), of_y))
        times = [1e3 * milliseconds(partial(torch.bmm, *pair), device, 0.02) for pair in pairs]
        table.add_row(name, *(f"{t:,.0f}" for t in times))
    console.print(table)


def print_kernels(step: Callable[[], None], ms: float, most: int) -> None:
    """The kernels that take most of a step, from the profiler."""
    from torch.profiler import ProfilerActivity, profile

    count = 20
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(count):
            step()
        torch.cuda.synchronize()
    averages = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
    busy = sum(e.self_device_time_total for e in averages) / count
    print(f"  {ms:.3f} ms per step, {busy / 1e3:.3f} of it in {len(averages)} kinds of kernels:")
    for event in averages[:most]:
        microseconds = event.self_device_time_total / count
        print(f"  {microseconds:8.1f} us  {event.count // count:4d} x  {event.key[:150]}")


def table_of(results: list[dict[str, Any]], options: argparse.Namespace, device: torch.device) -> Table:
    table = Table(
        title=f"{options.agents} Atari agents, batch {options.batch_size}, TF32, {device_name(device)}",
        caption="learning: sample, differentiate, Adam; acting: one observation each",
    )
    for heading in ("row", "step", "kernels", "ms", "compile s", "peak GB", "remark"):
        table.add_column(heading, justify="right" if heading[:2] in ("ms", "co", "pe") else "left")
    for result in results:
        row = ROWS[result["row"]]
        numbers = (str(result.get(name, "-")) for name in ("ms", "compile_s", "peak_gb"))
        step = {"learn": "learning", "act": "acting"}[row.step]
        table.add_row(result["row"], step, "yes" if row.kernels else "no", *numbers, result.get("error", ""))
    return table


if __name__ == "__main__":
    main()
