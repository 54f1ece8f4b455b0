"""Time of training, evaluation and checkpoints of Atari agents, in the proportions of the paper's protocol.

    python benchmarks/atari_protocol.py                    # 16 agents of DQN on Pong, on a GPU: two minutes
    python benchmarks/atari_protocol.py --phase 40000 --algorithm iqn

In the paper, phases of 250,000 training steps are followed by 125,000 evaluation steps and a checkpoint. Here two
phases are shorter, in the same proportion, and the agents learn from the beginning of the first one; the times of the
second are printed. A third of all emulator steps are those of the evaluation. Loading its games counts as training.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from valueshare.benchmarks.output import versions_line
from valueshare.population.agents import agent_table
from valueshare.population.presets import atari
from valueshare.population.train import PhaseReport, train_population


class Clock:
    """Seconds of each part of the second phase."""

    def __init__(self, phase: int) -> None:
        self.phase, self.parts = phase, {"training": 0.0, "evaluation": 0.0, "checkpoint": 0.0}
        self._last, self._evaluates = 0.0, False

    def on_step(self, step: int) -> None:
        if step == 2 * self.phase and not self._evaluates:
            self._end("training")
            self._evaluates = True

    def on_evaluation(self, step: int) -> None:
        if step == 2 * self.phase:
            self._end("evaluation")

    def on_phase(self, report: PhaseReport) -> None:
        if report.step == self.phase:
            self._last = time.perf_counter()
        elif report.step == 2 * self.phase:
            self._end("checkpoint")

    def _end(self, part: str) -> None:
        now = time.perf_counter()
        self.parts[part], self._last = now - self._last, now


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--algorithm", default="dqn")
    parser.add_argument("--game", default="ALE/Pong-v5")
    parser.add_argument("--phase", type=int, default=20_000, help="training steps of a phase")
    parser.add_argument("--replay-capacity", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    preset, on_cuda = atari(options.algorithm), options.device == "cuda"
    settings = replace(
        preset.settings,
        steps=3 * options.phase,
        checkpoint_interval=options.phase,
        eval_interval=options.phase,
        eval_timesteps=options.phase // 2,
        learning_starts=1_000,
        replay_capacity=options.replay_capacity,
        delayed_actor=on_cuda,
        tf32=on_cuda,
    )
    agents = agent_table(
        options.game, options.algorithm, seeds=range(options.agents), agent_settings=preset.agent_settings
    )
    clock = Clock(options.phase)
    with tempfile.TemporaryDirectory() as folder:
        train_population(
            agents,
            settings,
            directory=Path(folder),
            device=options.device,
            compiled=on_cuda,
            groups=options.groups if on_cuda else None,
            on_step=clock.on_step,
            on_evaluation=clock.on_evaluation,
            on_phase=clock.on_phase,
            should_stop=lambda: clock.parts["checkpoint"] > 0,
        )
        size = sum(path.stat().st_size for path in Path(folder).rglob("*-000001*"))
    total, steps = sum(clock.parts.values()), {"training": options.phase, "evaluation": options.phase // 2}
    print(f"{options.agents} agents of {options.algorithm} on {options.game}, phases of {options.phase:,} steps")
    for part, seconds in clock.parts.items():
        per_step = f"  {1e3 * seconds / steps[part]:6.3f} ms per step" if part in steps else f"  {size / 1e6:,.0f} MB"
        print(f"{part:12}{seconds:8.2f} s {seconds / total:6.1%}{per_step}")
    print(versions_line(options.device))


if __name__ == "__main__":
    main()
