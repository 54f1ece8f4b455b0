"""How long the whole Atari study takes on 1, 8, 64 and 512 GPUs: list scheduling, simulated.

    python benchmarks/cluster_plan.py
    python benchmarks/cluster_plan.py --gpus 1 16 126 --population-agents 32 --rate 9000

The populations are those of `valueshare reproduce atari57 --scale paper`. Each is one task of as
many seconds as its agent-steps, evaluation included, take at its rate. Tasks begin longest first,
each where a GPU is free, as on a cluster.

Rates are of one GPU with 16 cores and 16 agents, as measured on an H200: the emulators alone made
7,800 to 14,700 steps per second, and a training loop 0.73 of that; 8,000 lies in the middle. IQN's
was not measured: half of it is a guess. Each agent then makes 500 steps per second. A smaller
population is taken to be no faster an agent: its emulators have a core each either way.
Games are said to differ by --spread: their emulators do not all take the same time.
"""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from valueshare.experiments.study import evaluation_steps, make_study
from valueshare.runs.shards import end_times, longest_first

CORES = 16  # of a GPU; emulators that have one each
STEP = 0.6180339887498949  # spreads numbers evenly over [0, 1), always the same ones


class Outcome(NamedTuple):
    """The schedule of the tasks on a cluster of some size."""

    wall: float  # seconds
    idle: float  # share of all GPUs' time until the last one is done


def simulated(seconds: Sequence[float], gpus: int) -> Outcome:
    done = end_times(seconds, gpus)
    return Outcome(done[-1], 1 - sum(seconds) / (done[-1] * gpus))


def stops_scaling(seconds: Sequence[float]) -> int:
    """The fewest GPUs with which the study takes as long as its longest task."""
    low, high = 1, len(seconds)
    while low < high:
        middle = (low + high) // 2
        if simulated(seconds, middle).wall <= max(seconds) * 1.001:
            high = middle
        else:
            low = middle + 1
    return low


def tasks(options: argparse.Namespace) -> dict[str, float]:
    """Seconds of every population, by name."""
    study = make_study("atari57", "paper", population_agents=options.population_agents)
    found: dict[str, float] = {}
    for name, plan in study.runs.items():
        for spec in plan.populations.values():
            rate = options.iqn_rate if "iqn" in name else options.rate
            agents, settings = spec.agents.height, spec.settings
            agent_steps = settings.steps + evaluation_steps(settings)
            steps = agent_steps * max(agents, CORES)  # a step takes as long with fewer
            slower = 1 + options.spread * (2 * (len(found) * STEP % 1) - 1)
            found[f"{name}/{spec.name}"] = steps / rate * slower + options.start_seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole Atari study on a cluster, simulated.")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--population-agents", type=int, default=16, help="of a population")
    parser.add_argument("--rate", type=float, default=8_000.0, help="agent-steps/s of a GPU")
    parser.add_argument("--iqn-rate", type=float, default=4_000.0, help="the same, of IQN")
    parser.add_argument("--spread", type=float, default=0.2, help="between populations, +- share")
    parser.add_argument("--start-seconds", type=float, default=120.0, help="loading, compiling")
    options = parser.parse_args()
    named = tasks(options)
    longest = [named[name] for name in longest_first(named)]
    table = list(named.values())
    print(
        f"{len(named)} populations of at most {options.population_agents} agents, "
        f"{sum(table) / 3_600:,.0f} GPU-hours, the longest {max(table) / 3_600:,.1f} hours"
    )
    print(f"{'GPUs':>6} {'days':>8} {'idle':>7} {'speed-up':>9}   in the table's order")
    alone = sum(table)
    for gpus in options.gpus:
        best, plain = simulated(longest, gpus), simulated(table, gpus)
        print(
            f"{gpus:>6} {best.wall / 86_400:>8.1f} {100 * best.idle:>6.1f}% "
            f"{alone / best.wall:>8.1f}x   {plain.wall / 86_400:.1f} days, "
            f"{100 * plain.idle:.1f}% idle"
        )
    few = stops_scaling(longest)
    print(
        f"it stops scaling at {few} GPUs: the longest population alone takes "
        f"{max(table) / 86_400:.1f} days, and an agent's steps come one after the other"
    )


if __name__ == "__main__":
    main()
