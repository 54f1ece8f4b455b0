"""A whole command, from its start to its end, against two processes of Stable-Baselines3's DQN on LunarLander-v3.

    python benchmarks/whole_command.py                                  # about 15 minutes on two cores
    python benchmarks/whole_command.py --options="--no-compile"

The command is `valueshare train --env LunarLander-v3 --seeds 64`, with what valueshare chooses itself: it starts,
compiles, trains, evaluates and writes checkpoints, and all of this counts. Stable-Baselines3 is measured in its loop
alone, before and after the command, as in against_peers.py, without start, evaluation or checkpoints; its epsilon is
0.19 at every step, the mean of the command's over its 200,000 steps.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from against_peers import CORES, ENVIRONMENT, SB3, other_python, rate_together, versions

COMMAND = ("train", "--env", "LunarLander-v3", "--seeds", "64")
EXPLORATION = "exploration_fraction=0.001, exploration_final_eps=0.05"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--options", type=shlex.split, default=[], help="more options of the command")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement of Stable-Baselines3")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    load = os.getloadavg()[0]
    python = other_python("sb3")
    peers = [peer_rate(python, options.seconds)]
    steps, seconds = whole_command(options.options)
    peers.append(peer_rate(python, options.seconds))
    print(f"Stable-Baselines3 DQN, {CORES} processes: {peers[0]:,.0f} steps/s before, {peers[1]:,.0f} after")
    print(f"the command: {steps:,} steps in {seconds:,.0f} s, {steps / seconds:,.0f} steps/s")
    low, high = sorted(steps / seconds / rate for rate in peers)
    print(f"{2 * steps / seconds / sum(peers):.1f} times Stable-Baselines3 ({low:.1f} and {high:.1f})")
    print(versions({"sb3": python}))
    if load > 0.5:
        print(f"the machine was not quiet: a load of {load:.1f} before the start")


def peer_rate(python: Path, seconds: float) -> float:
    program = SB3.replace(EXPLORATION, "exploration_initial_eps=0.19, exploration_final_eps=0.19")
    assert program != SB3
    words = [[str(python), "-c", program, str(seed), str(seconds), "3000"] for seed in range(CORES)]
    return rate_together(words, {"OMP_NUM_THREADS": "1"})


def whole_command(more: list[str]) -> tuple[int, float]:
    """Steps of all agents, and seconds from the start of the process to its end."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        words = [sys.executable, "-m", "valueshare", *COMMAND, *more, "--out", str(run)]
        print(shlex.join(["valueshare", *words[3:-2]]), flush=True)
        began = time.perf_counter()
        subprocess.run(words, env=ENVIRONMENT, check=True)
        seconds = time.perf_counter() - began
        last = pl.read_parquet(run / "records" / "*.parquet").group_by("agent").agg(pl.col("step").max())
        return int(last["step"].sum()), seconds


if __name__ == "__main__":
    main()
