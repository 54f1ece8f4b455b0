"""Time per step of LunarLander-v3: the compiled environments against EnvPool's, which have the same episodes.

    python benchmarks/lunar_lander.py                 # a minute
    python benchmarks/lunar_lander.py --threads 16 --counts 2040 10200

Both get the same seeds and actions, and alternate in blocks of steps. `random` crashes soon, `hovering` stays in the
air, and `landing` is a controller that lands and then stands on its legs, which is more work. Where processors or
compilers round differently, observations differ after a while, and a line says so.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from valueshare.benchmarks.output import versions_line
from valueshare.cores import available_cores
from valueshare.envs import make_environments
from valueshare.envs.base import Environments
from valueshare.schema import Backend

BLOCK = 100  # steps
BACKENDS: tuple[Backend, ...] = ("numba", "envpool")


def landing(observation: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
    """The controller of Gymnasium's `demo_heuristic_lander`."""
    x, y, speed_x, speed_y, angle, spin, left, right = observation.T
    turn = 0.5 * (np.clip(0.5 * x + speed_x, -0.4, 0.4) - angle) - spin
    stands = (left > 0) | (right > 0)
    rise = np.where(stands, -0.5 * speed_y, 0.5 * (0.55 * np.abs(x) - y) - 0.5 * speed_y)
    turn = np.where(stands, 0.0, turn)
    side = np.where(turn < -0.05, 3, np.where(turn > 0.05, 1, 0))
    return np.where((rise > np.abs(turn)) & (rise > 0.05), 2, side)


def hovering(observation: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
    low = (observation[:, 1] < 0.5) & (observation[:, 3] < 0.05)
    return np.where(low, 2, landing(observation, rng))


def random(observation: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, 4, len(observation))


Policy = Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.int64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[32, 320], help="environments")
    parser.add_argument("--threads", type=int, default=1, help="that step them")
    parser.add_argument("--blocks", type=int, default=10, help=f"of {BLOCK} steps, of each backend")
    options = parser.parse_args()
    print(f"LunarLander-v3, {options.threads} of {available_cores()} cores: µs per step of one environment")
    print(f"{'environments':>12}  {'policy':10}{'compiled':>24}{'EnvPool':>24}   ratio")
    for count in options.counts:
        for policy in (random, hovering, landing):
            times = measure(count, policy, options.threads, options.blocks)
            ratio = median(b / a for a, b in zip(*(times[backend] for backend in BACKENDS), strict=True))
            cells = "".join(f"{shown(times[backend]):>24}" for backend in BACKENDS)
            print(f"{count:12,}  {policy.__name__:10}{cells}   {ratio:.1f}", flush=True)
    print(versions_line("cpu"))


def measure(count: int, policy: Policy, threads: int, blocks: int) -> dict[str, list[float]]:
    """Microseconds per step of one environment, of each block."""
    environments = {
        backend: make_environments("LunarLander-v3", count, backend=backend, threads=threads) for backend in BACKENDS
    }
    observations = {backend: each.reset(range(count)) for backend, each in environments.items()}
    rngs = {backend: np.random.default_rng(0) for backend in BACKENDS}
    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for _ in range(blocks):
        for backend in BACKENDS:
            seconds, observations[backend] = block(environments[backend], observations[backend], policy, rngs[backend])
            times[backend].append(seconds / BLOCK / count * 1e6)
    if not np.array_equal(observations["numba"], observations["envpool"]):
        print("the observations differ in the end")
    for each in environments.values():
        each.close()
    return times


def block(
    environments: Environments, observation: NDArray[np.float32], policy: Policy, rng: np.random.Generator
) -> tuple[float, NDArray[np.float32]]:
    """Seconds of the environments alone, and the last observation."""
    seconds = 0.0
    for _ in range(BLOCK):
        actions = policy(observation, rng)
        began = time.perf_counter()
        observation = environments.step(actions).observation
        seconds += time.perf_counter() - began
    return seconds, observation


def shown(times: list[float]) -> str:
    return f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


if __name__ == "__main__":
    main()
