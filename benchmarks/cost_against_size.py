"""Cost of an agent-step against the size of a population: agents, width of the network, batch size.

    python benchmarks/cost_against_size.py --tf32 --out size      # on a GPU, about 4 minutes
    python benchmarks/cost_against_size.py --agents 1 2 4 8 --widths 16 32 64 --batches 8 16 32 --base 4 32 16 \
        --replay-capacity 2000 --seconds 1 --out size             # a trial on a CPU

LunarLander-v3 with the paper's settings and an MLP of two hidden layers, one update per step, replay full. One size
varies at a time, the others are those of --base. On CUDA every step is a CUDA graph, of compiled code with --compile.
Each point is printed and written to points.json in --out as soon as it is measured; the same command measures only the
points that are missing there. At the end, one figure per size, and a sentence on how the cost grows.
Without an installed valueshare, put src/ on PYTHONPATH.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from valueshare.benchmarks import population
from valueshare.benchmarks.output import versions_line
from valueshare.errors import InvalidInput, first_line
from valueshare.files import write_json
from valueshare.population.devices import checked_device
from valueshare.population.memory import DoesNotFit
from valueshare.population.presets import Preset, lunarlander_paper
from valueshare.report.figures.style import GREY, ORDER, rc_style
from valueshare.text import pluralize

POWER = {"agents": 1, "width": 2, "batch": 1}  # of each size that the work of an update is proportional to
DRAWN = ("whole loop", "learning", "environments", "acting")
FITTED = DRAWN[:2]
TOLERANCE = 0.1  # relative deviation from which a point is not on the line

Row = dict[str, Any]


class Size(NamedTuple):
    """A point of the sweep."""

    agents: int
    width: int  # of both hidden layers
    batch: int


class Fit(NamedTuple):
    """ms per step of all agents = fixed + slope · size^power."""

    fixed: float
    slope: float
    power: int

    def at(self, size: float) -> float:
        return self.fixed + self.slope * size**self.power

    @property
    def knee(self) -> float:
        """The size at which the fixed part is half of the cost."""
        return (self.fixed / self.slope) ** (1 / self.power) if self.slope > 0 else math.inf


def main() -> None:
    options = parsed()
    conditions = {
        "replay_capacity": options.replay_capacity,
        "tf32": options.tf32,
        "versions": versions_line(options.device),
    }
    print(conditions["versions"], flush=True)
    path = options.out / "points.json"
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    for size in sizes(options):
        point = {**size._asdict(), **conditions, "compiled": options.compile}
        if any(point.items() <= row.items() for row in rows):
            continue
        try:
            rows.append({**point, **measured(size, options)})
        except (DoesNotFit, torch.OutOfMemoryError) as error:
            print(f"{named(size)}: {first_line(error)}", flush=True)
            continue
        write_json(path, rows)
        print(shown(rows[-1]), flush=True)
    rows = [row for row in rows if conditions.items() <= row.items()]
    for varied in POWER:
        lines = {compiled: line_of(rows, varied, options.base, compiled) for compiled in (False, True)}
        if not any(lines.values()):
            continue
        figure(lines, varied).savefig(options.out / f"cost-against-{varied}.png", dpi=200)
        for compiled, line in lines.items():
            for part in FITTED if len(line) > 2 else ():
                print(f"{part}{', compiled' if compiled else ''}, against {varied}: {sentence(line, varied, part)}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=positive, nargs="*", default=[2**i for i in range(13)])
    parser.add_argument("--widths", type=positive, nargs="*", default=[64, 128, 256, 512, 1_024])
    parser.add_argument("--batches", type=positive, nargs="*", default=[32, 64, 128, 256, 512])
    parser.add_argument("--base", type=positive, nargs=3, default=(256, 256, 128), metavar=("AGENTS", "WIDTH", "BATCH"))
    parser.add_argument("--replay-capacity", type=positive, default=100_000, help="transitions per agent")
    parser.add_argument("--seconds", type=float, default=5.0, help="of measuring each point")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="compile every point, which takes about a minute each")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--out", type=Path, required=True, help="folder of points.json and the figures")
    options = parser.parse_args()
    options.base = Size(*options.base)
    checked_device(options.device)
    return options


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: write a whole number >= 1")
    return int(text)


def sizes(options: argparse.Namespace) -> Iterator[Size]:
    """One size varied at a time; what two of them share comes once."""
    values = {"agents": options.agents, "width": options.widths, "batch": options.batches}
    points = [options.base._replace(**{varied: value}) for varied in values for value in values[varied]]
    return iter(dict.fromkeys(points))


def measured(size: Size, options: argparse.Namespace) -> Row:
    began = time.perf_counter()
    settings, agent_settings = lunarlander_paper()
    settings = replace(
        settings,
        hidden=(size.width, size.width),
        batch_size=size.batch,
        replay_capacity=options.replay_capacity,
        tf32=options.tf32,
    )
    try:
        timing = population.measure(
            size.agents,
            Preset(settings, agent_settings),
            device=options.device,
            compiled=options.compile,
            seconds=options.seconds,
        )
    finally:
        population.release(options.device)
    return {
        "ms": {part: round(ms, 4) for part, ms in timing.ms.items()},
        "learning_limit_ms": round(timing.learning_limit, 4),
        "agent_steps_per_s": round(timing.rate("whole loop")),
        "seconds": round(time.perf_counter() - began, 1),  # with setting up and compiling
    }


def line_of(rows: Sequence[Row], varied: str, base: Size, compiled: bool) -> list[Row]:
    """The points at which only this size differs from the base, in its order."""
    fixed = {name: value for name, value in base._asdict().items() if name != varied}
    return sorted(
        (row for row in rows if fixed.items() <= row.items() and row["compiled"] == compiled),
        key=lambda row: int(row[varied]),
    )


def fit(line: Sequence[Row], varied: str, part: str) -> Fit:
    """The least relative squared deviation, with no part below zero."""
    power, ms = POWER[varied], np.array([row["ms"][part] for row in line])
    terms = np.stack([np.ones(len(line)), np.array([float(row[varied]) for row in line]) ** power], axis=1)
    terms /= ms[:, None]
    both = np.linalg.lstsq(terms, np.ones(len(line)))[0]
    if both.min() >= 0:
        return Fit(float(both[0]), float(both[1]), power)
    alone = terms.sum(axis=0) / (terms**2).sum(axis=0)  # the best of either term alone
    best = int(((terms * alone - 1) ** 2).sum(axis=0).argmin())
    fixed, slope = np.where(np.arange(2) == best, alone, 0.0)
    return Fit(float(fixed), float(slope), power)


def sentence(line: Sequence[Row], varied: str, part: str) -> str:
    """The fit, where its fixed part ends, and the points that are not on it."""
    found = fit(line, varied, part)
    smallest, largest = line[0][varied], line[-1][varied]
    to = f"the square of {varied}" if found.power == 2 else varied
    if found.knee <= smallest:
        growth = f"proportional to {to} from {smallest:,} to {largest:,}"
    elif found.knee >= largest:
        growth = f"mostly fixed from {smallest:,} to {largest:,}"
    else:
        growth = f"a fixed part, and one proportional to {to}; both are equal at about {found.knee:,.0f}"
    deviations = {row[varied]: row["ms"][part] / found.at(row[varied]) - 1 for row in line}
    off = [f"{size:,} ({deviation:+.0%})" for size, deviation in deviations.items() if abs(deviation) > TOLERANCE]
    quality = f"off by more than {TOLERANCE:.0%}: {', '.join(off)}" if off else f"every point within {TOLERANCE:.0%}"
    unit = f"{varied}²" if found.power == 2 else varied
    return f"{growth} ({found.fixed:.3g} ms + {1e3 * found.slope:.3g} µs · {unit} per step of all agents; {quality})"


def figure(lines: dict[bool, list[Row]], varied: str) -> Figure:
    """Time per agent-step of the whole loop and of its parts alone; dashed lines are of compiled code."""
    with rc_style():
        drawn = Figure(figsize=(6.4, 2.8), layout="constrained")
        axes = drawn.subplots()
        for compiled, line in lines.items():
            x = [row[varied] for row in line]
            parts = FITTED if compiled else DRAWN
            for part, colour in zip(parts if line else (), ORDER, strict=False):
                y = [1e3 * row["ms"][part] / row["agents"] for row in line]
                style, label = ("--", f"{part}, compiled") if compiled else ("-", part)
                axes.plot(x, y, linestyle=style, marker="o", color=colour, label=label)
            if len(line) > 2 and not compiled:
                found = fit(line, varied, "whole loop")
                y = [1e3 * found.at(row[varied]) / row["agents"] for row in line]
                axes.plot(x, y, ":", color=GREY, label="whole loop, fit")
        ticks = sorted({row[varied] for line in lines.values() for row in line})
        axes.set(xscale="log", yscale="log", xlabel=varied, ylabel="µs per agent-step")
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=45 if len(ticks) > 8 else 0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.minorticks_off()
        drawn.legend(loc="outside right upper")
    return drawn


def named(size: Size) -> str:
    return f"{pluralize(size.agents, 'agent')}, width {size.width:,}, batch {size.batch:,}"


def shown(row: Row) -> str:
    ms = row["ms"]
    parts = ", ".join(f"{part} {ms[part]:.3f}" for part in DRAWN)
    microseconds = 1e3 * ms["whole loop"] / row["agents"]
    size = named(Size(row["agents"], row["width"], row["batch"]))
    return f"{size}: {microseconds:,.2f} µs per agent-step; ms per step: {parts}; took {row['seconds']} s"


if __name__ == "__main__":
    try:
        main()
    except InvalidInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
