"""DQN of PFRL with the mean-expansion layer, on CartPole-v1."""

import gymnasium
import numpy as np
import pfrl
import torch
from cartpole import ACTIONS, ENV, OBSERVATION, evaluate, options
from torch import nn

from valueshare import MeanExpansion


def train(args):
    pfrl.utils.set_random_seed(args.seed)
    env = gymnasium.make(ENV)
    env.action_space.seed(args.seed)
    q_func = nn.Sequential(
        nn.Linear(OBSERVATION, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, ACTIONS),
        MeanExpansion(args.k, n=ACTIONS),  # the line; the agent copies q_func, so it comes before the agent
        pfrl.q_functions.DiscreteActionValueHead(),
    )
    agent = pfrl.agents.DQN(
        q_func,
        torch.optim.Adam(q_func.parameters(), lr=1e-3),
        pfrl.replay_buffers.ReplayBuffer(20_000),
        gamma=0.99,
        explorer=pfrl.explorers.LinearDecayEpsilonGreedy(1.0, 0.05, args.steps // 10, env.action_space.sample),
        replay_start_size=args.learning_starts,
        minibatch_size=64,
        update_interval=2,
        target_update_interval=250,
        phi=lambda observation: observation.astype(np.float32, copy=False),
    )
    observation, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        agent.observe(observation, reward, terminated, truncated)
        if terminated or truncated:
            observation, _ = env.reset()
        if step % args.eval_interval == 0:
            with agent.eval_mode():
                evaluate(agent.act, args, step)
    return agent.model, agent.target_model


if __name__ == "__main__":
    train(options(__doc__))
