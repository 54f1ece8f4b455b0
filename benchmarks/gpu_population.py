"""Cost of a population against its size: the time of a step, part by part, on a GPU machine.

    python benchmarks/gpu_population.py                       # the paper's LunarLander settings
    python benchmarks/gpu_population.py --agents 2040 --compile --tf32 --trace

Prints one table last; --out names a folder for population.json, population.parquet and a figure.
Without an installed valueshare, put src/ on PYTHONPATH.
"""

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from rich.console import Console
from rich.table import Table

from valueshare.benchmarks import population
from valueshare.benchmarks.output import versions_line
from valueshare.benchmarks.population import PARTS, Timing
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.engine import Engine
from valueshare.population.execution.executor import GroupExecutor
from valueshare.population.execution.groups import choose_actions
from valueshare.population.execution.learner import update_due
from valueshare.report.figures.series import millions
from valueshare.report.figures.style import BLUE, ORDER, house_style, save

SIZES = (1, 8, 32, 128, 512, 2_040)
TRACED_STEPS = 300


def main() -> None:
    options = parsed()
    console = Console(width=140)
    console.print(versions_line(options.device), highlight=False)
    preset = population.preset_named(options.preset)
    preset = preset._replace(settings=replace(preset.settings, tf32=options.tf32))
    rows: list[dict[str, Any]] = []
    for agents in options.agents:
        for compiled in (False, True) if options.both else (options.compile,):
            began = time.perf_counter()
            measured = partial(
                population.measure,
                agents,
                preset,
                device=options.device,
                compiled=compiled,
                threads=options.threads,
            )
            timing = measured(seconds=options.seconds, trace=traced if options.trace else None)
            for groups in (1, *options.groups):
                if groups > 1:  # the parts alone are the same
                    population.release(options.device)
                    loop = measured(seconds=options.seconds / 2, groups=groups, only=("whole loop",))
                    timing = replace(timing, ms={**timing.ms, **loop.ms})
                seconds = time.perf_counter() - began
                rows.append(row_of(timing, groups, compiled, options.tf32, seconds))
                print(json.dumps(rows[-1]), flush=True)  # what is known so far
                write(rows, options)
            population.release(options.device)
    console.print(table_of(rows, options))
    if options.out is not None:
        save(cost_against_agents(pl.DataFrame(rows)), options.out, "cost-against-agents")


def cost_against_agents(timings: pl.DataFrame) -> Figure:
    """Cost of a population's step against its size: ms of each stage, and agent-steps/s.

    One row per size: `agents`, a column `STAGE_ms` for each stage, `agent_steps_per_s`.
    """
    line = timings.sort("agents")
    stages = [name for name in line.columns if name.endswith("_ms")]
    sizes = line["agents"].to_list()
    with house_style():
        figure = Figure(figsize=(7.2, 2.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for stage, colour in zip(stages, ORDER, strict=False):
            name = stage.removesuffix("_ms").replace("_", " ")
            left.plot(sizes, line[stage], marker="o", color=colour, label=name)
        left.set_ylabel("ms per step of all agents")
        left.legend(loc="upper left")
        right.plot(sizes, line["agent_steps_per_s"], marker="o", color=BLUE)
        right.set_ylabel("agent-steps per second")
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(millions))
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axes.set_xlabel("agents")
            axes.minorticks_off()
    return figure


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring, each size")
    parser.add_argument("--preset", default="lunarlander-paper")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=None, help="of the environments")
    parser.add_argument("--groups", type=int, nargs="*", default=[], help="of agents, too")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--both", action="store_true", help="not compiled, then compiled")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--out", type=Path, default=None, help="folder for the numbers")
    parser.add_argument("--trace", action="store_true", help="where the host's time goes in a step")
    return parser.parse_args()


def row_of(timing: Timing, groups: int, compiled: bool, tf32: bool, seconds: float) -> dict[str, Any]:
    return {
        "agents": timing.agents,
        "groups": groups,
        "compiled": compiled,
        "tf32": tf32,
        **{f"{part.replace(' ', '_')}_ms": round(timing.ms[part], 4) for part in PARTS},
        "agent_steps_per_s": round(timing.rate("whole loop")),
        "limit": timing.limit,
        "share_of_limit": round(timing.share, 3),
        "seconds": round(seconds, 1),  # with setting up and compiling
    }


def table_of(rows: list[dict[str, Any]], options: argparse.Namespace) -> Table:
    table = Table(title=f"ms per step of all agents; {options.preset}, {options.device}")
    shown = (
        "agents",
        "groups",
        "compiled",
        "tf32",
        *(f"{part.replace(' ', '_')}_ms" for part in PARTS),
    )
    shown += ("agent_steps_per_s", "limit", "share_of_limit")
    for name in shown:
        table.add_column(name.removesuffix("_ms").replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(cell(row[name]) for name in shown))
    return table


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.out is None:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"versions": versions_line(options.device), "preset": options.preset}
    text = json.dumps({**about, "rows": rows}, indent=1)
    (options.out / "population.json").write_text(text + "\n")
    pl.DataFrame(rows).write_parquet(options.out / "population.parquet")


def traced(engine: Engine) -> None:
    """Print where the host spends a step: each call, with its time."""
    assert isinstance(engine.executor, GroupExecutor), "the trace is for a GPU"
    settings, learner = engine.population.settings, engine.executor.grouped.learner
    group = engine.executor.grouped.groups[0]
    buffers, environments = group.buffers, group.environments
    spent: dict[str, float] = {}
    before = time.perf_counter()

    def note(name: str) -> None:
        nonlocal before
        now = time.perf_counter()
        spent[name] = spent.get(name, 0.0) + now - before
        before = now

    episodes = TrainingEpisodes(engine.population.size)
    choose_actions(group)
    for t in range(TRACED_STEPS):
        update_due(learner, settings, t)
        note("learn: launch")
        actions = buffers.action.wait_filled()
        note("act: wait for actions")
        environments.send(actions)
        note("environments: send")
        result = environments.receive()
        note("environments: wait, reset")
        buffers.fill(result)
        note("fill staging buffers")
        choose_actions(group)
        note("act: launch")
        group.store()
        engine.state.step.add_(1)
        note("store: launch")
        episodes.step(group.agents, result)
        note("count episodes")
    for name, seconds in spent.items():
        print(f"  {1e3 * seconds / TRACED_STEPS:8.3f} ms  {name}")


if __name__ == "__main__":
    main()
