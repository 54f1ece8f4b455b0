"""Learning and acting of a population with networks of vectors on a GPU, without environments.

    python benchmarks/gpu_vectors.py                        # 2,040 agents with the network of the LunarLander study
    python benchmarks/gpu_vectors.py --agents 256 --kernels
    python benchmarks/gpu_vectors.py --rows learning --without-kernels

A row is one compiled and captured step of the population: an update of IB-DQN (sample, differentiate, Adam), or acting
on one observation each, or on five. Without an installed valueshare, put src/ on PYTHONPATH.
"""

import argparse
import json
from functools import partial
from unittest.mock import patch

import numpy as np
import torch
from gpu_atari import device_name, measured

from valueshare.envs.base import EnvironmentSpec
from valueshare.nn import operators
from valueshare.population.act import act
from valueshare.population.agents import agent_table
from valueshare.population.devices import training_on
from valueshare.population.execution.cuda_graphs import GraphedStep
from valueshare.population.learn import learn
from valueshare.population.settings import AgentSettings, TrainingSettings
from valueshare.population.state import State, initial_state, make_population

REPLAY = 20_000  # transitions per agent
ROWS = {"learning": 0, "acting": 1, "acting on 5": 5}  # observations per agent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=2_040)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--without-kernels", action="store_true", help="PyTorch's own products")
    parser.add_argument("--kernels", type=int, nargs="?", const=20, help="so many of the slowest kernels of each row")
    options = parser.parse_args()
    device = torch.device(options.device)
    print(f"torch {torch.__version__}, {device_name(device)}, {options.agents} agents, MLP {options.hidden}, TF32")
    available = (lambda weight: False) if options.without_kernels else operators.available
    with training_on(device, tf32=True), patch.object(operators, "available", available):
        for name in options.rows:
            result = measured(partial(step_of, ROWS[name], options, device), options.kernels, device)
            print(json.dumps({"row": name, **result}), flush=True)


def step_of(observations: int, options: argparse.Namespace, device: torch.device) -> tuple[GraphedStep, State]:
    settings = TrainingSettings(
        steps=REPLAY,
        checkpoint_interval=REPLAY,
        eval_interval=REPLAY,
        hidden=tuple(options.hidden),
        batch_size=options.batch_size,
        replay_capacity=REPLAY,
        reduction="mean",
        optimizer_epsilon=3.125e-4,
        observation_scale=0.1,
        tf32=True,
    )
    env = EnvironmentSpec("noise", "gymnasium", (8,), np.dtype(np.float32), 4, None, 0)
    table = agent_table(
        "noise", "ib-dqn", seeds=range(options.agents), k=4.0, agent_settings=AgentSettings(step_size=1e-3)
    )
    population = make_population(table, settings, env, device)
    state = initial_state(population)
    fill(state)
    seen = torch.randn(options.agents, max(1, observations), 8, device=device)
    seen = seen[:, 0] if observations == 1 else seen
    actions = torch.zeros(seen.shape[:-1], dtype=torch.int64, device=device)

    def act_step() -> None:
        if observations == 1:
            actions.copy_(act(population, state, seen))
        else:
            actions.copy_(population.q_values(state.online, seen, None).argmax(-1))

    def learn_step() -> None:
        learn(population, state)
        state.step.add_(1)  # other transitions every time

    return GraphedStep(act_step if observations else learn_step, device, compiled=True), state


def fill(state: State) -> None:
    """Noise in every observation, and transitions everywhere."""
    replay = state.replay
    count = replay.action.shape[1]
    replay.observation.normal_()
    replay.action.random_(0, 4)
    replay.reward.normal_()
    replay.discount.fill_(0.99)
    replay.row.copy_(torch.arange(count, device=replay.row.device))
    replay.rows.fill_(count + 1)
    replay.written.fill_(count)


if __name__ == "__main__":
    main()
