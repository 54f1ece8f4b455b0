"""DQN of TorchRL with the mean-expansion layer, on CartPole-v1."""

import torch
from cartpole import ACTIONS, ENV, OBSERVATION, evaluate, options
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl import logger
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate

from valueshare import append_mean_expansion


def train(args):
    logger.setLevel("WARNING")  # its messages would be among the scores
    torch.manual_seed(args.seed)
    env = GymEnv(ENV, categorical_action_encoding=True)
    env.set_seed(args.seed)
    network = MLP(in_features=OBSERVATION, out_features=ACTIONS, num_cells=[64, 64], activation_class=nn.ReLU)
    append_mean_expansion(network, args.k)  # the line; DQNLoss copies the actor, so it comes before the loss
    actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec)
    exploration = EGreedyModule(env.action_spec, 1.0, 0.05, annealing_num_steps=args.steps // 10)
    loss_module = DQNLoss(actor, loss_function="smooth_l1", action_space=env.action_spec)
    loss_module.make_value_estimator(gamma=0.99)
    target_update = HardUpdate(loss_module, value_network_update_interval=125)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(20_000), batch_size=64)
    interval = 10  # steps between updates; then one per two steps
    collector = Collector(
        env,
        TensorDictSequential(actor, exploration),
        frames_per_batch=interval,
        total_frames=args.steps,
        auto_register_policy_transforms=False,
    )

    def act(observation):
        return network(torch.as_tensor(observation)).argmax().item()

    for batch_number, transitions in enumerate(collector, start=1):
        step = batch_number * interval
        exploration.step(interval)
        buffer.extend(transitions.reshape(-1))
        if step > args.learning_starts:
            for _ in range(interval // 2):
                loss_module(buffer.sample())["loss"].backward()
                optimizer.step()
                optimizer.zero_grad()
                target_update.step()
        if step % args.eval_interval == 0:
            evaluate(act, args, step)
    collector.shutdown()
    return network, loss_module


if __name__ == "__main__":
    train(options(__doc__))
