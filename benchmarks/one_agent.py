"""Steps per second of one agent alone: a population of one against a fast DQN in a single file.

    python benchmarks/one_agent.py --json one-agent.json                       # on a GPU, about 6 minutes
    python benchmarks/one_agent.py --no-compile --rounds 2 --seconds 1         # a trial on a CPU

CartPole-v1, one environment of Gymnasium or EnvPool for both, MLP 120-84, batch size 128, replay 10,000, the settings
of CleanRL's dqn.py; an update every 10 steps as there, or at every step. The peer is single_file_dqn.py: compiled, and
captured in CUDA graphs. The learners of one setting train in the same process; after their first updates they alternate
for some rounds, so that a change of the machine's speed touches all of them. Rounds are whole training loops.
Without an installed valueshare, put src/ on PYTHONPATH.
"""

import argparse
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import single_file_dqn as peer
import torch

from valueshare.benchmarks.output import versions_line
from valueshare.benchmarks.training_loop import calls_per_second, training_engine
from valueshare.envs import environment_spec
from valueshare.envs.episodes import TrainingEpisodes
from valueshare.errors import InvalidInput
from valueshare.files import write_json
from valueshare.population.agents import agent_table
from valueshare.population.devices import checked_device, release_memory, training_on
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.state import initial_state, make_population

STRETCH = 1_000  # steps between looks at the clock
WARM_UP = peer.LEARNING_STARTS + STRETCH


class Population:
    """A population of one agent, with the interface of the peer."""

    def __init__(self, backend: Any, device: torch.device, *, update_interval: int, compiled: bool) -> None:
        settings = TrainingSettings(
            steps=1_000_000_000,
            hidden=(120, 84),
            initialization="pytorch",
            loss="half-squared",  # as the peer's: with a Huber loss it learns much later
            batch_size=peer.BATCH_SIZE,
            replay_capacity=peer.REPLAY_CAPACITY,
            learning_starts=peer.LEARNING_STARTS,
            update_interval=update_interval,
            target_update_interval=peer.TARGET_UPDATE_INTERVAL,
        )
        agent_settings = AgentSettings(
            step_size=peer.LEARNING_RATE,
            discount=peer.DISCOUNT,
            epsilon_end=peer.EPSILON_END,
            epsilon_steps=peer.EPSILON_STEPS,
        )
        agent = agent_table("CartPole-v1", "dqn", seeds=[0], agent_settings=agent_settings)
        population = make_population(agent, settings, environment_spec("CartPole-v1", backend), device)
        self.engine = training_engine(population, initial_state(population), compiled=compiled, threads=1, groups=1)
        self.step, self.episodes = 0, TrainingEpisodes(1)

    def run(self, steps: int) -> None:
        self.engine.executor.run(range(self.step, self.step + steps), lambda step: None, self.episodes)
        self.step += steps

    def finished(self) -> np.ndarray:
        """Episodes, and the sum of their returns."""
        return np.array([self.episodes.episode_count[0], self.episodes.return_sum[0]])


class Peer(peer.DQN):
    def finished(self) -> np.ndarray:
        return np.array([len(self.returns), sum(self.returns)])


def main() -> None:
    options = parsed()
    device = checked_device(options.device)
    versions = versions_line(options.device)
    print(versions, flush=True)
    rows: list[dict[str, Any]] = []
    with training_on(device, tf32=False):
        for update_interval in options.update_intervals:
            for backend in options.backends:
                for row in measured(backend, update_interval, device, options):
                    rows.append({"backend": backend, "update_interval": update_interval, **row})
                    print(shown(rows[-1]), flush=True)
                release_memory(device, compiled=options.compile)
                if options.json is not None:
                    write_json(options.json, {"versions": versions, "rows": rows})


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=peer.ENVIRONMENTS, default=list(peer.ENVIRONMENTS))
    parser.add_argument("--update-intervals", nargs="+", type=int, default=[10, 1])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each learner in each round")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--json", type=Path, help="file for the numbers, written after each setting")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: write a whole number >= 1")
    for interval in options.update_intervals:
        if interval < 1 or peer.REPLAY_CAPACITY % interval:
            parser.error(f"--update-intervals {interval}: write divisors of {peer.REPLAY_CAPACITY:,}")
    return options


def measured(
    backend: str, update_interval: int, device: torch.device, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """One row per learner: steps per second of each round, and the mean return of their episodes."""
    learners: dict[str, Population | Peer] = {}
    with ExitStack() as closing:
        for compiled in (True, False) if options.compile else (False,):
            ours = Population(backend, device, update_interval=update_interval, compiled=compiled)
            closing.callback(ours.engine.close)
            learners["valueshare, compiled" if compiled else "valueshare"] = ours
        name = "single file, compiled" if options.compile else "single file"
        learners[name] = Peer(backend, device, update_interval=update_interval, compiled=options.compile)
        for learner in learners.values():
            learner.run(WARM_UP)
        before = {name: learner.finished() for name, learner in learners.items()}
        rates: dict[str, list[float]] = {name: [] for name in learners}
        for _ in range(options.rounds):
            for name, learner in learners.items():
                rate = calls_per_second(partial(learner.run, STRETCH), options.seconds, device)
                rates[name].append(STRETCH * rate)
        *_, peer_rates = rates.values()
        return [
            {
                "learner": name,
                "steps_per_s": [round(rate) for rate in rates[name]],
                "times_peer": [round(a / b, 3) for a, b in zip(rates[name], peer_rates, strict=True)],
                "mean_return": mean_return(learner.finished() - before[name]),
            }
            for name, learner in learners.items()
        ]


def mean_return(finished: np.ndarray) -> float | None:
    episodes, total = finished
    return round(float(total / episodes), 1) if episodes else None


def shown(row: dict[str, Any]) -> str:
    rates, ratios = row["steps_per_s"], row["times_peer"]
    setting = f"{row['backend']}, update every {row['update_interval']}:"
    speed = f"{median(rates):,.0f} steps/s ({min(rates):,} to {max(rates):,})"
    ratio = f"{median(ratios):.2f} times the peer ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"{setting} {row['learner']}: {speed}, {ratio}, mean return {row['mean_return']}"


if __name__ == "__main__":
    try:
        main()
    except InvalidInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
