"""Training loops of Atari agents on a GPU: environments in processes against environments in threads.

    python benchmarks/processes_against_threads.py --groups 1 2 4 8

Every loop is made first; then all of them and the bare emulators alternate for some rounds, so that a change of the
machine's speed touches all alike. Prints steps per second of each, its range over the rounds, and, of the best number
of groups, how many times as fast processes are. Without an installed valueshare, put src/ on PYTHONPATH.
"""

import argparse
import json
from contextlib import ExitStack
from dataclasses import replace
from statistics import median

import torch

from valueshare.benchmarks.atari import FILLED, bare_emulators
from valueshare.benchmarks.training_loop import (
    TrainingLoop,
    atari_population,
    calls_per_second,
    fill_with_copies,
    reset,
)
from valueshare.population.agents import agent_table
from valueshare.population.devices import checked_device, training_on
from valueshare.population.engine import make_engine
from valueshare.population.presets import atari
from valueshare.population.state import initial_state

EMULATORS = "bare emulators"


def main() -> None:
    options = parsed()
    device = checked_device(options.device)
    preset = atari(options.algorithm)
    settings = replace(preset.settings, replay_capacity=options.replay_capacity, tf32=True, delayed_actor=True)
    agent_settings = replace(preset.agent_settings, epsilon_start=1.0, epsilon_end=1.0)  # the emulators' actions too
    agents = agent_table(
        "ALE/Pong-v5", options.algorithm, seeds=range(options.agents), k=0.0, agent_settings=agent_settings
    )
    with training_on(device, tf32=True), ExitStack() as closing:
        bare = closing.enter_context(bare_emulators(agents, settings, None))
        loops: dict[str, TrainingLoop] = {}
        for groups in options.groups:
            for processes in (True, False):
                population = atari_population(agents, settings, device)
                engine = make_engine(
                    population,
                    initial_state(population),
                    compiled=not options.eager,
                    groups=groups,
                    processes=processes,
                    evaluates=False,
                )
                closing.callback(engine.close)
                reset(engine)
                TrainingLoop(engine, -FILLED).run(FILLED)
                fill_with_copies(engine.state.replay)
                loop = TrainingLoop(engine, settings.learning_starts)
                loop.run(4 * settings.update_interval)
                loops[f"{'processes' if processes else 'threads'}, {groups} groups"] = loop
                print("ready:", list(loops)[-1], flush=True)
        rates: dict[str, list[float]] = {name: [] for name in (EMULATORS, *loops)}
        for _ in range(options.rounds):
            rates[EMULATORS].append(calls_per_second(bare, options.seconds, device))
            for name, loop in loops.items():
                rates[name].append(loop.steps_per_second(options.seconds))
    print_table(rates, options.agents)


def print_table(rates: dict[str, list[float]], agents: int) -> None:
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'}")
    emulators = rates[EMULATORS]
    for name, values in rates.items():
        shares = [value / bare for value, bare in zip(values, emulators, strict=True)]
        print(
            f"{name:22} {agents * median(values):10,.0f} agent-steps/s ({agents * min(values):,.0f} to "
            f"{agents * max(values):,.0f}), {median(shares):.2f} of the bare emulators "
            f"({min(shares):.2f} to {max(shares):.2f})"
        )
    best = {
        kind: max((median(values), name) for name, values in rates.items() if name.startswith(kind))
        for kind in ("processes", "threads")
    }
    ratio = best["processes"][0] / best["threads"][0]
    print(f"{best['processes'][1]} against {best['threads'][1]}: {ratio:.3f} times")
    print(json.dumps({"agents": agents, "steps_per_second": rates}))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--algorithm", default="dqn")
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--replay-capacity", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each loop in each round")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
