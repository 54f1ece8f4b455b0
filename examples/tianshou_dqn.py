"""DQN of Tianshou with the mean-expansion layer, on CartPole-v1."""

import gymnasium
import numpy as np
import torch
from cartpole import ACTIONS, ENV, OBSERVATION, epsilon, evaluate, options
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from valueshare import append_mean_expansion


def train(args):
    np.random.seed(args.seed)  # noqa: NPY002 (Tianshou draws from it)
    torch.manual_seed(args.seed)
    envs = DummyVectorEnv([lambda: gymnasium.make(ENV)])
    envs.seed(args.seed)
    network = Net(state_shape=OBSERVATION, action_shape=ACTIONS, hidden_sizes=[64, 64])
    append_mean_expansion(network, args.k)  # the line; DQN copies the network, so it comes before the algorithm
    policy = DiscreteQLearningPolicy(model=network, action_space=gymnasium.make(ENV).action_space)
    algorithm = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.99, target_update_freq=125, is_double=False
    )
    collector = Collector(algorithm, envs, VectorReplayBuffer(20_000, 1), exploration_noise=True)
    collector.reset()
    policy.set_eps_training(1.0)
    collector.collect(n_step=args.learning_starts, random=True)
    trainer = algorithm.create_trainer(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=args.steps // args.eval_interval,
            epoch_num_steps=args.eval_interval,
            collection_step_num_env_steps=10,
            update_step_num_gradient_steps_per_sample=0.5,
            batch_size=64,
            training_fn=lambda _, step: policy.set_eps_training(epsilon(step, args.steps)),
            verbose=False,
            show_progress=False,
        )
    )
    trainer.reset(reset_collectors=False)

    def act(observation):
        return network(observation[None])[0].argmax().item()

    for step in range(args.eval_interval, args.steps + 1, args.eval_interval):
        trainer.execute_epoch()
        evaluate(act, args, step)
    return network, algorithm.model_old


if __name__ == "__main__":
    train(options(__doc__))
