"""DQN in one file, as CleanRL writes it, with the mean-expansion layer: one line in `QNetwork`. On CartPole-v1."""

import gymnasium
import numpy as np
import torch
from cartpole import ENV, epsilon, evaluate, options
from stable_baselines3.common.buffers import ReplayBuffer
from torch import nn

from valueshare import MeanExpansion


class QNetwork(nn.Module):
    def __init__(self, env, k):
        super().__init__()
        n = env.action_space.n
        self.network = nn.Sequential(
            nn.Linear(np.prod(env.observation_space.shape), 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, n),
            MeanExpansion(k, n=n),  # the line
        )

    def forward(self, x):
        return self.network(x)


def train(args):
    rng = np.random.default_rng(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 (the replay buffer draws from it)
    torch.manual_seed(args.seed)
    env = gymnasium.make(ENV)
    env.action_space.seed(args.seed)
    q_network, target_network = QNetwork(env, args.k), QNetwork(env, args.k)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-3)
    buffer = ReplayBuffer(20_000, env.observation_space, env.action_space, "cpu", handle_timeout_termination=True)

    def act(observation):
        return q_network(torch.as_tensor(observation)).argmax().item()

    observation, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        explores = rng.random() < epsilon(step, args.steps)
        action = env.action_space.sample() if explores else act(observation)
        next_observation, reward, terminated, truncated, _ = env.step(action)
        done, info = terminated or truncated, {"TimeLimit.truncated": truncated and not terminated}
        buffer.add(observation, next_observation, np.array([action]), np.array([reward]), np.array([done]), [info])
        observation = env.reset()[0] if done else next_observation
        if step > args.learning_starts and step % 2 == 0:
            batch = buffer.sample(64)
            with torch.no_grad():
                next_value = target_network(batch.next_observations).max(dim=1, keepdim=True).values
                target = batch.rewards + 0.99 * next_value * (1 - batch.dones)
            loss = nn.functional.smooth_l1_loss(q_network(batch.observations).gather(1, batch.actions), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 250 == 0:
            target_network.load_state_dict(q_network.state_dict())
        if step % args.eval_interval == 0:
            evaluate(act, args, step)
    return q_network, target_network


if __name__ == "__main__":
    train(options(__doc__))
