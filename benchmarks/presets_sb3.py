"""Scores of Stable-Baselines3's DQN with the settings of RL Zoo, to set beside our presets.

    python benchmarks/presets_sb3.py --out sb3.jsonl     # 4 environments, 1 seed
    python benchmarks/presets_sb3.py --env CartPole-v1 --seeds 0 16 --out sb3.jsonl

Runs in a virtual environment of its own: torch, stable-baselines3 and gymnasium[box2d]. Each seed
trains for the budget of its environment, then plays 20 greedy episodes in a fresh environment.
Appends one JSON line per (environment, seed) to --out and skips those already there, so an
interrupted run is resumed by the same command. Seeds are the outer loop, environments the inner.

Settings: https://github.com/DLR-RM/rl-baselines3-zoo, hyperparams/dqn.yml. RL Zoo trains
LunarLander-v2 for 100,000 steps; here LunarLander-v3 has 200,000. exploration_fraction is a
fraction of the budget, so epsilon falls over twice as many steps.
"""

import argparse
import json
import multiprocessing
import os
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import stable_baselines3
import torch
from stable_baselines3 import DQN

EPISODES = 20
EVALUATION_SEED = 1_000_000  # plus the seed: no training environment has it


class Preset(NamedTuple):
    steps: int
    settings: dict[str, Any]  # arguments of DQN


# RL Zoo has the same settings for both.
ACROBOT_AND_LUNARLANDER = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,  # as many as steps since the last update: 4
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
}
PRESETS = {
    "CartPole-v1": Preset(
        50_000,
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
        },
    ),
    "Acrobot-v1": Preset(100_000, ACROBOT_AND_LUNARLANDER),
    "MountainCar-v0": Preset(
        120_000,
        {
            "learning_rate": 4e-3,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1_000,
            "gamma": 0.98,
            "target_update_interval": 600,
            "train_freq": 16,
            "gradient_steps": 8,
            "exploration_fraction": 0.2,
            "exploration_final_eps": 0.07,
        },
    ),
    "LunarLander-v3": Preset(200_000, ACROBOT_AND_LUNARLANDER),
}
NETWORK = [256, 256]


def main() -> None:
    options = parsed()
    first, count = options.seeds
    runs = [(env, seed) for seed in range(first, first + count) for env in options.env]
    done = finished(options.out)
    due = [run for run in runs if run not in done]
    print(f"{len(due)} runs due, {len(runs) - len(due)} already in {options.out}", flush=True)
    if options.processes == 1:
        for run in due:
            append(options.out, train_and_evaluate(run))
        return
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for record in pool.imap_unordered(train_and_evaluate, due):
            append(options.out, record)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 1), metavar=("FIRST", "COUNT"))
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    parser.add_argument("--processes", type=int, default=1, help="one thread each")
    return parser.parse_args()


def finished(path: Path) -> set[tuple[str, int]]:
    if not path.is_file():
        return set()
    records = map(json.loads, path.read_text().splitlines())
    return {(record["env"], record["seed"]) for record in records}


def append(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
    shown = f"score {record['score']:.1f} in {record['seconds']:.0f} s"
    print(f"{record['env']}, seed {record['seed']}: {shown}", flush=True)


def train_and_evaluate(run: tuple[str, int]) -> dict[str, Any]:
    env, seed = run
    torch.set_num_threads(1)
    preset = PRESETS[env]
    began, began_cpu = time.perf_counter(), time.process_time()
    # An object, not its id: given an id, Stable-Baselines3 turns rendering on.
    model = DQN(
        "MlpPolicy",
        gymnasium.make(env),
        policy_kwargs={"net_arch": NETWORK},
        seed=seed,
        device="cpu",
        **preset.settings,
    )
    model.learn(preset.steps)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    returns = greedy_returns(model, env, EVALUATION_SEED + seed)
    return {
        "env": env,
        "seed": seed,
        "steps": model.num_timesteps,  # the budget, rounded up to a multiple of train_freq
        "score": sum(returns) / len(returns),
        "episodes": len(returns),
        "returns": returns,
        "seconds": round(seconds, 1),  # training only; the machine may have had other work
        "cpu_seconds": round(cpu_seconds, 1),
        "sb3": stable_baselines3.__version__,
        "torch": torch.__version__,
        "gymnasium": gymnasium.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def greedy_returns(model: DQN, env: str, seed: int) -> list[float]:
    """Undiscounted returns of whole episodes; only the first reset is seeded."""
    environment = gymnasium.make(env)
    returns = []
    for episode in range(EPISODES):
        observation, _ = environment.reset(seed=seed if episode == 0 else None)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = environment.step(int(action))
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    environment.close()
    return returns


if __name__ == "__main__":
    main()
