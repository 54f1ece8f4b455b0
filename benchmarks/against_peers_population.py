"""Steps per second of a population, in a process of its own: valueshare's side of against_peers.py.

    echo go | python benchmarks/against_peers_population.py AGENTS SECONDS eager|compiled THREADS

Prints "ready" when it is warm, waits for a line, and prints the steps per second of all agents together.
"""

import sys
import time
from typing import TYPE_CHECKING

from valueshare.runs.workers.worker import set_up_process

if TYPE_CHECKING:
    from valueshare.population.engine import Engine

STRETCH = 100  # steps between looks at the clock


def main(agents: int, seconds: float, compiled: bool, threads: int) -> None:
    set_up_process(threads)  # before PyTorch is imported
    from valueshare.benchmarks import population
    from valueshare.envs.episodes import TrainingEpisodes

    preset = population.preset_named("generic")
    # Whatever the preset becomes, this comparison keeps its settings.
    settings = preset.settings
    assert (settings.hidden, settings.batch_size) == ((128, 128), 64)
    assert (settings.update_interval, settings.replay_transitions) == (4, 100_000)

    def loop(engine: "Engine") -> None:
        episodes, t = TrainingEpisodes(agents), settings.learning_starts
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            engine.executor.run(range(t, t + STRETCH), lambda step: None, episodes)
            t += STRETCH
        print(agents * (t - settings.learning_starts) / (now - began), flush=True)

    # Warm by then, replay full.
    population.measure(
        agents, preset, compiled=compiled, threads=threads, seconds=2.0, only=("whole loop",), trace=loop
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "compiled", int(sys.argv[4]))
