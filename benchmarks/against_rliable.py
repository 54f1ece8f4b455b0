"""IQM curves with 95 % intervals at the size of the paper's Atari study, against rliable.

    python benchmarks/against_rliable.py        # with a Python that has valueshare and rliable

57 games x 5 seeds x 200 evaluations x 7 algorithms, 50,000 resamples of each of the 1,400 points.
The whole of it is computed here. rliable would take hours, so it is timed on a part: one algorithm,
POINTS evaluations and REPS resamples, in the way its documentation shows. Its time for the whole is
that of the part, divided by the part's share of all resamples; a part of half the resamples shows
how far that is from linear. Wall-clock time and processor time are both shown: rliable uses one
core, and on a busy machine the first says little.
"""

import argparse
import resource
import time
from importlib import import_module
from typing import Any

import numba
import numpy as np
import polars as pl
from numpy.typing import NDArray

from valueshare.analysis import iqm_curves

GAMES, SEEDS, EVALUATIONS, ALGORITHMS, RESAMPLES = 57, 5, 200, 7, 50_000
POINTS, REPS = 20, 1_000  # of rliable's part
MEMORY_LIMIT, TIME_LIMIT, TIMES = 2e9, 60.0, 20.0  # what is promised


def scores() -> NDArray[np.float64]:
    """Made-up scores, skewed as human-normalized ones are: [algorithms, games, seeds, points]."""
    rng = np.random.default_rng(0)
    level = rng.gamma(0.6, 3.0, size=(1, GAMES, 1, 1))
    risen = 1 - np.exp(-4 * np.linspace(0, 1, EVALUATIONS))
    spread = rng.lognormal(0.0, 0.4, size=(ALGORITHMS, GAMES, SEEDS, EVALUATIONS))
    values: NDArray[np.float64] = level * risen * spread
    return values


def tidy(values: NDArray[np.float64]) -> pl.DataFrame:
    algorithm, game, seed, point = np.indices(values.shape).reshape(4, -1)
    names = pl.DataFrame({"algorithm": algorithm, "env": game, "seed": seed, "step": point})
    return names.with_columns(
        pl.format("algorithm {}", "algorithm").alias("algorithm"),
        pl.format("game {}", pl.col("env").cast(pl.String).str.zfill(2)).alias("env"),
        score=pl.Series(values.ravel()),
    )


def timed(work: Any) -> tuple[Any, float, float]:
    """The result of the work, its seconds, and its processor's seconds."""
    wall, own = time.perf_counter(), time.process_time()
    answer = work()
    return answer, time.perf_counter() - wall, time.process_time() - own


def rliable_part(values: NDArray[np.float64], reps: int) -> Any:
    """Point estimates and intervals of the first algorithm's last POINTS evaluations."""
    library, metrics = import_module("rliable.library"), import_module("rliable.metrics")
    part = values[0, :, :, -POINTS:].transpose(1, 0, 2)  # [seeds, games, points]

    def curve(own: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([metrics.aggregate_iqm(own[..., point]) for point in range(POINTS)])

    np.random.seed(0)  # noqa: NPY002 (rliable draws from the global generator)
    points, ranges = library.get_interval_estimates({"a": part}, curve, reps=reps)
    return points["a"], ranges["a"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    resamples = parser.parse_args().resamples
    values = scores()
    table = tidy(values)
    print(f"{table.height:,} scores, {numba.get_num_threads()} threads, {resamples:,} resamples")
    _, first, _ = timed(lambda: iqm_curves(table.filter(pl.col("step") < 2), resamples=2_000))
    print(f"valueshare, first call (compiles, or loads what was compiled): {first:.1f} s")
    found, wall, own = timed(lambda: iqm_curves(table, resamples=resamples).table)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"valueshare, everything: {wall:.1f} s, {own:.1f} s of processor, {memory / 1e9:.2f} GB")

    whole = ALGORITHMS * EVALUATIONS * resamples
    rliable_part(values, 10)  # imports it
    _, half_wall, half_own = timed(lambda: rliable_part(values, REPS // 2))
    (points, ranges), part_wall, part_own = timed(lambda: rliable_part(values, REPS))
    share = POINTS * REPS / whole
    print(
        f"rliable, 1 algorithm x {POINTS} evaluations x {REPS:,} resamples, 1/{1 / share:,.0f} of "
        f"it: {part_wall:.1f} s, {part_own:.1f} s of processor "
        f"(half the resamples: {half_wall:.1f} s, {half_own:.1f} s)"
    )
    print(f"rliable, everything, extrapolated: {part_wall / share / 60:,.0f} minutes")
    print(
        f"valueshare is {part_wall / share / wall:,.0f} times as fast, "
        f"{part_own / share / own:,.0f} times by processor time"
    )

    ours = found.filter(pl.col("algorithm") == "algorithm 0").sort("step").tail(POINTS)
    apart = np.abs(ours["value"].to_numpy() / points - 1).max()
    width = ranges[1] - ranges[0]
    ends = ours.select("ci95_low", "ci95_high").to_numpy().T
    print(f"point estimates differ by at most {apart:.1e} of their value")
    print(
        f"ends of intervals differ by at most {np.abs((ends - ranges) / width).max():.1%} of the "
        f"width; a quantile of {REPS:,} resamples has a standard error of about "
        f"{np.sqrt(0.025 * 0.975 / REPS) / 0.0584 / 3.92:.1%}"
    )
    if resamples == RESAMPLES:
        kept = wall <= TIME_LIMIT and memory <= MEMORY_LIMIT and part_wall / share >= TIMES * wall
        print("kept" if kept else "NOT KEPT", end=": ")
        print(f"at most {TIME_LIMIT:.0f} s, {MEMORY_LIMIT / 1e9:.0f} GB, {TIMES:.0f} times rliable")


if __name__ == "__main__":
    main()
